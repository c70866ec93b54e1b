"""The two implementations of the kernels, and reference results for both."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from tidemill.records.arrow import COLUMNS, Decoder, Kernels, load_kernels
from tidemill.records.header import Buffer
from tidemill.records.record import Record

KERNELS = ("python", "numba")
both = pytest.mark.parametrize("kernels", [pytest.param(name, id=name) for name in KERNELS])


def decoded(
    kernels: Kernels | str,
    buffer: Buffer,
    start: int = 0,
    end: int = 2**62,
    aborted: Iterable[tuple[int, int]] = (),
    columns: tuple[str, ...] = COLUMNS,
    **options: Any,
) -> pa.Table:
    """All rows of topic `t`, partition 3, validated by Arrow itself."""
    decoder = Decoder(
        "t", 3, columns=columns, kernels=load_kernels(kernels) if isinstance(kernels, str) else kernels, **options
    )
    batches = list(decoder.decode(buffer, start, end, aborted))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema=decoder.schema)


def row_of(record: Record, kind: int = 0) -> dict[str, Any]:
    """A record as a row, with the time in microseconds."""
    return {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": kind,
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, with the time in microseconds."""
    at = table.schema.get_field_index("timestamp")
    if at >= 0:
        table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
