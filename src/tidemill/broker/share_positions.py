"""Where share groups are in the partitions that this broker knows: from the leader, and from the share coordinator.

The leader of a partition has the locks, while the group has members. The share coordinator has what is stored, also of
groups without members, but it knows the end only of partitions that it has a replica of.
"""

from collections.abc import Callable, Iterator

from tidemill.broker.cluster_view import ClusterView
from tidemill.broker.loop_turns import LoopTurns
from tidemill.broker.partitions import Partitions
from tidemill.shares.coordinator import ShareCoordinator
from tidemill.shares.core.durable_state import NO_START, DurableState, ShareKey
from tidemill.shares.core.in_flight import records_left
from tidemill.shares.core.share_position import SharePosition
from tidemill.shares.live_partition import LiveSharePartition
from tidemill.shares.partitions import SharePartitions

POSITIONS_MAX = 20_000
"""The most share partitions of one view."""


class SharePositions:
    """Reads the positions from memory."""

    def __init__(
        self,
        shares: SharePartitions,
        coordinator: ShareCoordinator,
        view: ClusterView,
        partitions: Partitions,
        coordinator_of: Callable[[ShareKey], int],
    ) -> None:
        self._shares = shares
        self._coordinator = coordinator
        self._view = view
        self._partitions = partitions
        self._coordinator_of = coordinator_of

    async def all(self, group_id: str | None = None) -> list[SharePosition]:
        """The positions of all groups, or of one, in turns."""
        return [each async for each in LoopTurns().over(self._each(group_id))]

    def now(self) -> list[SharePosition]:
        """The positions of all groups at this moment."""
        return list(self._each(None))

    def _each(self, group_id: str | None) -> Iterator[SharePosition]:
        stored = [each for each in self._coordinator.stored() if group_id in (None, each[0].group_id)]
        keys = {key for key, _ in stored}
        for key, state in stored[:POSITIONS_MAX]:
            topic = self._view.topic_name(key.topic_id)
            live = self._shares.current(key)
            if topic is not None:
                yield self._of_state(key, topic, state) if live is None else _of_leader(live, topic, True)
        for live in list(self._shares.opened())[:POSITIONS_MAX]:
            topic = self._view.topic_name(live.key.topic_id)
            is_wanted = group_id in (None, live.key.group_id) and live.key not in keys and live.is_current
            if topic is not None and is_wanted:
                yield _of_leader(live, topic, not self._coordinator_has_replica(live.key, topic))

    def _of_state(self, key: ShareKey, topic: str, state: DurableState) -> SharePosition:
        replica = self._partitions.find(topic, key.partition)
        start = None if state.start_offset == NO_START else state.start_offset
        end = None if replica is None else replica.high_watermark
        lag = None
        if replica is not None and start is not None:
            lag = records_left(replica.high_watermark, replica.log_start_offset, start, state.finished)
        return SharePosition(key.group_id, topic, key.partition, start, end, lag, None, True)

    def _coordinator_has_replica(self, key: ShareKey, topic: str) -> bool:
        known = self._view.topic(topic)
        if known is None or key.partition >= len(known.partitions):
            return False
        return self._coordinator_of(key) in known.partitions[key.partition].replicas


def _of_leader(live: LiveSharePartition, topic: str, counts_lag: bool) -> SharePosition:
    key, end = live.key, live.log.end_offset(committed=False)
    start = max(live.core.start_offset, live.log.start_offset)
    return SharePosition(key.group_id, topic, key.partition, start, end, live.lag, live.in_flight, counts_lag)
