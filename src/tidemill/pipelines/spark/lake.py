"""Writes micro-batches to a lake. Tasks write files, and the driver commits them under the micro-batch number."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.interface import CommitStep, Lake, check_rows, never_null

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.pipelines.lake.rows import StagedRows

FILES = "path string, rows bigint, size bigint, partition bigint, first bigint, last bigint"
NAME_DIGITS = 12
METADATA = "metadata"
"""Where Spark stores the id of a query in its checkpoint."""


def into_lake(
    lake: Lake, checkpoint: Path, by: tuple[str, ...] = (), *, of_topic: bool = False
) -> Callable[[DataFrame, int], None]:
    """The function for foreachBatch. The values of the columns `by` become folders. Small files are merged.

    `of_topic`: the columns topic, partition and offset are those of the records, not the view's own.
    """
    from tidemill.pipelines.lake.compaction import OFTEN, compact, waiting  # noqa: PLC0415 - loaded only where it is used
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
        staged = rows.mapInArrow(_staging(stage), FILES).collect()
        files = [LakeFile(**row.asDict()) for row in staged]
        if files:
            lake.commit(CommitStep(query, batch), files, schema)
        if waiting(lake) >= OFTEN:
            compact(lake)

    return add


def check_continues(lake: Lake, checkpoint: Path) -> None:
    """Refuse to write to a lake whose rows are from another query than this checkpoint's: rows could be duplicated."""
    known = (checkpoint / METADATA).exists() and lake.holds(query_of(checkpoint), 0)
    if not known and lake.files():
        raise PipelineError(
            f"{lake.root} has rows that are not in the checkpoint {checkpoint}, so rows could be duplicated;  "
            "restore the checkpoint, write to another folder, or give --append to add rows anyway"
        )


def query_of(checkpoint: Path) -> str:
    """The id that Spark gave the query when it created the checkpoint. It is unique to the query."""
    path = checkpoint / METADATA
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path} does not contain the id of the query: {error}") from None


def _staging(stage: "StagedRows") -> Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def write(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        from tidemill.pipelines.lake.rows import stage_rows  # noqa: PLC0415 - as above

        context = TaskContext.get()
        return stage_rows(stage, context.taskAttemptId() if context else 0, batches)

    return write


def schema_of(rows: DataFrame) -> "pa.Schema":
    """The columns as an Arrow schema, with Spark's nullable flags. A lake compares it with its own."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - as above

    return to_arrow_schema(rows.schema, timezone="UTC")
