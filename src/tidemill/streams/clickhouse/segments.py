"""The segments of a log as offset ranges, for retention and compaction.

All partitions share one table, so a segment is only a range of offsets with its facts. The list is saved at each
checkpoint. Batches after the last checkpoint are counted again from the rows.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidemill.records.header import BatchHeader
from tidemill.streams.core.retention import SegmentFacts

NO_TIMESTAMP = -1


class Counted(NamedTuple):
    """The facts of a batch, as read from the rows."""

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int
    appended_ms: int


class OffsetSegment:
    """A range of offsets."""

    __slots__ = ("base_offset", "first_append_ms", "largest_timestamp", "size_bytes")

    def __init__(self, base_offset: int, size_bytes: int = 0, largest: int = NO_TIMESTAMP, first_ms: int = 0) -> None:
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.largest_timestamp = largest
        self.first_append_ms = first_ms


class Pieces:
    """All segments, oldest first. The last one is always active."""

    def __init__(self, pieces: Iterable[OffsetSegment] = ()) -> None:
        self._pieces = list(pieces) or [OffsetSegment(0)]

    @property
    def size_bytes(self) -> int:
        """The size of all batches in bytes, as produced."""
        return sum(piece.size_bytes for piece in self._pieces)

    def facts(self, end_offset: int) -> list[SegmentFacts]:
        """Return the facts that retention and compaction need."""
        ends = [piece.base_offset for piece in self._pieces[1:]] + [end_offset]
        return [
            SegmentFacts(piece.base_offset, end, piece.size_bytes, piece.largest_timestamp, piece.first_append_ms)
            for piece, end in zip(self._pieces, ends, strict=True)
        ]

    def add(self, headers: Sequence[BatchHeader], now_ms: int, segment_bytes: int) -> None:
        """Count batches that were appended together."""
        size = sum(header.size for header in headers)
        active = self._pieces[-1]
        if active.size_bytes and active.size_bytes + size > segment_bytes:
            active = self.roll(headers[0].base_offset)
        if not active.size_bytes:
            active.first_append_ms = now_ms
        active.size_bytes += size
        active.largest_timestamp = max(active.largest_timestamp, *(header.max_timestamp for header in headers))

    def recount(self, batches: Iterable[Counted], segment_bytes: int) -> None:
        """Count batches that are in the table already."""
        for batch in batches:
            active = self._pieces[-1]
            if active.size_bytes and active.size_bytes + batch.size_bytes > segment_bytes:
                active = self.roll(batch.base_offset)
            if not active.size_bytes:
                active.first_append_ms = batch.appended_ms
            active.size_bytes += batch.size_bytes
            active.largest_timestamp = max(active.largest_timestamp, batch.max_timestamp)

    def roll(self, base_offset: int) -> OffsetSegment:
        """Start a segment, unless the last one is empty."""
        if self._pieces[-1].size_bytes:
            self._pieces.append(OffsetSegment(base_offset))
        return self._pieces[-1]

    def trim(self, start_offset: int, end_offset: int) -> None:
        """Remove segments that are entirely before the start."""
        ends = [piece.base_offset for piece in self._pieces[1:]]
        del self._pieces[: sum(end <= start_offset for end in ends)]
        if start_offset == end_offset and self._pieces[-1].size_bytes:
            self._pieces = [OffsetSegment(end_offset)]

    def truncate(self, end_offset: int) -> int:
        """Remove the segments from the one with `end_offset` on. Return the offset from which to count again."""
        kept = [piece for piece in self._pieces if piece.base_offset < end_offset]
        begin = kept.pop().base_offset if kept else end_offset
        self._pieces = [*kept, OffsetSegment(begin)]
        return begin

    def has(self, base_offset: int, end_offset: int) -> bool:
        """Whether closed segments exist between these offsets, the first of them at `base_offset`."""
        return any(piece.base_offset == base_offset < end_offset for piece in self._pieces[:-1])

    def replace(self, base_offset: int, end_offset: int, size_bytes: int, largest: int) -> None:
        """Merge the closed segments between these offsets."""
        old = [piece for piece in self._pieces[:-1] if base_offset <= piece.base_offset < end_offset]
        place = self._pieces.index(old[0])
        merged = OffsetSegment(base_offset, size_bytes, largest, old[0].first_append_ms)
        self._pieces[place : place + len(old)] = [merged] if size_bytes else []

    def dump(self) -> str:
        """Return the segments as text, for the checkpoint."""
        return json.dumps([(p.base_offset, p.size_bytes, p.largest_timestamp, p.first_append_ms) for p in self._pieces])

    @classmethod
    def load(cls, text: str) -> "Pieces":
        """Restore the segments that `dump` wrote."""
        return cls(OffsetSegment(*line) for line in json.loads(text or "[]"))
