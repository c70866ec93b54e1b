"""The compiled kernels: they allocate memory, call compiled functions, and wrap it into Arrow arrays without a copy."""

import zlib
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.model.errors import CorruptMessage
from tidemill.records.arrow.batch_builder import Draft
from tidemill.records.arrow.columns import Bytes, Columns, Runs, bytes_of, header_parts, list_offsets
from tidemill.records.arrow.compiled import partition as dealing
from tidemill.records.arrow.compiled import read as reading
from tidemill.records.arrow.compiled import scan as scanning
from tidemill.records.arrow.compiled import write as writing
from tidemill.records.arrow.schema import HEADER, SCHEMA
from tidemill.records.arrow.table import END, RECORDS, START, WIDTH, Table
from tidemill.records.header import HEADER_SIZE
from tidemill.records.read import RECORD_BYTES_MIN

# The table of CRC-32, derived from the CRCs of single bytes: crc32(byte) is table[byte ^ 0xFF] ^ 0xFF000000.
_CRC_TABLE = np.array([zlib.crc32(bytes([byte ^ 0xFF])) ^ 0xFF000000 for byte in range(256)], np.uint32)
_SCAN_REASONS = {
    scanning.BAD_HEADER: "the header of a record batch is impossible",
    scanning.BAD_OFFSET: "a record batch has an impossible offset",
}


_NONE = bytes_of(pa.nulls(0, pa.large_binary()))


class _ColumnMemory(NamedTuple):
    """The memory of a future binary column."""

    ends: npt.NDArray[np.int32]
    data: npt.NDArray[np.uint8]
    bits: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, rows: int, size: int) -> "_ColumnMemory":
        ends = np.empty(rows + 1, np.int32)
        ends[0] = 0
        return cls(ends, np.empty(size, np.uint8), _bits(rows))

    def array(self, kind: pa.DataType, rows: int, size: int, nulls: int) -> pa.Array:
        bits = pa.py_buffer(self.bits) if nulls else None
        return pa.Array.from_buffers(
            kind, rows, [bits, pa.py_buffer(self.ends[: rows + 1]), pa.py_buffer(self.data[:size])], nulls
        )


class _Prepared(NamedTuple):
    timestamps_ms: npt.NDArray[np.int64]
    keys: Bytes
    values: Bytes
    first: npt.NDArray[np.int64]
    names: Bytes
    contents: Bytes


