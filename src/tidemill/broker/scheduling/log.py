"""Scheduled records on their way into the log: marked, sent to whoever leads their partition, and found there again.

Whoever holds a due record sends it to the leader with its lease in the header `tidemill-lease`, which is taken off
before the record is stored. Every record that is stored keeps its mark, `tidemill-message`.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tidemill.broker.scheduling.plan import MESSAGE, Origin, delivered_mark, read_waiting
from tidemill.model.errors import InvalidRecord
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.streams.partition import Partition
from tidemill.timelines.consumer import Granted

LEASE = "tidemill-lease"
SCAN_BYTES = 1024 * 1024
BATCH_OVERHEAD_BYTES = 200
SLACK_MS = 5_000
"""Clocks differ, and a write takes a while: this long before its end a lease counts as over."""
MARKS_MAX = 100_000


class Due(NamedTuple):
    """A scheduled record whose time has come, and the lease under which it may be stored."""

    record: NewRecord
    mark: bytes
    scheduled_ms: int
    attempts: int
    until_ms: int
    origin: Origin | None
    seq: int = 0
    token: int = 0
    size: int = 0


def by_partition(granted: Iterable[Granted], store: str) -> dict[int, list[Due]]:
    """Due messages as records, each with its mark, by the partition they belong to.

    `store` tells the numbers of one broker's own timelines from those of others.
    """
    found: defaultdict[int, list[Due]] = defaultdict(list)
    for one in granted:
        mark = f"{one.message.id}@{one.message.seq}{store}".encode()
        index, due = due_of(one, one.message.body or b"", mark)
        found[index].append(due)
    return found


def due_of(granted: Granted, body: bytes, mark: bytes, attempts: int = 1) -> tuple[int, Due]:
    """A due message as a record with its mark, and the partition it belongs to; at least the attempt that is named."""
    message, lease = granted
    index, record, origin = read_waiting(body)
    kept = tuple(header for header in record.headers if header[0] != MESSAGE)
    due = NewRecord(record.key, record.value, (*kept, (MESSAGE, mark)), record.timestamp)
    attempts = max(attempts, lease.attempts)
    return index, Due(
        due, mark, message.scheduled_ms, attempts, lease.until_ms, origin, message.seq, lease.token, message.size
    )


def in_pieces(entries: Sequence[Due], bytes_max: int) -> Iterator[list[Due]]:
    """The records in groups that fit into a batch; one that is larger comes alone."""
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
    """The records for the broker that leads their partition, each with its lease."""
    return build_batch([one.record._replace(headers=(*one.record.headers, (LEASE, _lease(one)))) for one in piece])


def to_store(piece: Iterable[Due], now_ms: int) -> bytearray:
    """The records as they are stored, at the time of their arrival; by no clock before they were due.

    Whoever looks for one later begins at its due time.
    """
    return build_batch([one.record._replace(timestamp=max(now_ms, one.scheduled_ms)) for one in piece])


def received(batch: bytearray | memoryview) -> list[Due] | None:
    """What another broker sends; None when these are no scheduled records."""
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
        raise InvalidRecord(f"a scheduled record without its lease: {error}") from None
    kept = tuple(header for header in record.headers if header[0] != LEASE)
    stored = NewRecord(record.key, record.value, kept, record.timestamp)
    return Due(stored, mark, scheduled_ms, attempts, until_ms, Origin(*origin) if origin else None)


class Marks:
    """The marks in the log of one partition, read as far back as somebody had to know, and kept for the next one."""

    def __init__(self) -> None:
        self._epoch = -1
        self._since_ms = 0
        self._next = 0
        self._found: set[bytes] = set()

    async def since(self, partition: Partition, since_ms: int) -> set[bytes]:
        """The marks of all records that were stored at that time or later."""
        end = await partition.end_settled()
        if partition.leader_epoch != self._epoch or since_ms < self._since_ms or len(self._found) > MARKS_MAX:
            self._epoch, self._since_ms, self._found = partition.leader_epoch, since_ms, set()
            self._next = (await partition.offset_at(since_ms)).offset
            if self._next < 0:
                self._next = end
        await self._read_on(partition)
        return self._found

    async def _read_on(self, partition: Partition) -> None:
        self._next = max(self._next, partition.log_start_offset)
        while self._next < partition.high_watermark:
            piece = await partition.read(self._next, SCAN_BYTES)
            for chunk in piece.records:
                view = memoryview(chunk)
                for position, header in iter_headers(chunk):
                    self._next = header.next_offset
                    if header.count and not header.control:
                        records = read_records(view[position : position + header.size])
                        self._found.update(mark for one in records if (mark := delivered_mark(one)) is not None)
            if not piece.records:
                return
