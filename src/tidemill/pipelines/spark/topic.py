"""Writes micro-batches to a topic in every output mode. Spark gives format("tidemill") sinks append mode only.

Driver and tasks do the same as the writers of `sink`, under the same names; see `tidemill.pipelines.topic.committing`.
"""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual alias

from tidemill.client.kafka import KafkaClient
from tidemill.pipelines.spark.lake import query_of
from tidemill.pipelines.spark.worker import settled
from tidemill.pipelines.spec.core.spec import Sink
from tidemill.pipelines.topic.committing import CommitPlan, abandon, begin, commit
from tidemill.pipelines.topic.core.options import COLUMN_TYPES, SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa


def records_of(rows: DataFrame, sink: Sink) -> DataFrame:
    """Rows as records: unchanged when they have a value, otherwise as JSON."""
    if sink.key is None:
        return rows if "value" in rows.columns else rows.select(_as_json())
    # Bytes stay bytes, because they may be no valid text.
    [(_, kind)] = rows.select(sink.key).dtypes
    key = F.col(sink.key).cast("binary" if kind == "binary" else "string").alias("key")
    if "value" not in rows.columns:
        return rows.select(key, _as_json())
    replaced = {"key"} | {sink.key.lower()} - COLUMN_TYPES.keys()
    return rows.select(key, *(name for name in rows.columns if name.lower() not in replaced))


def _as_json() -> Column:
    return F.to_json(F.struct("*")).alias("value")


def into_topic(options: SinkOptions, checkpoint: Path) -> Callable[[DataFrame, int], None]:
    """The function for foreachBatch."""
    begun: CommitPlan | None = None

    def add(rows: DataFrame, batch: int) -> None:
        nonlocal begun
        query = query_of(checkpoint)
        sink = f"tidemill-{query}"
        with KafkaClient(options.client) as client:
            plan = begun = begin(client, sink, begun)
            try:
                results = rows.mapInArrow(_writing(options, plan, query, batch), "written binary").collect()
                commit(client, plan, [pickle.loads(bytes(row["written"])) for row in results], query, batch)  # noqa: S301 - our own tasks wrote it
            except BaseException:
                abandon(client, sink)
                raise

    return add


def _writing(
    options: SinkOptions, plan: CommitPlan, query: str, batch: int
) -> Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def write(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa  # noqa: PLC0415 - loaded only where they are used

        from tidemill.pipelines.topic.writing import TaskAttempt, write_micro_batch  # noqa: PLC0415 - as above

        context = TaskContext.get()
        place = TaskAttempt(context.partitionId(), context.attemptNumber()) if context else TaskAttempt(0)
        with settled(), KafkaClient(options.client) as client:
            written = write_micro_batch(client, options, plan, place, batches, of=(query, batch))
        yield pa.RecordBatch.from_pydict(
            {"written": [pickle.dumps(written)]}, schema=pa.schema([("written", pa.binary())])
        )

    return write
