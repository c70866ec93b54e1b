"""Converts batches to rows and back.

One kernel call builds a block of rows from the batches of many partitions. Records are decompressed, concatenated and
read into columns. Batch fields are repeated in each row. The reverse direction finds the batches by `batch_offset`,
writes their records and adds a header with the codec and a new CRC. The result equals the original except where bytes
have no meaning: the producer's timestamps under log append time, varints longer than needed, and the choices of another
compressor.

Two kinds of batch are one row each. `empty`: compaction left no record, but the header still has a producer's sequence.
`opaque`: the records cannot be decoded or represented as rows. Their bytes are the row's value and are returned
unchanged, as segment files do.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.records.arrow import Kernels
from tidemill.records.arrow.columns import Columns, Runs
from tidemill.records.arrow.schema import HEADER as HEADER_TYPE
from tidemill.records.arrow.schema import MICROSECONDS, TIMESTAMP_MS_MAX
from tidemill.records.arrow.selection import OFFSET_MAX
from tidemill.records.arrow.selection import BatchPosition as BatchPlace
from tidemill.records.arrow.table import END, START, table_of
from tidemill.records.build import MarkerType, marker_of, wrap
from tidemill.records.compact import empty_batch
from tidemill.records.compression import codec_of, decompress
from tidemill.records.header import (
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LENGTH_MIN,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    SEQUENCE_MAX,
    BatchHeader,
    Buffer,
    read_header,
    seal,
)
from tidemill.streams.clickhouse.statements import PartitionRef
from tidemill.streams.interface import StoredBatch

BLOCK_DECOMPRESSED_BYTES_MAX = 512 * 1024 * 1024
"""Records of a block beyond this size are not decoded, because an Arrow array can address 2 GiB."""
EXPIRES_MAX_S = 2**32 - 1
EXPIRES_UNKNOWN_S = EXPIRES_MAX_S - 1
"""The expiry of rows that arrived while the clock was not trusted; their `appended_at` may be wrong too."""
RECORD, COMMIT, ABORT, EMPTY, OPAQUE = range(5)
_HEADERS = pa.list_(HEADER_TYPE)
_MILLISECONDS = pa.timestamp("ms")
_SECONDS = pa.timestamp("s")
_UNREADABLE = (CorruptMessage, UnsupportedCompressionType)

COLUMNS = (
    "offset, timestamp, key, value, headers, mark, leader_epoch, producer_id, producer_epoch, sequence, batch_offset, "
    "batch_last, batch_attributes, batch_timestamp, batch_max_timestamp, batch_records, delete_horizon"
)
"""The columns that `batches_of` needs, in any order."""
_MARKED = "mark IN ('commit', 'abort')"
OUTLINE = (
    COLUMNS.replace(" key,", f" if({_MARKED}, key, NULL) AS key,")
    .replace(" value,", f" if({_MARKED}, value, NULL) AS value,")
    .replace(" headers,", " CAST([], 'Array(Tuple(key String, value Nullable(String)))') AS headers,")
    + ", batch_bytes"
)
"""The columns that `outline_of` needs."""


class BatchRows(NamedTuple):
    """A batch to insert into a table."""

    place: PartitionRef
    header: BatchHeader
    batch: Buffer
    expires_s: int
    claim: int | None = None
    """The claim under which the broker writes, on shared servers."""
    spread: int = 0
    """The topic's `tidemill.spread.servers`, with which the server checks that it owns the batch."""


class _Opened(NamedTuple):
    entry: BatchRows
    mark: int
    payload: Buffer


def rows_of(entries: Sequence[BatchRows], appended_ms: int, kernels: Kernels) -> pa.RecordBatch:
    """Return the rows of these batches. All have the same append time."""
    opened, closed = _open_all(entries)
    tables = []
    if opened:
        try:
            tables.append(_record_rows(opened, appended_ms, kernels))
        except CorruptMessage:
            opened, damaged = _readable(opened, appended_ms, kernels)
            closed += damaged
            if opened:
                tables.append(_record_rows(opened, appended_ms, kernels))
    if closed:
        tables.append(_closed_rows(closed, appended_ms))
    return pa.concat_tables(tables).combine_chunks().to_batches()[0]


