"""Merges the records of partitions by time, and reads no more of a partition than a page needs.

Each partition has a cursor that loads records in the order of reading. Within a partition the order is that of the
offsets, whatever the times are. A cursor that has not loaded records yet has a bound: no record of it comes earlier in
the order of reading. So a page of the newest records of a thousand partitions opens only those with recent records.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import Protocol

from tidemill.servers.http.core.record_scan import KeptRecord, ScanBudget


class RecordCursor(Protocol):
    """Reads one partition in one direction."""

    partition: int
    rows: deque[KeptRecord]
    """Loaded records that are not on a page yet."""
    bound: int
    """The earliest place, by time, of what is not loaded."""
    is_done: bool
    """Whether nothing is left to load."""
    was_loaded: bool

    def load(self) -> None:
        """Load more records, or find that nothing is left."""


def merged_page(
    cursors: Sequence[RecordCursor], count: int, budget: ScanBudget, *, is_backward: bool
) -> list[KeptRecord]:
    """Up to `count` records. It is shorter if the partitions have no more, or if the budget is spent."""
    found: list[KeptRecord] = []
    heap = [(_place(cursor, is_backward=is_backward), number) for number, cursor in enumerate(cursors)]
    heapify(heap)
    has_loaded = False
    while heap and len(found) < count:
        number = heap[0][1]
        cursor = cursors[number]
        if cursor.rows:
            found.append(cursor.rows.popleft())
        elif cursor.is_done:
            heappop(heap)
            continue
        elif has_loaded and budget.limit is not None:
            break
        else:
            cursor.load()
            has_loaded = True
        heapreplace(heap, (_place(cursor, is_backward=is_backward), number))
    return found


def _place(cursor: RecordCursor, *, is_backward: bool) -> int:
    time = cursor.rows[0].timestamp if cursor.rows else cursor.bound
    return -time if is_backward else time
