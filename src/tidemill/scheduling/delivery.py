"""Delivery of scheduled records into the log: marked, sent to the leader of their partition, and found there again.

The broker that holds a due record sends it to the leader with its lease in the header `tidemill-lease`. The leader
removes that header before it stores the record. Every stored record keeps its mark, `tidemill-message`.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.scheduling.core.batch_split import MESSAGE, Origin, delivered_mark, read_waiting
from tidemill.streams.admission import opened_in_place, run_aside
from tidemill.streams.partition import Partition
from tidemill.timelines.consumer import Granted
from tidemill.timelines.core.message import TimedMessage

LEASE = "tidemill-lease"
SCAN_BYTES = 1024 * 1024
BATCH_OVERHEAD_BYTES = 200
SLACK_MS = 5_000
"""A lease counts as over this long before its end, because clocks differ and a write takes time."""
MARKS_MAX = 100_000
NEVER = -1


class Due(NamedTuple):
    """A scheduled record that is due, and the lease under which it may be stored."""

    record: NewRecord
    mark: bytes
    scheduled_ms: int
    attempts: int
    until_ms: int
    origin: Origin | None
    seq: int = 0
    token: int = 0
    size: int = 0


def by_partition(granted: Iterable[Granted], mark_of: Callable[[TimedMessage], bytes]) -> dict[int, list[Due]]:
    """Due messages as records, each with its mark, by the partition they belong to."""
    found: defaultdict[int, list[Due]] = defaultdict(list)
    for message, lease in granted:
        index, record, origin = read_waiting(message.body or b"")
        mark = mark_of(message)
        kept = tuple(header for header in record.headers if header[0] != MESSAGE)
        due = NewRecord(record.key, record.value, (*kept, (MESSAGE, mark)), record.timestamp)
        found[index].append(
            Due(
                due,
                mark,
                message.scheduled_ms,
                lease.attempts,
                lease.until_ms,
                origin,
                message.seq,
                lease.token,
                message.size,
            )
        )
    return found


def in_requests(entries: Sequence[Due], bytes_max: int) -> Iterator[list[Due]]:
    """The records in groups that fit into a batch; a larger record is in a group of its own."""
    piece: list[Due] = []
    size = 0
    for entry in entries:
        grown = entry.size + BATCH_OVERHEAD_BYTES
        if piece and size + grown > bytes_max:
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += grown
    if piece:
        yield piece


def to_send(piece: Iterable[Due]) -> bytearray:
    """The records for the leader of their partition, each with its lease."""
    return build_batch([one.record._replace(headers=(*one.record.headers, (LEASE, _lease(one)))) for one in piece])


def to_store(piece: Iterable[Due], now_ms: int) -> bytearray:
    """The records as they are stored, with the time of their arrival, but never a time before they were due.

    A later search for a record starts at its due time.
    """
    return build_batch([one.record._replace(timestamp=max(now_ms, one.scheduled_ms)) for one in piece])


def received(batch: bytearray | memoryview) -> list[Due] | None:
    """Decode a batch of another broker; None when these are not scheduled records."""
    records = list(read_records(batch))
    if not any(name == LEASE for record in records for name, _ in record.headers):
        return None
    return [_received(record) for record in records]


def _lease(due: Due) -> bytes:
    return json.dumps([due.scheduled_ms, due.attempts, due.until_ms, due.origin]).encode()


def _received(record: Record) -> Due:
    headers = dict(record.headers)
    try:
        scheduled_ms, attempts, until_ms, origin = json.loads(headers[LEASE] or b"")
        mark = headers[MESSAGE] or b""
    except (KeyError, ValueError) as error:
        raise InvalidRecord(f"a scheduled record has no valid lease: {error}") from None
    kept = tuple(header for header in record.headers if header[0] != LEASE)
    stored = NewRecord(record.key, record.value, kept, record.timestamp)
    return Due(stored, mark, scheduled_ms, attempts, until_ms, Origin(*origin) if origin else None)


class Marks:
    """The marks in the log of one partition, read as far back as was needed, and cached for the next search.

    A new leader reads the marks from before it led. Later marks are its own, because only the leader writes.
    """

    def __init__(self) -> None:
        self._epoch = NEVER
        self._since_ms = 0
        self._found: set[bytes] = set()

    async def since(self, partition: Partition, since_ms: int) -> set[bytes]:
        """The marks of all records that were stored at that time or later."""
        end = await partition.leader.end_settled()
        if partition.leader_epoch != self._epoch or since_ms < self._since_ms or len(self._found) > MARKS_MAX:
            epoch = partition.leader_epoch
            start = (await partition.reader.offset_at(since_ms)).offset
            self._found = await _marks(partition, end if start < 0 else start)
            self._epoch, self._since_ms = epoch, since_ms
        return self._found

    def stored(self, partition: Partition, marks: Iterable[bytes]) -> None:
        """Add marks of records that are now in the log."""
        if partition.leader_epoch == self._epoch:
            self._found.update(marks)

    def doubt(self) -> None:
        """Something may have been stored: read again."""
        self._epoch = NEVER


async def _marks(partition: Partition, offset: int) -> set[bytes]:
    """The marks from an offset to the end."""
    found: set[bytes] = set()
    offset = max(offset, partition.log_start_offset)
    while offset < partition.high_watermark:
        piece = await partition.reader.read(offset, SCAN_BYTES)
        if not piece.records:
            break
        for chunk in piece.records:
            view = memoryview(chunk)
            for position, header in iter_headers(chunk):
                offset = header.next_offset
                if header.count and not header.control:
                    find = partial(_marks_in, view[position : position + header.size])
                    found.update(find() if opened_in_place(header) else await run_aside(find))
    return found


def _marks_in(batch: memoryview) -> set[bytes]:
    """The marks of a batch; none in an unreadable one, because only brokers write batches with marks."""
    try:
        return {mark for one in read_records(batch) if (mark := delivered_mark(one)) is not None}
    except (CorruptMessage, UnsupportedCompressionType):
        return set()