def _open_all(entries: Sequence[BatchRows]) -> tuple[list[_Opened], list[_Opened]]:
    """Return batches with decompressed records, and batches that are stored as one row."""
    opened: list[_Opened] = []
    closed: list[_Opened] = []
    size = 0
    for entry in entries:
        header = entry.header
        closed_payload = memoryview(entry.batch)[HEADER_SIZE : header.size]
        try:
            mark = _mark_of(entry)
            payload = decompress(codec_of(header.codec), closed_payload) if mark != EMPTY else b""
        except _UNREADABLE:
            mark = OPAQUE
        size += len(payload) if mark != OPAQUE else 0
        if mark == OPAQUE or size > BLOCK_DECOMPRESSED_BYTES_MAX or not _has_plain_times(header):
            closed.append(_Opened(entry, OPAQUE, closed_payload))
        elif mark == EMPTY:
            closed.append(_Opened(entry, EMPTY, b""))
        else:
            opened.append(_Opened(entry, mark, payload))
    return opened, closed


def _mark_of(entry: BatchRows) -> int:
    if entry.header.count == 0:
        return EMPTY
    if not entry.header.control:
        return RECORD
    return COMMIT if marker_of(entry.batch) is MarkerType.COMMIT else ABORT


def _has_plain_times(header: BatchHeader) -> bool:
    return max(abs(header.base_timestamp), abs(header.max_timestamp)) < TIMESTAMP_MS_MAX


def _readable(opened: list[_Opened], appended_ms: int, kernels: Kernels) -> tuple[list[_Opened], list[_Opened]]:
    """Find the unreadable batches after the kernels rejected a block, by reading each batch alone."""
    readable: list[_Opened] = []
    damaged: list[_Opened] = []
    for one in opened:
        try:
            _record_rows([one], appended_ms, kernels)
            readable.append(one)
        except CorruptMessage:
            entry = one.entry
            damaged.append(_Opened(entry, OPAQUE, memoryview(entry.batch)[HEADER_SIZE : entry.header.size]))
    return readable, damaged


def _record_rows(opened: Sequence[_Opened], appended_ms: int, kernels: Kernels) -> pa.Table:
    table = table_of(BatchPlace(0, one.entry.header) for one in opened)
    table[:, END] = np.cumsum([len(one.payload) for one in opened])
    table[1:, START] = table[:-1, END]
    table[0, START] = 0
    data = memoryview(b"".join([one.payload for one in opened]))
    found = kernels.read(data, table, 0, OFFSET_MAX, {"key", "value", "offset", "timestamp", "headers"})
    counts = np.array([one.entry.header.count for one in opened], np.int64)
    times = found["timestamp"].cast(pa.int64()).to_numpy() // MICROSECONDS
    headers = found["headers"]
    own = {
        "offset": found["offset"],
        "timestamp": pa.array(times, _MILLISECONDS),
        "key": found["key"],
        "value": found["value"],
        "headers": pa.ListArray.from_arrays(headers.offsets, headers.values),
    }
    return _with_batches(own, opened, counts, appended_ms)


def _closed_rows(closed: Sequence[_Opened], appended_ms: int) -> pa.Table:
    heads = [one.entry.header for one in closed]
    own = {
        "offset": pa.array([head.base_offset for head in heads], pa.int64()),
        "timestamp": pa.array([head.max_timestamp for head in heads], pa.int64()).cast(_MILLISECONDS),
        "key": pa.nulls(len(closed), pa.binary()),
        "value": pa.array([bytes(one.payload) if one.mark == OPAQUE else None for one in closed], pa.binary()),
        "headers": pa.array([[]] * len(closed), _HEADERS),
    }
    return _with_batches(own, closed, np.ones(len(closed), np.int64), appended_ms)


