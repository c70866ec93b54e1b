"""The role of this broker for each of its partitions: leader, or follower that copies from the leader.

The cluster image decides the role. `assume` passes it to the partition, and starts or stops the partition's fetcher.
One timer checks the followers of all led partitions for lag.
"""

from collections.abc import Callable, Iterable
from functools import partial
from uuid import UUID

from tidemill.cluster.core.image import PartitionInfo, Topic
from tidemill.cluster.interface import PartitionStates
from tidemill.replication.replica_fetcher import Copy, ReplicaFetchers
from tidemill.streams.core.insync import NO_LEADER, Term
from tidemill.streams.leader_replication import Agreement
from tidemill.streams.partition import Partition

TICK_MS_MAX = 1000
TICKS_IN_LAG = 4


class ReplicaRoles:
    """The roles of one broker."""

    def __init__(
        self,
        node_id: int,
        states: PartitionStates,
        fetchers: ReplicaFetchers,
        *,
        lag_max_ms: int,
        present: Callable[[int], bool],
    ) -> None:
        self._node_id = node_id
        self._states = states
        self._fetchers = fetchers
        self._lag_max_ms = lag_max_ms
        self._present = present

    @property
    def tick_ms(self) -> int:
        """How often `tick` is due."""
        return max(1, min(self._lag_max_ms // TICKS_IN_LAG, TICK_MS_MAX))

    async def assume(self, topic: Topic, info: PartitionInfo, partition: Partition) -> None:
        """Give the partition the role that the image says."""
        term = _term(info)
        key = (topic.topic_id, info.index)
        if info.leader == self._node_id:
            self._fetchers.drop(key)
            propose = partial(self._propose, topic.name, info.index)
            await partition.leader.lead(term, Agreement(propose, self._lag_max_ms, self._present))
            return
        await partition.follower.follow(term)
        if info.leader == NO_LEADER:
            self._fetchers.drop(key)
        else:
            self._fetchers.follow(Copy(topic.topic_id, partition), info.leader)

    def forget(self, topic_id: UUID, index: int) -> None:
        """Stop copying a partition that this broker no longer carries."""
        self._fetchers.drop((topic_id, index))

    def tick(self, partitions: Iterable[Partition]) -> None:
        """Look for followers that lag."""
        for partition in partitions:
            partition.leader.tick()

    async def close(self) -> None:
        """Stop all fetchers."""
        await self._fetchers.close()

    async def _propose(self, topic: str, index: int, term: Term, isr: tuple[int, ...]) -> Term:
        return _term(await self._states.propose_isr(topic, index, term.epoch, term.version, isr))


def _term(info: PartitionInfo) -> Term:
    return Term(info.leader, info.leader_epoch, info.version, info.replicas, info.isr)
