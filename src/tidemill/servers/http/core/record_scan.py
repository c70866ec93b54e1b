"""Takes the records out of fetched batches, with the outcome of their transactions and within a budget.

A batch that cannot be read is reported with its offsets, and reading continues after it.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from heapq import heapify, heappop
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.records.build import MarkerType, marker_of
from tidemill.records.header import BatchHeader, Buffer, check_crc, iter_headers
from tidemill.records.read import read_records
from tidemill.records.record import Headers, Record

BATCH_BYTES_MAX = 32 * 1024 * 1024
"""The largest batch, decompressed, that is opened."""
HEADERS_KEPT = 20
HEADER_BYTES_KEPT = 500
LOOKS_PER_CHECK = 64
WORST_TIME = -(2**63)


class Outcome(Enum):
    """What became of the transaction of a record."""

    NONE = "none"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


class ScannedRecord(NamedTuple):
    """A record with the header of its batch."""

    partition: int
    header: BatchHeader
    record: Record
    outcome: Outcome


class DamagedBatch(NamedTuple):
    """A batch that cannot be read."""

    partition: int
    base_offset: int
    last_offset: int | None
    resume: int
    error: str


class KeptRecord(NamedTuple):
    """A record that waits for its place on a page, with only the beginnings of its parts."""

    partition: int
    header: BatchHeader
    outcome: Outcome
    offset: int
    timestamp: int
    key: bytes | None
    key_bytes: int
    value: bytes | None
    value_bytes: int
    headers: Headers
    header_count: int
    header_bytes: int


class ScanBudget:
    """How much one request may look at. `clock_ms` is monotonic."""

    def __init__(self, clock_ms: Callable[[], float], *, records: int, size_bytes: int, duration_ms: int) -> None:
        self._clock_ms = clock_ms
        self._records_max = records
        self._bytes_max = size_bytes
        self._duration_ms = duration_ms
        self._began_ms = clock_ms()
        self.records = 0
        self.size_bytes = 0

    @property
    def milliseconds(self) -> int:
        """How long the scan has taken."""
        return int(self._clock_ms() - self._began_ms)

    @property
    def limit(self) -> str | None:
        """The limit that is reached, if one is."""
        if self.records >= self._records_max:
            return f"{self._records_max:,} records"
        if self.size_bytes >= self._bytes_max:
            return f"{self._bytes_max:,} bytes"
        if self.milliseconds >= self._duration_ms:
            return f"{self._duration_ms:,} ms"
        return None


def scan_batches(
    partition: int, batches: Buffer, aborted: tuple[tuple[int, int], ...], start: int, *, stable_end: int
) -> Iterator[ScannedRecord | DamagedBatch]:
    """The records from offset `start` on. `aborted` has producer ids and first offsets; from `stable_end` on
    transactions are open.
    """
    beginnings = [(first_offset, producer_id) for producer_id, first_offset in aborted]
    heapify(beginnings)
    dropped: set[int] = set()
    view = memoryview(batches)
    for position, header in iter_headers(view, partial_ok=True):
        while beginnings and beginnings[0][0] <= header.last_offset:
            dropped.add(heappop(beginnings)[1])
        batch = view[position : position + header.size]
        outcome = _outcome(header, dropped, stable_end)
        following = max(start, header.base_offset)
        try:
            check_crc(batch, 0, header)
            if header.control:
                if marker_of(batch) is MarkerType.ABORT:
                    dropped.discard(header.producer_id)
                continue
            if header.next_offset <= start:
                continue
            for record in read_records(batch, limit_bytes=BATCH_BYTES_MAX):
                if record.offset >= start:
                    following = record.offset + 1
                    yield ScannedRecord(partition, header, record, outcome)
        except (CorruptMessage, UnsupportedCompressionType) as error:
            yield DamagedBatch(partition, following, header.last_offset, header.next_offset, str(error))


def _outcome(header: BatchHeader, dropped: set[int], stable_end: int) -> Outcome:
    if not header.transactional:
        return Outcome.NONE
    if header.base_offset >= stable_end:
        return Outcome.OPEN
    return Outcome.ABORTED if header.producer_id in dropped else Outcome.COMMITTED


def keep(found: ScannedRecord, payload_bytes: int | None) -> KeptRecord:
    """The record with at most `payload_bytes` of its key and value; None keeps all of it."""
    _, timestamp, key, value, headers = found.record
    header_bytes = sum(len(name) + len(each or b"") for name, each in headers)
    return KeptRecord(
        found.partition,
        found.header,
        found.outcome,
        found.record.offset,
        timestamp,
        key if payload_bytes is None or key is None else key[:payload_bytes],
        len(key or b""),
        value if payload_bytes is None or value is None else value[:payload_bytes],
        len(value or b""),
        headers if payload_bytes is None else tuple(_kept_header(*each) for each in headers[:HEADERS_KEPT]),
        len(headers),
        header_bytes,
    )


def _kept_header(name: str, value: bytes | None) -> tuple[str, bytes | None]:
    return name[:HEADER_BYTES_KEPT], None if value is None else value[:HEADER_BYTES_KEPT]
