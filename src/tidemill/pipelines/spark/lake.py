"""Micro-batches into a lake: tasks write files, the driver commits them under the number of the micro-batch."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidemill.pipelines.core.errors import PipelineError
from tidemill.pipelines.core.lake import LakeFile
from tidemill.pipelines.lake.interface import CommitStep, Lake, check_rows, never_null

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.pipelines.lake.rows import StagedRows

FILES = "path string, rows bigint, size bigint, partition bigint, first bigint, last bigint"
NAME_DIGITS = 12
METADATA = "metadata"
"""Where Spark keeps the id of a query in its checkpoint."""


def into_lake(
    lake: Lake, checkpoint: Path, by: tuple[str, ...] = (), *, of_topic: bool = False
) -> Callable[[DataFrame, int], None]:
    """What foreachBatch does; `by` are the columns whose values become folders. Small files are put together.

    `of_topic`: the columns topic, partition and offset are those of the records, and not the view's own.
    """
    from tidemill.pipelines.lake.compaction import OFTEN, compact, waiting  # noqa: PLC0415 - Arrow is loaded late
    from tidemill.pipelines.lake.rows import StagedRows  # noqa: PLC0415 - as above

    def add(rows: DataFrame, batch: int) -> None:
        query = query_of(checkpoint)
        lake.recover()
        if lake.holds(query, batch):
            return
        schema = schema_of(rows)
        check_rows(lake, schema, by)
        name = f"{batch:0{NAME_DIGITS}}-{uuid4().hex[:8]}"
        stage = StagedRows(str(lake.root), name, by, lake.keeps_columns, of_topic, never_null(lake))
        told = rows.mapInArrow(_staging(stage), FILES).collect()
        files = [LakeFile(**row.asDict()) for row in told]
        if files:
            lake.commit(CommitStep(query, batch), files, schema)
        if waiting(lake) >= OFTEN:
            compact(lake)

    return add


def check_continues(lake: Lake, checkpoint: Path) -> None:
    """Refuse to write to a lake whose rows are not of the query with this checkpoint: they would come twice."""
    known = (checkpoint / METADATA).exists() and lake.holds(query_of(checkpoint), 0)
    if not known and lake.files():
        raise PipelineError(
            f"{lake.root} has rows that the checkpoint {checkpoint} does not know, which could come twice; "
            "restore the checkpoint, write to another folder, or give --append to add rows all the same"
        )


def query_of(checkpoint: Path) -> str:
    """The id that Spark gave the query when its checkpoint was made; no other query has it."""
    path = checkpoint / METADATA
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path} does not tell the id of the query: {error}") from None


def _staging(stage: "StagedRows") -> Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def write(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        from tidemill.pipelines.lake.rows import stage_rows  # noqa: PLC0415 - as above

        context = TaskContext.get()
        return stage_rows(stage, context.taskAttemptId() if context else 0, batches)

    return write


def schema_of(rows: DataFrame) -> "pa.Schema":
    """The columns as Arrow has them, with Spark's flags of which may be null: a lake compares them with its own."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - as above

    return to_arrow_schema(rows.schema, timezone="UTC")