def _with_batches(
    own: dict[str, pa.Array], opened: Sequence[_Opened], counts: npt.NDArray[np.int64], appended_ms: int
) -> pa.Table:
    """Return the columns of records together with those of their batches."""
    heads = [one.entry.header for one in opened]
    horizons = [head.delete_horizon_ms for head in heads]

    def each(values: Sequence[int], kind: pa.DataType) -> pa.Array:
        return pa.array(np.repeat(np.array(values, kind.to_pandas_dtype()), counts), kind)

    base_offsets = np.repeat(np.array([head.base_offset for head in heads], np.int64), counts)
    first = np.repeat(np.array([head.base_sequence for head in heads], np.int64), counts)
    delta = own["offset"].to_numpy() - base_offsets
    sequences = np.where(first < 0, -1, (first + delta) & SEQUENCE_MAX)
    columns = {
        "topic": _words([one.entry.place.topic for one in opened], counts),
        "partition": each([one.entry.place.partition for one in opened], pa.int32()),
        **own,
        "mark": each([one.mark for one in opened], pa.int8()),
        "leader_epoch": each([head.leader_epoch for head in heads], pa.int32()),
        "producer_id": each([head.producer_id for head in heads], pa.int64()),
        "producer_epoch": each([head.producer_epoch for head in heads], pa.int16()),
        "sequence": pa.array(sequences.astype(np.int32)),
        "batch_offset": pa.array(base_offsets),
        "batch_last": each([head.last_offset for head in heads], pa.int64()),
        "batch_attributes": each([head.attributes & ~DELETE_HORIZON_BIT for head in heads], pa.int16()),
        "batch_timestamp": each([head.base_timestamp for head in heads], pa.int64()),
        "batch_max_timestamp": each([head.max_timestamp for head in heads], pa.int64()),
        "batch_records": each([head.count for head in heads], pa.int32()),
        "batch_bytes": each([head.size for head in heads], pa.int32()),
        "delete_horizon": each([-1 if horizon is None else horizon for horizon in horizons], pa.int64()),
        "appended_at": each([appended_ms] * len(opened), pa.int64()).cast(_MILLISECONDS),
        "expires_at": each([one.entry.expires_s for one in opened], pa.int64()).cast(_SECONDS),
    }
    if opened[0].entry.claim is not None:
        columns["topic_id"] = _words([one.entry.place.topic_id for one in opened], counts)
        columns["claim"] = each([one.entry.claim or 0 for one in opened], pa.int64())
        columns["spread"] = each([one.entry.spread for one in opened], pa.uint16())
    return pa.table(columns)


def _words(words: Sequence[str], counts: npt.NDArray[np.int64]) -> pa.DictionaryArray:
    """Return a word per batch, repeated for its rows."""
    known: dict[str, int] = {}
    numbers = [known.setdefault(word, len(known)) for word in words]
    return pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(np.array(numbers, np.int32), counts)), pa.array(list(known), pa.string())
    )


def batches_of(table: pa.Table, kernels: Kernels) -> list[StoredBatch]:
    """Return the batches of these rows. The rows are ordered by offset."""
    if not len(table):
        return []
    rows = table.combine_chunks().to_batches()[0]
    number = {name: _numbers(rows, name) for name in (*_HEAD, "timestamp")}
    starts = np.flatnonzero(np.diff(number["batch_offset"], prepend=np.int64(-1)))
    payloads = _payloads(rows, number, starts, kernels)
    lines = zip(*(number[name][starts].tolist() for name in _HEAD), strict=True)
    ends = [*starts[1:].tolist(), len(rows)]
    found = []
    for line, start, end, payload in zip(lines, starts.tolist(), ends, payloads, strict=True):
        head = dict(zip(_HEAD, line, strict=True))
        if head["mark"] == OPAQUE:
            found.append(_opaque(head, rows.column("value")[start].as_py()))
        else:
            count = 0 if head["mark"] == EMPTY else end - start
            found.append(_stored(_header(head, count), payload))
    return found


