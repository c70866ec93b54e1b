"""Caches batches in memory: the newest of each log, and batches prefetched for readers of old records.

A consumer at the end of a topic reads from this cache and causes no query. One budget bounds the memory of all logs.
The oldest entries are evicted first.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from tidemill.records.header import Buffer
from tidemill.streams.interface import StoredBatch

WINDOW_BYTES_MAX = 64 * 1024 * 1024


class BatchWindow:
    """Consecutive batches without a gap, up to `next_offset`."""

    __slots__ = ("batches", "next_offset")

    def __init__(self, batches: Iterable[StoredBatch] = (), next_offset: int = 0) -> None:
        self.batches: deque[StoredBatch] = deque(batches)
        self.next_offset = next_offset

    def covers(self, offset: int) -> bool:
        """Whether the window has the batch with `offset`."""
        return bool(self.batches) and self.batches[0].header.base_offset <= offset < self.next_offset

    def from_offset(self, offset: int) -> list[StoredBatch]:
        """Return the batches from the one with `offset` on."""
        batches = list(self.batches)
        return batches[bisect_right(batches, offset, key=lambda stored: stored.header.next_offset) :]


class CacheBudget:
    """The memory budget that all windows share."""

    def __init__(self, limit_bytes: int = WINDOW_BYTES_MAX) -> None:
        self._limit_bytes = limit_bytes
        self._held: deque[tuple[BatchWindow, StoredBatch]] = deque()
        self._bytes = 0

    def hold(self, window: BatchWindow, batches: Iterable[StoredBatch]) -> None:
        """Count batches at the end of a window, and evict the oldest batches of all windows."""
        for stored in batches:
            self._held.append((window, stored))
            self._bytes += len(stored.batch)
        while self._bytes > self._limit_bytes:
            window, stored = self._held.popleft()
            self._bytes -= len(stored.batch)
            if window.batches and window.batches[0] is stored:
                window.batches.popleft()


def cut(batches: Iterable[StoredBatch], end_offset: int, max_bytes: int, *, at_least_one: bool) -> list[Buffer]:
    """Return as many of these batches as a reader requested."""
    found: list[Buffer] = []
    remaining = max_bytes
    for header, batch in batches:
        first = at_least_one and not found
        if header.base_offset >= end_offset or (header.size > remaining and not first):
            break
        found.append(batch)
        remaining -= header.size
    return found
