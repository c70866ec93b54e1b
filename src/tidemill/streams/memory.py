"""A StreamLog in memory, for tests and for brokers that may lose their data.

Tests compare the segment log with this one, so keep the code simple enough to be obviously correct. A flush always
succeeds. A checkpoint lives as long as the store.
"""

from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tidemill.model.topic_settings import TopicSettings
from tidemill.records.header import BatchHeader, Buffer, read_header
from tidemill.streams.core.retention import SegmentFacts
from tidemill.streams.interface import INLINE_BYTES_MAX, Rewritten, Saved, StoredBatch

NO_TIMESTAMP = -1
T = TypeVar("T")


class _MemorySegment:
    """The counterpart of a segment on disk."""

    def __init__(self, base_offset: int, now_ms: int) -> None:
        self.base_offset = base_offset
        self.first_append_ms = now_ms
        self.batches: list[StoredBatch] = []
        self.size_bytes = 0
        self.largest_timestamp = NO_TIMESTAMP

    def extend(self, batches: Iterable[StoredBatch]) -> None:
        """Append batches."""
        for stored in batches:
            self.batches.append(stored)
            self.size_bytes += stored.header.size
            self.largest_timestamp = max(self.largest_timestamp, stored.header.max_timestamp)

    def reset(self, batches: Iterable[StoredBatch]) -> None:
        """Replace all batches."""
        self.batches, self.size_bytes, self.largest_timestamp = [], 0, NO_TIMESTAMP
        self.extend(batches)


