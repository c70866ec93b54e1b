"""Reads pages of records, single records and new records through a Kafka client, in a thread.

The Kafka server checks the rights of the client. Every function is bounded: it looks at so many records and bytes, for
so long, and says how far it came.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tidemill.client.kafka.client import EARLIEST, LATEST, MAX_TIMESTAMP, KafkaClient
from tidemill.model.errors import CorruptMessage, OffsetOutOfRange, UnsupportedVersion
from tidemill.model.topics import TopicPartition
from tidemill.servers.http.api.record_cursors import (
    BackwardCursor,
    ForwardCursor,
    PartitionRange,
    ReadPlan,
    is_shown,
)
from tidemill.servers.http.core.payload_views import PayloadViews, Schemas
from tidemill.servers.http.core.record_filter import FilterTexts, RecordFilter
from tidemill.servers.http.core.record_merge import merged_page
from tidemill.servers.http.core.record_positions import (
    decode_positions,
    decode_time,
    encode_positions,
)
from tidemill.servers.http.core.record_rows import line_of, row_of, unreadable
from tidemill.servers.http.core.record_scan import (
    DamagedBatch,
    KeptRecord,
    ScanBudget,
    ScannedRecord,
    keep,
    scan_batches,
)
from tidemill.wire.http.records import (
    RecordExportQuery,
    RecordLine,
    RecordPage,
    RecordQuery,
    RecordSelection,
    RecordTailQuery,
    ScanReport,
    TailedRecords,
)

SCAN_RECORDS_MAX = 500_000
SCAN_BYTES_MAX = 64 * 1024 * 1024
SCAN_MS_MAX = 2_500
PAYLOAD_BYTES_KEPT = 4 * 1024
ROW_CHARS = 2_000
"""The most characters of a key or value in a list."""
DETAIL_CHARS = 512 * 1024
ROWS_PER_PARTITION_MIN = 4
TAIL_ROWS = 50
TAIL_OFFSETS_MAX = 2_000
"""A live view that is further behind leaves records out."""
TAIL_MS_MAX = 500
EXPORT_ROWS = 10_000
EXPORT_BYTES = 1024 * 1024
FETCH_BYTES = 1024 * 1024


class TopicReading(NamedTuple):
    """A topic and the partitions of it that a request reads."""

    topic: str
    partitions: tuple[int, ...]

    @property
    def places(self) -> list[TopicPartition]:
        """The partitions."""
        return [TopicPartition(self.topic, each) for each in self.partitions]


def _now_ms() -> float:
    return time.monotonic() * 1000


def _filter(query: RecordSelection | RecordTailQuery, views: PayloadViews) -> RecordFilter:
    texts = FilterTexts(query.key, query.value, query.header, query.where, query.match == "regex")
    return RecordFilter(texts, views.json_of)


def check_filter(query: RecordSelection | RecordTailQuery) -> None:
    """InvalidCondition or InvalidRegularExpression if the filter of the query is not valid."""
    _filter(query, PayloadViews(lambda _: None, chars=1))


def check_tail(reading: TopicReading, query: RecordTailQuery) -> None:
    """The same, and InvalidPosition if the position does not fit the topic."""
    check_filter(query)
    if query.position:
        decode_positions(query.position, reading.partitions)


def _accepting(query: RecordSelection | RecordTailQuery, views: PayloadViews) -> Callable[[ScannedRecord], bool]:
    wanted, uncommitted = _filter(query, views), query.uncommitted
    if wanted.accepts_all:
        return lambda found: is_shown(found, uncommitted=uncommitted)
    return lambda found: is_shown(found, uncommitted=uncommitted) and wanted.accepts(found.record, found.partition)


def _ranges(client: KafkaClient, reading: TopicReading, *, uncommitted: bool) -> dict[int, PartitionRange]:
    starts = client.list_offsets(dict.fromkeys(reading.places, EARLIEST))
    stable = client.list_offsets(dict.fromkeys(reading.places, LATEST), committed=True)
    ends = client.list_offsets(dict.fromkeys(reading.places, LATEST)) if uncommitted else stable
    return {
        place.partition: PartitionRange(starts[place].offset, ends[place].offset, stable[place].offset)
        for place in reading.places
    }


def read_page(client: KafkaClient, reading: TopicReading, query: RecordQuery, schemas: Schemas) -> RecordPage:
    """A page of records."""
    budget = ScanBudget(_now_ms, records=SCAN_RECORDS_MAX, size_bytes=SCAN_BYTES_MAX, duration_ms=SCAN_MS_MAX)
    views = PayloadViews(schemas, chars=ROW_CHARS)
    limits = _ranges(client, reading, uncommitted=query.uncommitted)
    starts = _first_positions(client, reading, query, limits)
    is_backward = (query.order == "newest") is not query.back
    damaged: list[DamagedBatch] = []
    kept = min(query.rows, max(ROWS_PER_PARTITION_MIN, -(-2 * query.rows // len(limits))))
    plan = ReadPlan(client, reading.topic, budget, _accepting(query, views), damaged, kept, PAYLOAD_BYTES_KEPT)
    kind = BackwardCursor if is_backward else ForwardCursor
    cursors = [kind(plan, partition, limits[partition], starts[partition]) for partition in reading.partitions]
    if is_backward and len(cursors) > 1:
        _bound_by_time(client, reading, cursors)
    found = merged_page(cursors, query.rows, budget, is_backward=is_backward)
    reached = {cursor.partition: cursor.reached for cursor in cursors}
    is_complete = len(found) >= query.rows or all(cursor.is_done for cursor in cursors)
    after, before = (starts, reached) if query.back else (reached, starts)
    rows = [row_of(reading.topic, each, views, query.key_format, query.value_format) for each in found]
    return RecordPage(
        topic=reading.topic,
        records=rows[::-1] if query.back else rows,
        next=encode_positions(after) if _follows(query, after, limits) else None,
        previous=encode_positions(before),
        unreadable=[unreadable(each) for each in damaged],
        scan=ScanReport(
            records=budget.records,
            bytes=budget.size_bytes,
            milliseconds=budget.milliseconds,
            complete=is_complete,
            limit=None if is_complete else budget.limit,
            unread_partitions=sum(not (each.was_loaded or each.is_done) for each in cursors) if not is_complete else 0,
        ),
    )


def _follows(query: RecordQuery, after: Mapping[int, int], limits: Mapping[int, PartitionRange]) -> bool:
    if query.order == "newest":
        return any(after[each] > limits[each].start for each in limits)
    return any(after[each] < limits[each].end for each in limits)


def _first_positions(
    client: KafkaClient, reading: TopicReading, query: RecordQuery, limits: Mapping[int, PartitionRange]
) -> dict[int, int]:
    is_newest = query.order == "newest"
    if query.position:
        known = decode_positions(query.position, reading.partitions)
        return {each: known.get(each, limits[each].start) for each in reading.partitions}
    if query.offset is not None:
        return {each: _at_offset(query.offset, limits[each], is_newest=is_newest) for each in reading.partitions}
    if query.time.strip():
        wanted = decode_time(query.time)
        return _at_time(client, reading, wanted + 1 if is_newest else wanted, limits)
    return {each: limits[each].end if is_newest else limits[each].start for each in reading.partitions}


def _at_offset(offset: int, limits: PartitionRange, *, is_newest: bool) -> int:
    if offset < 0:
        offset = limits.end + offset
    return min(max(offset + is_newest, limits.start), limits.end)


def _at_time(
    client: KafkaClient, reading: TopicReading, time_ms: int, limits: Mapping[int, PartitionRange]
) -> dict[int, int]:
    if time_ms < 0:
        return {each: limits[each].start for each in reading.partitions}
    found = client.list_offsets(dict.fromkeys(reading.places, time_ms))
    return {
        place.partition: limits[place.partition].end if at.offset < 0 else min(at.offset, limits[place.partition].end)
        for place, at in found.items()
    }


def _bound_by_time(
    client: KafkaClient, reading: TopicReading, cursors: Sequence[BackwardCursor | ForwardCursor]
) -> None:
    """Let partitions with recent records come first. Brokers before Kafka 3.0 do not know the highest timestamp."""
    try:
        found = client.list_offsets(dict.fromkeys(reading.places, MAX_TIMESTAMP))
    except UnsupportedVersion:
        return
    for cursor in cursors:
        cursor.bound = found[TopicPartition(reading.topic, cursor.partition)].timestamp


class RecordAsked(NamedTuple):
    """The place of one record."""

    topic: str
    partition: int
    offset: int


def read_one(client: KafkaClient, asked: RecordAsked) -> KeptRecord | DamagedBatch | None:
    """The record at an offset, whole and whatever became of its transaction; None if there is none."""
    place = TopicPartition(asked.topic, asked.partition)
    stable_end = client.list_offsets({place: LATEST}, committed=True)[place].offset
    try:
        piece = client.fetch(place, asked.offset, max_bytes=1, committed=asked.offset < stable_end, max_wait_ms=0)
    except OffsetOutOfRange:
        return None
    except CorruptMessage as error:
        return DamagedBatch(asked.partition, asked.offset, None, asked.offset + 1, str(error))
    for each in scan_batches(asked.partition, piece.records, piece.aborted, asked.offset, stable_end=stable_end):
        if isinstance(each, DamagedBatch):
            return each
        return keep(each, None) if each.record.offset == asked.offset else None
    return None


class RecordTail:
    """Follows the end of a topic. Each call of `read` returns what is new since the last one."""

    def __init__(self, reading: TopicReading, query: RecordTailQuery, schemas: Callable[[], Schemas]) -> None:
        self._reading = reading
        self._query = query
        self._schemas = schemas
        self._positions: dict[int, int] | None = None

    def read(self, client: KafkaClient) -> TailedRecords:
        """New records, a bounded number of them."""
        committed = not self._query.uncommitted
        listed = client.list_offsets(dict.fromkeys(self._reading.places, LATEST), committed=committed)
        ends = {place.partition: each.offset for place, each in listed.items()}
        if self._positions is None:
            self._positions = self._first_positions(ends)
        positions = self._positions
        skipped = sum(self._skip(partition, end) for partition, end in ends.items())
        moved = tuple(each for each in ends if ends[each] > positions[each])
        if not moved:
            return TailedRecords(records=[], position=encode_positions(positions), skipped=skipped, unreadable=[])
        return self._read_moved(client, TopicReading(self._reading.topic, moved), ends, skipped)

    def _first_positions(self, ends: Mapping[int, int]) -> dict[int, int]:
        """Where an earlier stream has ended, else the end. A partition that is newer is read from its start."""
        if not self._query.position:
            return dict(ends)
        known = decode_positions(self._query.position, self._reading.partitions)
        return {each: known.get(each, 0) for each in ends}

    def _skip(self, partition: int, end: int) -> int:
        positions = self._positions or {}
        start = min(positions[partition], end)  # after a truncation, or a new topic of the same name
        if end - start > TAIL_OFFSETS_MAX:
            start = end - TAIL_ROWS
        skipped = max(0, start - positions[partition])
        positions[partition] = start
        return skipped

    def _read_moved(
        self, client: KafkaClient, reading: TopicReading, ends: Mapping[int, int], skipped: int
    ) -> TailedRecords:
        query, positions = self._query, self._positions or {}
        budget = ScanBudget(_now_ms, records=SCAN_RECORDS_MAX, size_bytes=SCAN_BYTES_MAX, duration_ms=TAIL_MS_MAX)
        views = PayloadViews(self._schemas(), chars=ROW_CHARS)
        stable = ends
        if query.uncommitted:
            listed = client.list_offsets(dict.fromkeys(reading.places, LATEST), committed=True)
            stable = {place.partition: each.offset for place, each in listed.items()}
        damaged: list[DamagedBatch] = []
        kept = max(ROWS_PER_PARTITION_MIN, -(-2 * TAIL_ROWS // len(reading.partitions)))
        plan = ReadPlan(client, reading.topic, budget, _accepting(query, views), damaged, kept, PAYLOAD_BYTES_KEPT)
        cursors = [
            ForwardCursor(plan, each, PartitionRange(0, ends[each], stable[each]), positions[each])
            for each in reading.partitions
        ]
        found = merged_page(cursors, TAIL_ROWS, budget, is_backward=False)
        for cursor in cursors:
            positions[cursor.partition] = cursor.reached
        return TailedRecords(
            records=[row_of(reading.topic, each, views, query.key_format, query.value_format) for each in found],
            position=encode_positions(positions),
            skipped=skipped,
            unreadable=[unreadable(each) for each in damaged],
        )


class RecordExport:
    """Reads the records of a topic, one partition after the other. Each call of `read` returns some lines."""

    def __init__(self, reading: TopicReading, query: RecordExportQuery, schemas: Schemas) -> None:
        self._reading = reading
        self._query = query
        self._left = query.limit
        self._views = PayloadViews(schemas, chars=1)
        self._limits: dict[int, PartitionRange] | None = None
        self._positions: dict[int, int] = {}
        self._waiting = list(reading.partitions)

    def read(self, client: KafkaClient) -> list[RecordLine] | None:
        """The next lines, which may be none; None at the end."""
        if self._limits is None:
            self._limits = _ranges(client, self._reading, uncommitted=self._query.uncommitted)
            query = self._query
            where = RecordQuery(offset=query.offset, time=query.time, order="oldest")
            self._positions = _first_positions(client, self._reading, where, self._limits)
        if not self._waiting or self._left == 0:
            return None
        partition = self._waiting[0]
        budget = ScanBudget(_now_ms, records=SCAN_RECORDS_MAX, size_bytes=EXPORT_BYTES, duration_ms=TAIL_MS_MAX)
        rows = EXPORT_ROWS if self._left is None else min(EXPORT_ROWS, self._left)
        plan = ReadPlan(client, self._reading.topic, budget, _accepting(self._query, self._views), [], rows, None)
        cursor = ForwardCursor(plan, partition, self._limits[partition], self._positions[partition])
        if not cursor.is_done:
            cursor.load()
        self._positions[partition] = cursor.position
        if cursor.is_done:
            self._waiting.pop(0)
        if self._left is not None:
            self._left -= len(cursor.rows)
        return [line_of(self._reading.topic, each) for each in cursor.rows]
