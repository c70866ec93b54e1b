"""Reads the records of one partition through a Kafka client, forward or backward, for a thread.

Kafka serves records forward only. A backward cursor reads ranges of offsets from the end to the start, larger ones as
long as it finds nothing. Everything is bounded: the records that wait for a page, the bytes of one request, and, by
the budget, the whole scan.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidemill.client.kafka.client import EARLIEST, KafkaClient
from tidemill.model.errors import CorruptMessage, OffsetOutOfRange
from tidemill.model.topics import TopicPartition
from tidemill.servers.http.core.record_scan import (
    LOOKS_PER_CHECK,
    WORST_TIME,
    DamagedBatch,
    KeptRecord,
    Outcome,
    ScanBudget,
    ScannedRecord,
    keep,
    scan_batches,
)

FETCH_BYTES_MIN = 64 * 1024
FETCH_BYTES_MAX = 1024 * 1024
KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Keys and values that one load of a forward cursor takes."""
SPAN_MIN = 16
SPAN_MAX = 16_384
SPAN_MS_MAX = 500
SPAN_BYTES_MAX = 16 * 1024 * 1024
"""A range of offsets with more bytes is read in smaller parts."""


class PartitionRange(NamedTuple):
    """The offsets of a partition that a client can read."""

    start: int
    end: int
    stable_end: int


class ReadPlan(NamedTuple):
    """What the cursors of one request share."""

    client: KafkaClient
    topic: str
    budget: ScanBudget
    accepts: Callable[[ScannedRecord], bool]
    damaged: list[DamagedBatch]
    rows_kept: int
    """The most records of a partition that wait for a page."""
    payload_bytes: int | None
    """How much of each key and value is kept."""


class _Cursor:
    def __init__(self, plan: ReadPlan, partition: int, limits: PartitionRange, position: int) -> None:
        self.partition = partition
        self.rows: deque[KeptRecord] = deque()
        self.bound = WORST_TIME
        self.is_done = False
        self.was_loaded = False
        self.position = position
        self._plan = plan
        self._limits = limits
        self._bytes = FETCH_BYTES_MIN

    def _piece(self, offset: int) -> tuple[Iterator[ScannedRecord | DamagedBatch], int]:
        """The records of one fetch, and the offset after them. No record: nothing is left from there on."""
        plan, stable_end = self._plan, self._limits.stable_end
        found = plan.client.fetch(
            TopicPartition(plan.topic, self.partition),
            offset,
            max_bytes=self._bytes,
            committed=offset < stable_end,
            max_wait_ms=0,
        )
        plan.budget.size_bytes += len(found.records)
        self._bytes = min(2 * self._bytes, FETCH_BYTES_MAX)
        records = scan_batches(self.partition, found.records, found.aborted, offset, stable_end=stable_end)
        return records, found.next_offset

    def _report(self, batch: DamagedBatch) -> None:
        if batch not in self._plan.damaged:
            self._plan.damaged.append(batch)

    def _unreadable(self, offset: int, error: CorruptMessage) -> None:
        """The broker, or the client, cannot say where the next batch begins."""
        self._report(DamagedBatch(self.partition, offset, None, offset + 1, str(error)))

    def _earliest(self) -> int:
        place = TopicPartition(self._plan.topic, self.partition)
        return self._plan.client.list_offsets({place: EARLIEST})[place].offset


