"""Leader elections and reassignments that a client requests.

Any broker can process such a request. It decides by the rules of `cluster/core/election` on the state that it has seen,
and its write succeeds only on that state. When another broker changed the partition at the same time, this broker
decides again. A reassignment starts here. The controller finishes it when the new replicas are in sync.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from tidemill.cluster.core import election
from tidemill.cluster.core.changes import StateChange, full_brokers, live_brokers, preferred
from tidemill.cluster.core.image import PartitionInfo, Topic
from tidemill.cluster.core.placement import check_replicas
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.cluster.partition_states import States
from tidemill.model.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidUpdateVersion,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)

TRIES_MAX = 5
RETRY_S = 1.0

Decide = Callable[[Topic, PartitionInfo], PartitionInfo | None]


class Reassignments:
    """Changes leaders and replicas on request."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        states: States,
        carriers: Callable[[], Iterable[int]],
        is_shared: Callable[[Topic], bool],
    ) -> None:
        self._metadata = metadata
        self._is_shared = is_shared
        self._states = states
        self._carriers = carriers

    async def elect_preferred(self, name: str, index: int) -> PartitionInfo:
        """Make the first replica the leader."""

        def decide(_: Topic, info: PartitionInfo) -> PartitionInfo | None:
            if info.leader == info.replicas[0]:
                raise ElectionNotNeeded(f"broker {info.leader} already leads {name}-{index}")
            after = election.prefer(info, live_brokers(self._metadata.image))
            if after is None:
                raise PreferredLeaderNotAvailable(f"broker {info.replicas[0]} is not in sync with {name}-{index}")
            return after

        return await self._change(name, index, decide)

    async def elect_unclean(self, name: str, index: int) -> PartitionInfo:
        """Make any live replica the leader; records that only the other replicas had are lost."""

        def decide(_: Topic, info: PartitionInfo) -> PartitionInfo | None:
            live = live_brokers(self._metadata.image) | full_brokers(self._metadata.image)
            if info.leader in live:
                raise ElectionNotNeeded(f"broker {info.leader} already leads {name}-{index}")
            if not set(info.replicas) & live:
                raise EligibleLeadersNotAvailable(f"no replica of {name}-{index} is alive; start one of its brokers")
            return election.elect(info, live, unclean=True)

        return await self._change(name, index, decide)

    async def reassign(
        self, name: str, index: int, replicas: Sequence[int], *, same_number: bool = False
    ) -> PartitionInfo:
        """Start to move a partition to these brokers."""

        def decide(topic: Topic, info: PartitionInfo) -> PartitionInfo | None:
            check_replicas(list(self._carriers()), index, replicas)
            if self._is_shared(topic):
                if len(replicas) > 1:  # a second replica would copy rows into the table they come from
                    raise InvalidReplicaAssignment(
                        f"{name} is stored on servers that all brokers share; give one broker"
                    )
                return election.hand_to(info, replicas[0])
            now = len(info.replicas) - len(info.adding)
            if same_number and len(replicas) != now:
                raise InvalidReplicationFactor(f"{name}-{index} has {now} replicas, not {len(replicas)}")
            return election.reassign(info, tuple(replicas))

        return await self._change(name, index, decide)

    async def cancel(self, name: str, index: int) -> PartitionInfo:
        """Cancel a reassignment and restore the replicas from before it."""

        def decide(_: Topic, info: PartitionInfo) -> PartitionInfo | None:
            after = election.cancel(info)
            if after is None:
                raise NoReassignmentInProgress(f"{name}-{index} is not being reassigned")
            return after

        return await self._change(name, index, decide)

    def under_way(self) -> Iterator[tuple[Topic, PartitionInfo]]:
        """Partitions whose reassignment has not finished."""
        for topic in self._metadata.image.by_name.values():
            for info in topic.partitions:
                if info.adding or info.removing:
                    yield topic, info

    def not_preferred(self) -> list[tuple[str, int]]:
        """Partitions that their first replica could lead and does not."""
        return [(change.topic.name, change.before.index) for change in preferred(self._metadata.image)]

    async def _change(self, name: str, index: int, decide: Decide) -> PartitionInfo:
        for _ in range(TRIES_MAX):
            topic = self._metadata.image.by_name.get(name)
            if topic is None or not 0 <= index < len(topic.partitions):
                raise UnknownTopicOrPartition(f"partition {name[:60]}-{index} does not exist")
            info = topic.partitions[index]
            after = decide(topic, info)
            if after is None:
                return info
            written = await self._states.write(StateChange(topic, info, after))
            if written is not None:
                await self._metadata.caught_up(written)
                return after
            await self._metadata.until(partial(self._has_changed, name, index, info), RETRY_S)
        raise InvalidUpdateVersion(f"{name}-{index} was changed by other brokers {TRIES_MAX} times in a row; try again")

    def _has_changed(self, name: str, index: int, before: PartitionInfo) -> bool:
        topic = self._metadata.image.by_name.get(name)
        return topic is None or topic.partitions[index] != before