class MemoryLog:
    """The batches of one partition, in lists."""

    inline_bytes_max = INLINE_BYTES_MAX
    away = False

    def __init__(self, settings: TopicSettings) -> None:
        self.settings = settings
        self._start_offset = 0
        self._end_offset = 0
        self._pieces = [_MemorySegment(0, 0)]
        self._saved: Saved | None = None

    @property
    def start_offset(self) -> int:
        """The first readable offset."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next batch."""
        return self._end_offset

    @property
    def size_bytes(self) -> int:
        """The size of all batches in bytes."""
        return sum(piece.size_bytes for piece in self._pieces)

    @property
    def failed(self) -> BaseException | None:
        """Always None, because memory does not fail."""
        return None

    @property
    def saved(self) -> Saved | None:
        """The last saved state."""
        return self._saved

    def append(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Append the batches."""
        active = self._pieces[-1]
        if active.batches and active.size_bytes + sum(map(len, batches)) > self.settings.segment_bytes:
            active = self._begin(now_ms)
        if not active.batches:
            active.first_append_ms = now_ms
        active.extend(map(StoredBatch, headers, batches))
        self._end_offset = headers[-1].next_offset

    async def append_aside(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Append the batches. Memory does not block, so no thread is needed."""
        self.append(batches, headers, now_ms)

    async def flush(self) -> None:
        """Do nothing, because memory needs no flush."""

    async def read(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> list[Buffer]:
        """Return whole batches within the limits."""
        found: list[Buffer] = []
        remaining = max_bytes
        for header, batch in self._from(offset):
            first = at_least_one and not found
            if header.base_offset >= end_offset or (header.size > remaining and not first):
                break
            found.append(batch)
            remaining -= header.size
        return found

    async def scan(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """Yield every batch from `offset` on."""
        for stored in self._from(offset):
            yield stored

    def outline(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """Yield every batch from `offset` on. Leaving out the records would save nothing here."""
        return self.scan(offset)

    async def before_time(self, timestamp: int) -> int:
        """Return the base offset of the first batch that reaches `timestamp`."""
        for stored in self._from(self._start_offset):
            if stored.header.max_timestamp >= timestamp:
                return max(stored.header.base_offset, self._start_offset)
        return self._end_offset

    def segments(self) -> list[SegmentFacts]:
        """Return the segments, oldest first."""
        ends = [piece.base_offset for piece in self._pieces[1:]] + [self._end_offset]
        return [
            SegmentFacts(piece.base_offset, end, piece.size_bytes, piece.largest_timestamp, piece.first_append_ms)
            for piece, end in zip(self._pieces, ends, strict=True)
        ]

    async def roll(self, now_ms: int) -> None:
        """Start a new segment unless the last one is empty."""
        if self._pieces[-1].batches:
            self._begin(now_ms)

    async def trim(self, start_offset: int, state: dict[str, Any]) -> None:
        """Drop the segments before the new start."""
        self._start_offset = max(self._start_offset, start_offset)
        ends = [piece.base_offset for piece in self._pieces[1:]]
        dropped = sum(end <= self._start_offset for end in ends)
        del self._pieces[:dropped]
        if self._start_offset == self._end_offset and self._pieces[-1].batches:
            self._pieces = [_MemorySegment(self._end_offset, 0)]
        await self.save(state)

    async def truncate(self, end_offset: int) -> None:
        """Drop the batches at and after the new end."""
        for stored in self._from(end_offset):
            self._end_offset = max(stored.header.base_offset, self._start_offset)
            break
        for piece in self._pieces:
            piece.reset([stored for stored in piece.batches if stored.header.next_offset <= self._end_offset])
        self._pieces = [piece for piece in self._pieces if piece.batches] or [_MemorySegment(self._end_offset, 0)]
        self._saved = None

    async def reset(self, offset: int) -> None:
        """Drop all batches."""
        self._start_offset = self._end_offset = offset
        self._pieces = [_MemorySegment(offset, 0)]
        self._saved = None

    async def rewrite(self, base_offset: int, end_offset: int, batches: AsyncIterator[Sequence[Buffer]]) -> Rewritten:
        """Collect the new batches."""
        old = [piece for piece in self._pieces[:-1] if base_offset <= piece.base_offset < end_offset]
        kept = [StoredBatch(read_header(batch), batch) async for piece in batches for batch in piece]
        return Rewritten(base_offset, (old, kept))

    async def swap(self, rewritten: Rewritten) -> None:
        """Replace the old batches with the rewritten ones."""
        old, batches = rewritten.content
        if not all(piece in self._pieces[:-1] for piece in old):
            return
        place = self._pieces.index(old[0])
        old[0].reset(batches)
        self._pieces[place : place + len(old)] = old[:1] if batches else []

    async def discard(self, rewritten: Rewritten) -> None:
        """Do nothing, because nothing was stored."""

    async def aside(self, call: Callable[[], T]) -> T:
        """Run the call here, because this log has no threads."""
        return call()

    async def sweep(self, now_ms: int, *, by_time: bool = True) -> None:
        """Do nothing, because no file waits for deletion."""

    async def save(self, state: dict[str, Any]) -> None:
        """Keep the state."""
        self._saved = Saved(self._end_offset, state)

    async def close(self) -> None:
        """Do nothing, because no resource is held."""

    async def delete(self) -> None:
        """Drop everything."""
        self._start_offset = self._end_offset = 0
        self._pieces = [_MemorySegment(0, 0)]
        self._saved = None

    def _begin(self, now_ms: int) -> _MemorySegment:
        piece = _MemorySegment(self._end_offset, now_ms)
        self._pieces.append(piece)
        return piece

    def _from(self, offset: int) -> Iterator[StoredBatch]:
        for piece in self._pieces:
            first = bisect_right(piece.batches, offset, key=lambda stored: stored.header.next_offset)
            for place in range(first, len(piece.batches)):
                yield piece.batches[place]


class MemoryLogStore:
    """Logs in memory, by topic and partition."""

    missing: Sequence[str] = ()
    full = False

    def __init__(self) -> None:
        self._logs: dict[tuple[str, int], MemoryLog] = {}

    async def open(
        self,
        topic: str,
        index: int,
        settings: TopicSettings,
        *,
        topic_id: str = "",  # noqa: ARG002 - no other broker writes here
        leader_epoch: int = 0,  # noqa: ARG002 - no other broker writes here
        believe: bool = True,  # noqa: ARG002 - memory is not damaged
        given_offset: int = 0,  # noqa: ARG002 - memory does not lose files
    ) -> MemoryLog:
        """Return the log of a partition. A second call returns the same log."""
        log = self._logs.get((topic, index))
        if log is None:
            log = self._logs[topic, index] = MemoryLog(settings)
        return log

    def lost_from(self, topic: str, index: int) -> int | None:  # noqa: ARG002 - memory has no files
        """Always None, because nothing is lost."""
        return None

    async def free_reserve(self) -> bool:
        """Always False, because there is no reserve."""
        return False

    async def begin_at(self, topic: str, index: int, offset: int) -> None:
        """Do nothing, because memory has no folders that could be missing."""

    async def close(self) -> None:
        """Do nothing, because no resource is held."""
