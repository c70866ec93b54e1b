"""Compaction: keeps the last record of each key.

A pass over a partition has three steps. `plan` decides whether a pass is worth its cost, and up to which offset.
`KeyMap` records the last offset of each key between the clean part of the log and that offset. `Compactor` then
processes all batches in order from the log's start, and returns the replacement for each.

Rules for what is kept:

- The active segment, records above the last stable offset, and records younger than `min.compaction.lag.ms` are not
  touched. Every transaction below the last stable offset has ended, so aborted records are known and removed.
- A tombstone (no value) stays until `delete.retention.ms` after the pass that first found it, so that slow readers see
  it. That time is stored in the batch as its delete horizon (KIP-534).
- A marker stays while records of its transaction exist, and then until its own delete horizon.
- A batch that holds the last sequence of a producer stays, empty if need be (a marker stays whole). Otherwise a retry
  after a restart would be stored twice.
- The last batch of the pass stays too. Otherwise the log's end offset could move back.
- Offsets do not change. A batch that cannot be decoded stays unchanged, so that no data is lost.

An aborted transaction must leave the reader's list before its marker is removed. Otherwise a reader would wait for a
marker that does not exist, and drop later committed records of the same producer. `Compactor.emptied` lists such
transactions in the pass that finds no more of their records. Their markers are removed in a later pass. This also holds
when a crash restores the list.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.model.topic_settings import TopicSettings
from tidemill.records.compact import compact_batch, empty_batch
from tidemill.records.header import BatchHeader, Buffer, read_header
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.streams.core.aborted import AbortedRange
from tidemill.streams.core.producers import ProducerEntry
from tidemill.streams.core.retention import SegmentFacts

KEY_MAP_BYTES = 64 * 1024 * 1024
KEY_BYTES = 16  # bytes of a key's hash; a collision of 128 bits is not expected
ENTRY_BYTES = 200  # measured, with a margin: hash, offset and their share of the table
GROUP_OFFSETS_MAX = 2**31  # offsets are stored in 32 bits, relative to the segment's first
_UNREADABLE = (CorruptMessage, UnsupportedCompressionType)


class CompactionPlan(NamedTuple):
    """A pass that is worth its cost. It records keys from `dirty_offset` on and rewrites from the log's start on."""

    dirty_offset: int
    end_offset: int


def plan(
    segments: Sequence[SegmentFacts], settings: TopicSettings, clean_until: int, stable_offset: int, now_ms: int
) -> CompactionPlan | None:
    """Return what the next pass covers, or None when there is too little to do. The last segment is the active one."""
    closed = segments[:-1]
    if not settings.compacted or not closed:
        return None
    start_offset, end_offset = closed[0].base_offset, segments[-1].next_offset
    # After a truncation the clean part may end beyond the log. Then everything is dirty again.
    dirty_offset = clean_until if start_offset <= clean_until <= end_offset else start_offset
    clean = [segment for segment in closed if segment.next_offset <= dirty_offset]
    dirty = _cleanable(closed[len(clean) :], settings, stable_offset, now_ms)
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    if not dirty_bytes:
        return None
    ratio = dirty_bytes / (dirty_bytes + sum(segment.size_bytes for segment in clean))
    overdue = now_ms - dirty[0].first_append_ms > settings.max_compaction_lag_ms
    if ratio > settings.min_cleanable_dirty_ratio or overdue:
        return CompactionPlan(dirty_offset, dirty[-1].next_offset)
    return None


def _cleanable(
    segments: Sequence[SegmentFacts], settings: TopicSettings, stable_offset: int, now_ms: int
) -> list[SegmentFacts]:
    found: list[SegmentFacts] = []
    for segment in segments:
        young = now_ms - segment.largest_timestamp < settings.min_compaction_lag_ms
        if young or segment.next_offset > stable_offset:
            break
        found.append(segment)
    return found


def groups(segments: Sequence[SegmentFacts], segment_bytes: int) -> list[list[SegmentFacts]]:
    """Group adjacent segments to merge: as many as fit into the size of one."""
    found: list[list[SegmentFacts]] = []
    size = 0
    for segment in segments:
        fits = found and size + segment.size_bytes <= segment_bytes
        if fits and segment.next_offset - found[-1][0].base_offset <= GROUP_OFFSETS_MAX:
            found[-1].append(segment)
            size += segment.size_bytes
        else:
            found.append([segment])
            size = segment.size_bytes
    return found


