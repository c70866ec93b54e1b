"""Caches the newest batches of all logs in memory, so that consumers at the end of a log cause no file access.

All logs share one byte budget, and the oldest batch is evicted first. The buffers are those of the produce requests, so
that caching usually needs no copy. A log that is truncated, closed or deleted releases its bytes at once.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Sequence

from tidemill.records.header import BatchHeader, Buffer

TAIL_BYTES_MAX = 16 * 1024 * 1024
BATCH_BYTES_MAX = 1024 * 1024
BATCHES_PER_READ_MAX = 256
RELEASED_MAX = 1_000  # released batches in the budget's queue before it is rebuilt without them
# A view that covers less than half of its frame is copied, because it would keep the whole frame alive.
FRAME_SHARE_MIN = 2


class _Kept:
    __slots__ = ("base_offset", "batch", "next_offset", "tail")

    def __init__(self, tail: "Tail", base_offset: int, next_offset: int, batch: Buffer) -> None:
        self.tail: Tail | None = tail
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.batch: Buffer = batch


class TailBudget:
    """The byte budget that all tails share."""

    __slots__ = ("_kept", "_limit", "_released", "size")

    def __init__(self, limit: int = TAIL_BYTES_MAX) -> None:
        self._limit = limit
        self._kept: deque[_Kept] = deque()
        self._released = 0
        self.size = 0

    def take(self, kept: _Kept) -> None:
        """Add a batch and evict the oldest ones beyond the limit."""
        self._kept.append(kept)
        self.size += len(kept.batch)
        while self.size > self._limit:
            oldest = self._kept.popleft()
            self.size -= len(oldest.batch)
            if oldest.tail is not None:
                oldest.tail.drop_oldest()
            else:
                self._released -= 1

    def release(self, kept: Collection[_Kept]) -> None:
        """Return the bytes of these batches. They stay in the queue, empty, until there are many of them."""
        for each in kept:
            self.size -= len(each.batch)
            each.tail, each.batch = None, b""
        self._released += len(kept)
        if self._released > max(RELEASED_MAX, len(self._kept) // 2):
            self._kept = deque(each for each in self._kept if each.tail is not None)
            self._released = 0


class Tail:
    """The newest batches of one log, without a gap up to its end."""

    __slots__ = ("_batches", "_budget")

    def __init__(self, budget: TailBudget) -> None:
        self._budget = budget
        self._batches: deque[_Kept] = deque()

    def extend(self, headers: Sequence[BatchHeader], batches: Sequence[Buffer]) -> None:
        """Cache batches that were written together. Views of one frame share it, so their sizes are added up."""
        shares: dict[int, int] = {}
        for batch in batches:
            if isinstance(batch, memoryview):
                frame = id(batch.obj)
                shares[frame] = shares.get(frame, 0) + batch.nbytes
        for header, batch in zip(headers, batches, strict=True):
            if isinstance(batch, memoryview):
                small = shares[id(batch.obj)] * FRAME_SHARE_MIN < memoryview(batch.obj).nbytes
                self.add(header, bytes(batch) if small else batch)
            else:
                self.add(header, batch)

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        """Cache one batch, with the whole buffer that it is a view of."""
        if len(batch) > BATCH_BYTES_MAX:
            self.clear()
            return
        kept = _Kept(self, header.base_offset, header.next_offset, batch)
        self._batches.append(kept)
        self._budget.take(kept)

    def drop_oldest(self) -> None:
        """Evict the oldest batch in favour of another log."""
        self._batches.popleft()

    def clear(self) -> None:
        """Drop all batches, because the log was truncated, closed or deleted."""
        self._budget.release(self._batches)
        self._batches.clear()

    def read(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> list[Buffer] | None:
        """Return the result of `StreamLog.read`, or None when it must come from the file."""
        if not self._batches or offset < self._batches[0].base_offset:
            return None
        batches = self._batches
        found: list[Buffer] = []
        remaining = max_bytes
        first = bisect_right(batches, offset, key=_next_offset)
        for place in range(first, min(len(batches), first + BATCHES_PER_READ_MAX)):
            kept = batches[place]
            remaining -= len(kept.batch)
            if kept.base_offset >= end_offset or (remaining < 0 and (found or not at_least_one)):
                break
            found.append(kept.batch)
        return found


def _next_offset(kept: _Kept) -> int:
    return kept.next_offset
