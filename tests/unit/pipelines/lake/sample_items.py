"""Rows of a view with every kind of column, and a lake of them."""

import pyarrow as pa

from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.interface import CommitStep, Lake, never_null
from tidemill.pipelines.lake.rows import StagedRows, stage_rows

KEPT = pa.schema(
    [
        ("item", pa.string()),
        ("price", pa.float64()),
        ("small", pa.int16()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.struct([("name", pa.string()), ("weight", pa.int8())]))),
    ]
)


def values(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(3, field.type) for field in schema], schema=schema)


def write(lake: Lake, batch: int, rows: pa.RecordBatch, by: tuple[str, ...] = ("item",)) -> None:
    stage = StagedRows(
        str(lake.root), f"{batch:04}", by, lake.keeps_columns, of_topic=False, never_null=never_null(lake)
    )
    files = [LakeFile(**row) for each in stage_rows(stage, 0, [rows]) for row in each.to_pylist()]
    lake.commit(CommitStep("q", batch), files, rows.schema)