class AbortedRecords:
    """Finds the aborted transaction of a batch."""

    __slots__ = ("_by_producer",)

    def __init__(self, ranges: Iterable[AbortedRange]) -> None:
        self._by_producer: dict[int, list[AbortedRange]] = {}
        for entry in sorted(ranges, key=lambda entry: entry.first_offset):
            self._by_producer.setdefault(entry.producer_id, []).append(entry)

    def of(self, header: BatchHeader) -> AbortedRange | None:
        """Return the aborted transaction that the batch (data or marker) belongs to."""
        if not header.transactional:
            return None
        ranges = self._by_producer.get(header.producer_id, [])
        index = bisect_right(ranges, header.base_offset, key=lambda entry: entry.first_offset) - 1
        return ranges[index] if index >= 0 and header.base_offset <= ranges[index].last_offset else None


class KeyMap:
    """The last offset of each key, in bounded memory."""

    __slots__ = ("_aborted", "_entries_max", "_offsets")

    def __init__(self, aborted: AbortedRecords, *, budget_bytes: int = KEY_MAP_BYTES) -> None:
        self._aborted = aborted
        self._entries_max = budget_bytes // ENTRY_BYTES
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def cover(self, batch: Buffer) -> bool:
        """Record the keys of the batch. Return False when they may not fit, so that the pass ends before this batch.

        The first batch is always accepted, so that every pass makes progress.
        """
        header = read_header(batch)
        if header.control or self._aborted.of(header):
            return True
        if self._offsets and len(self._offsets) + header.count > self._entries_max:
            return False
        try:
            found = {_hash(record.key): record.offset for record in read_records(batch) if record.key is not None}
        except _UNREADABLE:
            return True
        self._offsets.update(found)
        return True

    def is_last(self, key: bytes, offset: int) -> bool:
        """Whether no later record of the pass has this key."""
        return self._offsets.get(_hash(key), -1) <= offset


def _hash(key: bytes) -> bytes:
    return blake2b(key, digest_size=KEY_BYTES).digest()


class Compactor:
    """One pass over the batches of a partition. `replace` must get them in order, from the log's start."""

    def __init__(
        self,
        keys: KeyMap,
        aborted: AbortedRecords,
        producers: Mapping[int, ProducerEntry],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.emptied: list[AbortedRange] = []
        self._keys = keys
        self._aborted = aborted
        self._producers = producers
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms
        self._with_data: set[int] = set()  # producers whose transaction has batches before its marker

    def replace(self, batch: Buffer) -> Buffer | None:
        """Return the replacement for the batch: the same batch, one with fewer records, or None."""
        header = read_header(batch)
        if header.base_offset >= self._end_offset:
            return batch
        if header.control:
            return self._replace_marker(batch, header)
        if header.transactional:
            self._with_data.add(header.producer_id)
        keep_empty = self._holds_end(header)
        if self._aborted.of(header):
            return empty_batch(header) if keep_empty else None
        return self._replace_data(batch, header, keep_empty=keep_empty)

    def _replace_data(self, batch: Buffer, header: BatchHeader, *, keep_empty: bool) -> Buffer | None:
        horizon_ms = header.delete_horizon_ms
        tombstones_go = horizon_ms is not None and horizon_ms <= self._now_ms

        def keep(record: Record) -> bool:
            if record.key is None or (record.value is None and tombstones_go):
                return False
            return self._keys.is_last(record.key, record.offset)

        try:
            return compact_batch(batch, keep, keep_empty=keep_empty, delete_horizon_ms=self._new_horizon_ms)
        except _UNREADABLE:
            return batch

    def _replace_marker(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        if header.producer_id in self._with_data:
            self._with_data.discard(header.producer_id)
            return batch
        aborted = self._aborted.of(header)
        if aborted is not None:
            self.emptied.append(aborted)
        horizon_ms = header.delete_horizon_ms
        over = horizon_ms is not None and horizon_ms <= self._now_ms
        if over and aborted is None and not self._holds_end(header):
            return None
        try:
            return compact_batch(batch, lambda _: True, keep_empty=True, delete_horizon_ms=self._new_horizon_ms)
        except _UNREADABLE:
            return batch

    def _holds_end(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        producer = self._producers.get(header.producer_id) if header.has_producer else None
        if producer is None:
            return False
        if producer.batches:
            return producer.batches[-1].base_offset == header.base_offset
        return header.control and header.producer_epoch == producer.epoch
