"""The records of a share partition by state."""

from tidemill.shares.core.in_flight import InFlight, in_flight, records_left
from tidemill.shares.core.record_ranges import DeliveryState, RecordRange


def test_records_are_counted_by_state_and_the_oldest_lock_is_found() -> None:
    ranges = [
        RecordRange(0, 4, DeliveryState.ACQUIRED, 1, "a", 1_700),
        RecordRange(5, 5, DeliveryState.ACKNOWLEDGED, 1),
        RecordRange(6, 8, DeliveryState.ACQUIRED, 1, "b", 1_250),
        RecordRange(9, 9, DeliveryState.AVAILABLE, 1),
        RecordRange(10, 11, DeliveryState.WAITING, 1, "", 5_000),
        RecordRange(12, 20, DeliveryState.ARCHIVED, 1),
    ]
    assert in_flight(ranges, now_ms=1_000, lock_ms=1_000) == InFlight(8, 1, 2, 750)


def test_without_locks_no_lock_is_old() -> None:
    assert in_flight([], now_ms=9_000, lock_ms=1_000) == InFlight(0, 0, 0, 0)


def test_a_lock_of_an_earlier_longer_duration_is_not_negative() -> None:
    ranges = [RecordRange(0, 0, DeliveryState.ACQUIRED, 1, "a", 60_000)]
    assert in_flight(ranges, now_ms=1_000, lock_ms=500).oldest_lock_ms == 0


def test_the_lag_begins_at_the_later_start_and_is_never_negative() -> None:
    assert records_left(100, 20, 10, 5) == 75
    assert records_left(100, 0, 10, 5) == 85
    assert records_left(10, 0, 12, 0) == 0