class NumbaKernels:
    """Kernels that numba compiles at their first use, or loads from its cache."""

    name = "numba"

    def scan(self, data: memoryview, start: int, end: int, aborted: Sequence[tuple[int, int]]) -> Table:
        """Return the batches that `selection` chooses."""
        producers, firsts = np.array(aborted, np.int64).reshape(len(aborted), 2).T.copy()
        table = np.empty((len(data) // HEADER_SIZE, WIDTH), np.int64)
        opened = np.zeros(len(aborted), np.int8)
        lines = scanning.scan(_memory(data), start, end, producers, firsts, opened, table)
        if lines < 0:
            raise CorruptMessage(_SCAN_REASONS[lines])
        return table[:lines]

    def read(
        self, data: memoryview, table: Table, start: int, end: int, wanted: AbstractSet[str]
    ) -> dict[str, pa.Array]:
        """Return the wanted columns of the records with offsets from `start` to before `end`, and always `offset`."""
        memory = _memory(data)
        rows, size = _capacity_for(table)
        want = (int("key" in wanted), int("value" in wanted))
        keys, values = (_ColumnMemory.of(rows * each, size * each) for each in want)
        fixed = (np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int32), np.empty(rows, np.int64))
        totals = np.zeros(len(reading.TOTALS), np.int64)
        status = reading.read(memory, table, start, end, want, tuple(keys), tuple(values), fixed, totals)
        if status != reading.OK:
            raise CorruptMessage(reading.REASONS[status])
        found, key_bytes, value_bytes, key_nulls, value_nulls, *_ = totals.tolist()
        columns = {
            "offset": _fixed("offset", fixed[0], found),
            "timestamp": _fixed("timestamp", fixed[1], found),
            "timestampType": _fixed("timestampType", fixed[2], found),
        }
        if "key" in wanted:
            columns["key"] = keys.array(pa.binary(), found, key_bytes, key_nulls)
        if "value" in wanted:
            columns["value"] = values.array(pa.binary(), found, value_bytes, value_nulls)
        if "headers" in wanted:
            columns["headers"] = _headers(memory, fixed[3][:found], totals)
        return columns

    def prepare(self, columns: Columns) -> _Prepared:
        """Return the columns as memory."""
        keys, values = columns.keys, columns.values
        if columns.headers is None:
            first = np.zeros(len(columns.key) + 1, np.int64)
            return _read_only(_Prepared(columns.timestamps_ms, keys, values, first, _NONE, _NONE))
        names, contents = (bytes_of(part) for part in header_parts(columns.headers))
        first = list_offsets(columns.headers)
        return _read_only(_Prepared(columns.timestamps_ms, keys, values, first, names, contents))

    def write(self, prepared: _Prepared, rows: npt.NDArray[np.int64], draft: Draft) -> tuple[int, int, int]:
        """Append as many of these rows to a draft as it takes."""
        times, keys, values, first, names, contents = prepared
        begun = draft.end, draft.stop, draft.count, draft.base_time, draft.max_time
        parts = (times, tuple(keys), tuple(values), first, tuple(names), tuple(contents))
        count, end, latest = writing.write(draft.buffer, *begun, np.ascontiguousarray(rows), *parts)
        return int(count), int(end), int(latest)

    def write_runs(self, prepared: _Prepared, runs: Runs, capacity: int) -> list[bytes]:
        """Return the records of each run."""
        times, keys, values, first, names, contents = prepared
        out, out_ends = np.empty(capacity, np.uint8), np.zeros(len(runs.ends) + 1, np.int64)
        parts = (times, tuple(keys), tuple(values), first, tuple(names), tuple(contents))
        writing.write_runs(out, *(_frozen(np.ascontiguousarray(part)) for part in runs), out_ends[1:], *parts)
        places = out_ends.tolist()
        return [out[start:end].tobytes() for start, end in pairwise(places)]

    def by_crc32(self, columns: Columns, count: int, unkeyed: int) -> npt.NDArray[np.int64]:
        """Assign partitions by the CRC-32 of each key."""
        data, offsets, valid = columns.keys
        out = np.empty(len(valid), np.int64)
        dealing.by_crc32(_frozen(data), _frozen(offsets), _frozen(valid), _CRC_TABLE, count, unkeyed, out)
        return out

    def by_murmur2(self, columns: Columns, count: int, unkeyed: int) -> npt.NDArray[np.int64]:
        """Assign partitions by Kafka's murmur2 of each key."""
        data, offsets, valid = columns.keys
        out = np.empty(len(valid), np.int64)
        dealing.by_murmur2(_frozen(data), _frozen(offsets), _frozen(valid), count, unkeyed, out)
        return out

    def dealt(self, partitions: npt.NDArray[np.int64], count: int) -> dict[int, npt.NDArray[np.int64]]:
        """Return the rows of each partition."""
        ends, rows = np.zeros(count, np.int64), np.empty(len(partitions), np.int64)
        dealing.deal(partitions, ends, rows)
        places = enumerate(pairwise((0, *ends.tolist())))
        return {partition: rows[start:end] for partition, (start, end) in places if end > start}


def _memory(data: memoryview) -> npt.NDArray[np.uint8]:
    memory = np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)
    memory.flags.writeable = False
    return memory


def _capacity_for(table: Table) -> tuple[int, int]:
    """Return the largest possible number of rows and bytes of these records."""
    sizes = table[:, END] - table[:, START]
    if (table[:, RECORDS] * RECORD_BYTES_MIN > sizes).any():
        raise CorruptMessage("a batch counts more records than its bytes can hold")
    return int(table[:, RECORDS].sum()), int(sizes.sum())


def _headers(
    memory: npt.NDArray[np.uint8], headers_at: npt.NDArray[np.int64], totals: npt.NDArray[np.int64]
) -> pa.Array:
    rows = len(headers_at)
    entries, name_bytes, content_bytes = (
        int(totals[each]) for each in (reading.ENTRIES, reading.NAME_BYTES, reading.CONTENT_BYTES)
    )
    ends, bits = np.zeros(rows + 1, np.int32), _bits(rows)
    names, contents = _ColumnMemory.of(entries, name_bytes), _ColumnMemory.of(entries, content_bytes)
    without = reading.read_headers(memory, headers_at, ends, bits, tuple(names), tuple(contents))
    keys = _text(names.array(pa.binary(), entries, name_bytes, 0))
    values = contents.array(pa.binary(), entries, content_bytes, -1 if entries else 0)
    structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER))
    buffers = [pa.py_buffer(bits) if without else None, pa.py_buffer(ends)]
    return pa.Array.from_buffers(SCHEMA.field("headers").type, rows, buffers, int(without), children=[structs])


def _text(keys: pa.Array) -> pa.Array:
    """Return header keys as text. Invalid UTF-8 is replaced, as Java does."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())


def _fixed(name: str, values: "npt.NDArray[np.int64] | npt.NDArray[np.int32]", rows: int) -> pa.Array:
    return pa.Array.from_buffers(SCHEMA.field(name).type, rows, [None, pa.py_buffer(values[:rows])], 0)


def _bits(rows: int) -> npt.NDArray[np.uint8]:
    return np.zeros((rows + 7) // 8, np.uint8)


def _read_only(prepared: _Prepared) -> _Prepared:
    for part in prepared:
        for array in (part,) if isinstance(part, np.ndarray) else part:
            array.flags.writeable = False
    return prepared


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


KERNELS = NumbaKernels()
