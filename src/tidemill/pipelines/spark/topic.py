"""Writes micro-batches to a topic in every output mode. Spark gives format("tidemill") sinks append mode only.

Driver and tasks do the same as the writers of `sink`, under the same names; see `tidemill.pipelines.committing`.
"""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidemill.client.kafka import KafkaClient
from tidemill.pipelines.committing import CommitPlan, abandon, begin, commit
from tidemill.pipelines.core.sink import SinkOptions
from tidemill.pipelines.spark.lake import query_of
from tidemill.pipelines.spark.worker import settled

if TYPE_CHECKING:
    import pyarrow as pa


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

        from tidemill.pipelines.writing import TaskAttempt, write_micro_batch  # noqa: PLC0415 - as above

        context = TaskContext.get()
        place = TaskAttempt(context.partitionId(), context.attemptNumber()) if context else TaskAttempt(0)
        with settled(), KafkaClient(options.client) as client:
            written = write_micro_batch(client, options, plan, place, batches, of=(query, batch))
        yield pa.RecordBatch.from_pydict(
            {"written": [pickle.dumps(written)]}, schema=pa.schema([("written", pa.binary())])
        )

    return write
