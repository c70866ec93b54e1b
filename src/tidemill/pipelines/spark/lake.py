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
from tidemill.pipelines.lake.interface import Lake, Step

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.pipelines.lake.rows import Stage

FILES = "path string, rows bigint, size bigint, partition bigint, first bigint, last bigint"
NAME_DIGITS = 12


def into_lake(lake: Lake, checkpoint: Path, by: tuple[str, ...] = ()) -> Callable[[DataFrame, int], None]:
    """What foreachBatch does; `by` are the columns whose values become folders. Small files are put together."""
    from tidemill.pipelines.lake.compaction import OFTEN, compact, waiting  # noqa: PLC0415 - Arrow is loaded late
    from tidemill.pipelines.lake.rows import Stage  # noqa: PLC0415 - as above

    def add(rows: DataFrame, batch: int) -> None:
        query = query_of(checkpoint)
        lake.recover()
        if lake.holds(query, batch):
            return
        stage = Stage(str(lake.root), f"{batch:0{NAME_DIGITS}}-{uuid4().hex[:8]}", by, lake.keeps_columns)
        told = rows.mapInArrow(_staging(stage), FILES).collect()
        files = [LakeFile(**row.asDict()) for row in told]
        if files:
            lake.commit(Step(query, batch), files, schema_of(rows))
        if waiting(lake) >= OFTEN:
            compact(lake)

    return add


def query_of(checkpoint: Path) -> str:
    """The id that Spark gave the query when its checkpoint was made; no other query has it."""
    path = checkpoint / "metadata"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{path} does not tell the id of the query: {error}") from None


def _staging(stage: "Stage") -> Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def write(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        from tidemill.pipelines.lake.rows import stage_rows  # noqa: PLC0415 - as above

        context = TaskContext.get()
        return stage_rows(stage, context.taskAttemptId() if context else 0, batches)

    return write


def schema_of(rows: DataFrame) -> "pa.Schema":
    """The columns as Arrow has them."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - as above

    return to_arrow_schema(rows.schema, timezone="UTC")
