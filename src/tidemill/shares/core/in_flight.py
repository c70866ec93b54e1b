"""How many records of a share partition are in each state between its start and its end, for views and metrics."""

from collections.abc import Iterable
from typing import NamedTuple

from tidemill.shares.core.record_ranges import DeliveryState, RecordRange


class InFlight(NamedTuple):
    """The records that were delivered and are not done, by state."""

    acquired: int = 0
    available: int = 0
    """Released, or their lock has ended: the next fetch gets them."""
    waiting: int = 0
    """They wait for their retry."""
    oldest_lock_ms: int = 0
    """The age of the oldest lock, since it was taken or renewed; 0 without locks."""


def in_flight(ranges: Iterable[RecordRange], now_ms: int, lock_ms: int) -> InFlight:
    """Count the records of ranges. The age assumes that locks were taken with the current duration."""
    acquired = available = waiting = 0
    first_until_ms = now_ms + lock_ms
    for each in ranges:
        if each.state == DeliveryState.ACQUIRED:
            acquired += each.size
            first_until_ms = min(first_until_ms, each.until_ms)
        elif each.state == DeliveryState.AVAILABLE:
            available += each.size
        elif each.state == DeliveryState.WAITING:
            waiting += each.size
    return InFlight(acquired, available, waiting, now_ms + lock_ms - first_until_ms)


def records_left(end_offset: int, log_start_offset: int, start_offset: int, finished: int) -> int:
    """The lag: the records from the start to the end of the log that are not done."""
    return max(0, end_offset - max(start_offset, log_start_offset) - finished)
