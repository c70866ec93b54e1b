"""The reference kernels: one record at a time, with the code that the broker uses for records."""

import zlib
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.records.arrow.batch_builder import Draft
from tidemill.records.arrow.columns import Columns, Runs, header_parts, list_offsets
from tidemill.records.arrow.schema import MICROSECONDS, SCHEMA, TIMESTAMP_MS_MAX
from tidemill.records.arrow.selection import select
from tidemill.records.arrow.table import END, START, Table, header_of, table_of
from tidemill.records.build import NewRecord, encode_records
from tidemill.records.hashing import murmur2
from tidemill.records.read import scan_records
from tidemill.records.record import Headers


class PythonKernels:
    """Kernels without compilation."""

    name = "python"

    def scan(self, data: memoryview, start: int, end: int, aborted: Sequence[tuple[int, int]]) -> Table:
        """Return the batches that `selection` chooses."""
        return table_of(select(data, start, end, aborted))

    def read(
        self, data: memoryview, table: Table, start: int, end: int, wanted: AbstractSet[str]
    ) -> dict[str, pa.Array]:
        """Return the wanted columns of the records with offsets from `start` to before `end`, and always `offset`."""
        rows: dict[str, list[Any]] = {name: [] for name in {*wanted, "offset"} - {"topic", "partition"}}
        for line in table.tolist():
            header = header_of(line)
            kind = int(header.log_append_time)
            for record in scan_records(bytes(data[line[START] : line[END]]), header):
                if not start <= record.offset < end:
                    continue
                row = {**record._asdict(), "timestampType": kind}
                row["timestamp"] = microseconds(record.timestamp)
                row["headers"] = [{"key": key, "value": value} for key, value in record.headers] or None
                for name, values in rows.items():
                    values.append(row[name])
        return {name: _array(name, values) for name, values in rows.items()}

    def prepare(self, columns: Columns) -> list[NewRecord]:
        """Return the rows as records."""
        headers = _header_tuples(columns)
        parts = zip(
            columns.key.to_pylist(),
            columns.value.to_pylist(),
            headers,
            columns.timestamps_ms.tolist(),
            strict=True,
        )
        return [NewRecord(*part) for part in parts]

    def write(self, prepared: list[NewRecord], rows: npt.NDArray[np.int64], draft: Draft) -> tuple[int, int, int]:
        """Append as many of these rows to a draft as it takes."""
        count, end, latest = 0, draft.end, draft.max_time
        for row in rows.tolist():
            payload = encode_records([prepared[row]], draft.base_time, [draft.count + count])
            if end + len(payload) > draft.stop:
                break
            draft.buffer[end : end + len(payload)] = np.frombuffer(payload, np.uint8)
            count, end, latest = count + 1, end + len(payload), max(latest, prepared[row].timestamp)
        return count, end, latest

    def write_runs(self, prepared: list[NewRecord], runs: Runs, capacity: int) -> list[bytes]:  # noqa: ARG002 - lists grow
        """Return the records of each run."""
        written, start = [], 0
        deltas = runs.deltas.tolist()
        for end, base_time in zip(runs.ends.tolist(), runs.base_times.tolist(), strict=True):
            written.append(encode_records(prepared[start:end], base_time, deltas[start:end]))
            start = end
        return written

    def by_crc32(self, columns: Columns, count: int, unkeyed: int) -> npt.NDArray[np.int64]:
        """Assign partitions by the CRC-32 of each key."""
        return np.array([zlib.crc32(key) % count if key else unkeyed for key in columns.key.to_pylist()], np.int64)

    def by_murmur2(self, columns: Columns, count: int, unkeyed: int) -> npt.NDArray[np.int64]:
        """Assign partitions by Kafka's murmur2 of each key."""
        chosen = [unkeyed if key is None else _positive(key) % count for key in columns.key.to_pylist()]
        return np.array(chosen, np.int64)

    def dealt(self, partitions: npt.NDArray[np.int64], count: int) -> dict[int, npt.NDArray[np.int64]]:  # noqa: ARG002 - dicts grow
        """Return the rows of each partition."""
        rows: dict[int, list[int]] = {}
        for row, partition in enumerate(partitions.tolist()):
            rows.setdefault(partition, []).append(row)
        return {partition: np.array(rows[partition], np.int64) for partition in sorted(rows)}


def _positive(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


def microseconds(timestamp_ms: int) -> int:
    """Return a time in Spark's unit, clamped to its range."""
    return max(-TIMESTAMP_MS_MAX, min(timestamp_ms, TIMESTAMP_MS_MAX)) * MICROSECONDS


def _array(name: str, values: list[Any]) -> pa.Array:
    kind = SCHEMA.field(name).type
    if name == "timestamp":
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _header_tuples(columns: Columns) -> list[Headers]:
    if columns.headers is None:
        return [()] * len(columns.key)
    first = list_offsets(columns.headers).tolist()
    names, values = (part.to_pylist() for part in header_parts(columns.headers))
    entries = list(zip(names, values, strict=True))
    return [tuple(entries[start:end]) for start, end in pairwise(first)]


KERNELS = PythonKernels()
