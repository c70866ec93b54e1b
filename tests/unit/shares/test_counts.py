"""The counts of deliveries, and their bound."""

from tidemill.shares.core.record_ranges import DeliveryState
from tidemill.shares.core.share_partition import AcquiredRange, StateBatch
from tidemill.shares.counts import OTHERS, PAIRS_MAX, CountsByPair, ShareCounts


def test_deliveries_are_counted_by_their_number() -> None:
    counts = ShareCounts()
    counts.deliver(
        [AcquiredRange(0, 9, 1), AcquiredRange(10, 10, 3), AcquiredRange(11, 12, 4), AcquiredRange(13, 13, 9)]
    )
    assert counts.attempts == [10, 0, 1, 3]


def test_records_are_gone_however_their_last_lock_ended() -> None:
    counts = ShareCounts()
    counts.settle([StateBatch(0, 1, DeliveryState.ARCHIVED, 1), StateBatch(2, 2, DeliveryState.ACKNOWLEDGED, 1)])
    counts.expire([StateBatch(3, 5, DeliveryState.ARCHIVED, 5), StateBatch(6, 6, DeliveryState.AVAILABLE, 1)])
    counts.leave([StateBatch(7, 7, DeliveryState.ARCHIVED, 5), StateBatch(8, 9, DeliveryState.AVAILABLE, 1)])
    assert (counts.accepted, counts.archived, counts.expired, counts.gone) == (1, 2, 4, 6)


def test_further_groups_are_counted_together() -> None:
    every = CountsByPair()
    for number in range(PAIRS_MAX + 3):
        every.of(f"g{number}", "orders").deliver([AcquiredRange(0, 0, 1)])
    assert len(every.known) == PAIRS_MAX + 1
    assert every.known[OTHERS].attempts[0] == 3
    assert every.of("g0", "orders").attempts[0] == 1