def outline_of(table: pa.Table, kernels: Kernels) -> list[StoredBatch]:
    """Return batches, without records if they are data. `table` has one row per batch."""
    rows = table.to_pylist()
    marked = [place for place, row in enumerate(rows) if row["mark"] in {COMMIT, ABORT}]
    markers = dict(zip(marked, batches_of(table.take(pa.array(marked, pa.int64())), kernels), strict=True))
    found = []
    for place, row in enumerate(rows):
        bare = _header(row, row["batch_records"])._replace(length=row["batch_bytes"] - LENGTH_END)
        found.append(markers.get(place) or StoredBatch(bare, b""))
    return found


_HEAD = (
    "offset",
    "mark",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "batch_offset",
    "batch_last",
    "batch_attributes",
    "batch_timestamp",
    "batch_max_timestamp",
    "batch_records",
    "delete_horizon",
)


def _numbers(rows: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    column = rows.column(rows.schema.get_field_index(name))
    found: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _payloads(
    rows: pa.RecordBatch, number: dict[str, npt.NDArray[np.int64]], starts: npt.NDArray[np.int64], kernels: Kernels
) -> list[bytes]:
    sizes = np.diff(np.append(starts, len(rows)))
    horizons, bases = number["delete_horizon"][starts], number["batch_timestamp"][starts]
    base_times = np.where(horizons >= 0, horizons, bases)
    # Under log append time the record's own timestamp is not used.
    by_broker = number["batch_attributes"] & LOG_APPEND_TIME_BIT != 0
    times = np.where(by_broker, np.repeat(base_times, sizes), number["timestamp"])
    column = {name: rows.column(rows.schema.get_field_index(name)) for name in ("key", "value", "headers")}
    columns = Columns.laid(
        column["key"].cast(pa.large_binary()),
        column["value"].cast(pa.large_binary()),
        column["headers"].cast(_HEADERS),
        times,
    )
    runs = Runs(np.append(starts[1:], len(rows)), base_times, number["offset"] - number["batch_offset"])
    return kernels.write_runs(kernels.prepare(columns), runs, int(columns.sizes().sum()))


def _header(head: dict[str, Any], count: int) -> BatchHeader:
    horizon, base_offset = head["delete_horizon"], head["batch_offset"]
    sequence = head["sequence"]
    return BatchHeader(
        base_offset=base_offset,
        length=LENGTH_MIN,
        leader_epoch=head["leader_epoch"],
        magic=MAGIC,
        crc=0,
        attributes=head["batch_attributes"] | (DELETE_HORIZON_BIT if horizon >= 0 else 0),
        last_offset_delta=head["batch_last"] - base_offset,
        base_timestamp=horizon if horizon >= 0 else head["batch_timestamp"],
        max_timestamp=head["batch_max_timestamp"],
        producer_id=head["producer_id"],
        producer_epoch=head["producer_epoch"],
        base_sequence=-1 if sequence < 0 else (sequence - (head["offset"] - base_offset)) & SEQUENCE_MAX,
        count=count,
    )


def _stored(header: BatchHeader, payload: bytes) -> StoredBatch:
    batch = wrap(header, payload) if header.count else empty_batch(header)
    return StoredBatch(read_header(batch), batch)


def _opaque(head: dict[str, Any], payload: bytes) -> StoredBatch:
    """Return a batch with undecoded records, and the header fields that were stored with them."""
    header = _header(head, head["batch_records"])._replace(length=LENGTH_MIN + len(payload))
    batch = bytearray(HEADER.pack(*header)) + payload
    seal(batch, 0, len(batch))
    return StoredBatch(read_header(batch), batch)
