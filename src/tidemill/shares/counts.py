"""What has become of deliveries on this broker since its start, for each group and topic."""

from collections.abc import Sequence

from tidemill.shares.core.record_ranges import DeliveryState
from tidemill.shares.core.share_partition import AcquiredRange, StateBatch

PAIRS_MAX = 500
"""The most pairs of group and topic that are counted. Further ones are counted together, under `OTHERS`."""
OTHERS = ("", "")
ATTEMPTS = ("1", "2", "3", "4 or more")
"""How deliveries are counted by their number."""


class ShareCounts:
    """The deliveries to one group from one topic."""

    def __init__(self) -> None:
        self.attempts = [0] * len(ATTEMPTS)
        self.accepted = 0
        self.released = 0
        self.archived = 0
        self.expired = 0
        self.gone = 0
        """Records that are never delivered again, although no member has accepted them."""

    def deliver(self, ranges: Sequence[AcquiredRange]) -> None:
        """Count deliveries."""
        for each in ranges:
            attempt = min(max(each.deliveries, 1), len(ATTEMPTS))
            self.attempts[attempt - 1] += each.last - each.first + 1

    def settle(self, batches: Sequence[StateBatch]) -> None:
        """Count the results of an acknowledgement."""
        self.accepted += _records(batches, DeliveryState.ACKNOWLEDGED)
        self.released += _records(batches, DeliveryState.AVAILABLE)
        self.archived += _records(batches, DeliveryState.ARCHIVED)
        self.gone += _records(batches, DeliveryState.ARCHIVED)

    def expire(self, batches: Sequence[StateBatch]) -> None:
        """Count locks that ended by themselves."""
        self.expired += sum(batch.last - batch.first + 1 for batch in batches)
        self.gone += _records(batches, DeliveryState.ARCHIVED)

    def leave(self, batches: Sequence[StateBatch]) -> None:
        """Count locks that ended with their member."""
        self.gone += _records(batches, DeliveryState.ARCHIVED)


def _records(batches: Sequence[StateBatch], state: DeliveryState) -> int:
    return sum(batch.last - batch.first + 1 for batch in batches if batch.state == state)


class CountsByPair:
    """The counts of all groups and topics."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], ShareCounts] = {}

    def of(self, group_id: str, topic: str) -> ShareCounts:
        """The counts of a pair."""
        pair = group_id, topic
        if pair not in self.known and len(self.known) >= PAIRS_MAX:
            pair = OTHERS
        return self.known.setdefault(pair, ShareCounts())