class ForwardCursor(_Cursor):
    """Reads from a position to the end."""

    def __init__(self, plan: ReadPlan, partition: int, limits: PartitionRange, position: int) -> None:
        super().__init__(plan, partition, limits, max(position, limits.start))
        self.is_done = self.position >= limits.end

    @property
    def reached(self) -> int:
        """Where the next page starts."""
        return self.rows[0].offset if self.rows else self.position

    def load(self) -> None:
        """Read one piece, or the part of it that fills the waiting records."""
        self.was_loaded = True
        try:
            self._load()
        except OffsetOutOfRange:  # the records were deleted in the meantime
            self.position = max(self.position, self._earliest())
            self.is_done = self.position >= self._limits.end
        except CorruptMessage as error:
            self._unreadable(self.position, error)
            self.is_done = True
        self.is_done = self.is_done or self.position >= self._limits.end

    def _load(self) -> None:
        plan, end = self._plan, self._limits.end
        looks = kept_bytes = 0
        records, following = self._piece(self.position)
        if following <= self.position:
            self.position = end
            return
        for each in records:
            if isinstance(each, DamagedBatch):
                self._report(each)
                self.position = max(self.position, each.resume)
                continue
            if each.record.offset >= end:
                break
            self.position = each.record.offset + 1
            self.bound = each.record.timestamp
            plan.budget.records += 1
            looks += 1
            if plan.accepts(each):
                self.rows.append(keep(each, plan.payload_bytes))
                kept_bytes += len(each.record.key or b"") + len(each.record.value or b"")
                if len(self.rows) >= plan.rows_kept or kept_bytes >= KEPT_BYTES_MAX:
                    return
            if looks % LOOKS_PER_CHECK == 0 and plan.budget.limit is not None:
                return
        self.position = max(self.position, following)


class BackwardCursor(_Cursor):
    """Reads from before a position to the start."""

    def __init__(self, plan: ReadPlan, partition: int, limits: PartitionRange, position: int) -> None:
        super().__init__(plan, partition, limits, min(position, limits.end))
        self.is_done = self.position <= limits.start
        self.bound = -WORST_TIME
        self._span = max(SPAN_MIN, plan.rows_kept)

    @property
    def reached(self) -> int:
        """Where the next page starts: before this offset."""
        return self.rows[0].offset + 1 if self.rows else self.position

    def load(self) -> None:
        """Read the range of offsets before the position."""
        self.was_loaded = True
        began_ms = self._plan.budget.milliseconds
        low = max(self._limits.start, self.position - self._span)
        kept = self._range(low)
        while kept is None:
            self._span = max(1, self._span // 4)
            low = max(self._limits.start, self.position - self._span)
            kept = self._range(low)
        self.position = kept[0].offset if len(kept) >= self._plan.rows_kept else low
        self.rows.extend(reversed(kept))
        is_slow = self._plan.budget.milliseconds - began_ms > SPAN_MS_MAX
        self._span = max(1, self._span // 4) if is_slow else min(2 * self._span, SPAN_MAX)
        self.is_done = self.position <= self._limits.start

    def _range(self, low: int) -> list[KeptRecord] | None:
        """The last accepted records from `low` to the position; None if the range has too many bytes."""
        kept: deque[KeptRecord] = deque(maxlen=self._plan.rows_kept)
        offset, began_bytes = low, self._plan.budget.size_bytes
        oldest: int | None = None
        while offset < self.position:
            try:
                records, following = self._piece(offset)
                for each in records:
                    if isinstance(each, DamagedBatch):
                        if each.base_offset < self.position:
                            self._report(each)
                        continue
                    if each.record.offset >= self.position:
                        break
                    oldest = each.record.timestamp if oldest is None else oldest
                    self._plan.budget.records += 1
                    if self._plan.accepts(each):
                        kept.append(keep(each, self._plan.payload_bytes))
            except OffsetOutOfRange:  # the records were deleted in the meantime
                following = max(offset, self._earliest())
            except CorruptMessage as error:
                self._unreadable(offset, error)
                break
            if following <= offset:
                break
            offset = following
            if self._plan.budget.size_bytes - began_bytes > SPAN_BYTES_MAX and offset < self.position - 1 > low:
                return None
        if oldest is not None:
            self.bound = min(self.bound, oldest)
        return list(kept)


def is_shown(found: ScannedRecord, *, uncommitted: bool) -> bool:
    """Whether a reader sees the record: of aborted and open transactions only if it asks for them."""
    return uncommitted or found.outcome not in {Outcome.ABORTED, Outcome.OPEN}
