"""The columns that become records: taken from an Arrow record batch, checked and normalised.

`key` and `value` may be binary or text (large or not) or missing. `headers` is a list of (key, value) structs. A
missing or null `timestamp` gets the given time. Other columns are ignored.
"""

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.model.errors import InvalidRecord
from tidemill.records.arrow.schema import HEADER

# The largest overhead of a record: four lengths of 5 bytes, the attributes, a delta of 10 and one of 5.
RECORD_OVERHEAD_BYTES = 36
HEADER_OVERHEAD_BYTES = 10


class Bytes(NamedTuple):
    """A binary column as its memory: item i is data[offsets[i]:offsets[i + 1]], unless it is null."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]


class Runs(NamedTuple):
    """Runs of adjacent rows that were batches and become the same batches again. Every row belongs to a run."""

    ends: npt.NDArray[np.int64]  # for each run, the row after its last
    base_times: npt.NDArray[np.int64]  # for each run, the base timestamp of its batch
    deltas: npt.NDArray[np.int64]  # for each row, its offset within its batch


class Columns(NamedTuple):
    """The parts of the records. All have the same number of rows."""

    key: pa.Array  # binary, large or not
    value: pa.Array  # binary, large or not
    keys: Bytes
    values: Bytes
    headers: pa.ListArray | None
    timestamps_ms: npt.NDArray[np.int64]

    @classmethod
    def of(cls, batch: pa.RecordBatch, now_ms: int) -> Self:
        """Return the columns of a record batch. InvalidRecord names a column that cannot be written."""
        headers = _column(batch, "headers")
        return cls.laid(
            _binary(batch, "key"),
            _binary(batch, "value"),
            None if headers is None else _headers(headers),
            _timestamps(_column(batch, "timestamp"), batch.num_rows, now_ms),
        )

    @classmethod
    def laid(
        cls, key: pa.Array, value: pa.Array, headers: pa.ListArray | None, timestamps_ms: npt.NDArray[np.int64]
    ) -> Self:
        """Return the columns with their memory."""
        return cls(key, value, bytes_of(key), bytes_of(value), headers, timestamps_ms)

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the largest number of bytes that each row can take as a record."""
        sizes = np.full(len(self.key), RECORD_OVERHEAD_BYTES, np.int64)
        sizes += np.diff(self.keys.offsets)
        sizes += np.diff(self.values.offsets)
        if self.headers is not None:
            first = list_offsets(self.headers)
            names, values = (bytes_of(part) for part in header_parts(self.headers))
            each = np.diff(names.offsets) + np.diff(values.offsets) + HEADER_OVERHEAD_BYTES
            ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(each)])
            sizes += np.diff(ends[first])
        return sizes


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    if index < 0 or pa.types.is_null(batch.column(index).type):
        return None
    return batch.column(index)


def _binary(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = _column(batch, name)
    if column is None:
        return pa.nulls(batch.num_rows, pa.binary())
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return column.view(pa.binary())
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return column.view(pa.large_binary())
    raise InvalidRecord(f"column {name} has type {kind}, which cannot be written; use binary or string")


def _headers(column: pa.Array) -> pa.ListArray:
    try:
        column = column.cast(pa.list_(HEADER))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InvalidRecord(
            f"column headers has type {column.type}, which cannot be written; "
            "use list<struct<key: string, value: binary>>"
        ) from None
    if column.flatten().field("key").null_count:
        raise InvalidRecord("a header key is null; set it or remove the header")
    return column


def _timestamps(column: pa.Array | None, rows: int, now_ms: int) -> npt.NDArray[np.int64]:
    if column is None:
        return np.full(rows, now_ms, np.int64)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_int64(column.type):
        raise InvalidRecord(f"column timestamp has type {column.type}, which cannot be written; use timestamp or long")
    filled: npt.NDArray[np.int64] = pc.fill_null(column, now_ms).to_numpy(zero_copy_only=False)
    return filled


def bytes_of(column: pa.Array) -> Bytes:
    """Return the memory of a binary or text column."""
    _, offsets, data = column.buffers()
    rows = len(column)
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    if offsets is None or rows == 0:
        placed = np.zeros(rows + 1, np.int64)
    elif wide:
        placed = np.frombuffer(offsets, np.int64, rows + 1, column.offset * 8)
    else:
        placed = np.frombuffer(offsets, np.int32, rows + 1, column.offset * 4).astype(np.int64)
    memory = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return Bytes(memory, placed, valid_of(column))


def valid_of(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which rows are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def header_parts(headers: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    """Return the keys and values of all headers of all rows, concatenated."""
    entries = headers.flatten()
    return entries.field("key"), entries.field("value")


def list_offsets(headers: pa.ListArray) -> npt.NDArray[np.int64]:
    """Return where the headers of each row start in the concatenation, and its end."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
