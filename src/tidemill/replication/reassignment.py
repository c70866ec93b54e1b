"""Moves: elections that somebody asked for, and partitions that go to other brokers.

Any broker can be asked: it decides by the rules of `cluster/core/election` on the state that it has seen, and writes on
that state. What somebody else changed at the same time is looked at again. A move begins here; the controller ends it
when the new replicas are in sync.
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
LOOK_AGAIN_S = 1.0

Decide = Callable[[Topic, PartitionInfo], PartitionInfo | None]


class Reassignments:
    """Changes of leaders and replicas on demand."""

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
        """Let the first replica lead."""

        def decide(_: Topic, info: PartitionInfo) -> PartitionInfo | None:
            if info.leader == info.replicas[0]:
                raise ElectionNotNeeded(f"broker {info.leader} leads {name}-{index} already")
            after = election.prefer(info, live_brokers(self._metadata.image))
            if after is None:
                raise PreferredLeaderNotAvailable(f"broker {info.replicas[0]} is not in sync with {name}-{index}")
            return after

        return await self._change(name, index, decide)

    async def elect_unclean(self, name: str, index: int) -> PartitionInfo:
        """Let any replica lead that is there; what only the others had is lost."""

        def decide(_: Topic, info: PartitionInfo) -> PartitionInfo | None:
            live = live_brokers(self._metadata.image) | full_brokers(self._metadata.image)
            if info.leader in live:
                raise ElectionNotNeeded(f"broker {info.leader} leads {name}-{index}")
            if not set(info.replicas) & live:
                raise EligibleLeadersNotAvailable(f"no replica of {name}-{index} is there")
            return election.elect(info, live, unclean=True)

        return await self._change(name, index, decide)

    async def reassign(
        self, name: str, index: int, replicas: Sequence[int], *, same_number: bool = False
    ) -> PartitionInfo:
        """Begin to move a partition to these brokers."""

        def decide(topic: Topic, info: PartitionInfo) -> PartitionInfo | None:
            check_replicas(list(self._carriers()), index, replicas)
            if self._is_shared(topic):
                if len(replicas) > 1:  # a second one would copy rows into the table that they come from
                    raise InvalidReplicaAssignment(f"{name} is on servers that all brokers share; one broker leads it")
                return election.hand_to(info, replicas[0])
            now = len(info.replicas) - len(info.adding)
            if same_number and len(replicas) != now:
                raise InvalidReplicationFactor(f"{name}-{index} has {now} replicas, not {len(replicas)}")
            return election.reassign(info, tuple(replicas))

        return await self._change(name, index, decide)

    async def cancel(self, name: str, index: int) -> PartitionInfo:
        """Go back to where the partition was."""

        def decide(_: Topic, info: PartitionInfo) -> PartitionInfo | None:
            after = election.cancel(info)
            if after is None:
                raise NoReassignmentInProgress(f"{name}-{index} is not on its way")
            return after

        return await self._change(name, index, decide)

    def under_way(self) -> Iterator[tuple[Topic, PartitionInfo]]:
        """Partitions that are on their way."""
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
                raise UnknownTopicOrPartition(f"there is no partition {name[:60]}-{index}")
            info = topic.partitions[index]
            after = decide(topic, info)
            if after is None:
                return info
            written = await self._states.write(StateChange(topic, info, after))
            if written is not None:
                await self._metadata.caught_up(written)
                return after
            await self._metadata.until(partial(self._moved_on, name, index, info), LOOK_AGAIN_S)
        raise InvalidUpdateVersion(f"{name}-{index} is changed by somebody else all the time")

    def _moved_on(self, name: str, index: int, before: PartitionInfo) -> bool:
        topic = self._metadata.image.by_name.get(name)
        return topic is None or topic.partitions[index] != before
