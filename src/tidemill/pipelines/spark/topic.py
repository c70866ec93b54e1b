"""Micro-batches into a topic in every output mode: Spark gives sinks like format("tidemill") those of append only.

Tasks and driver do what the writers of `sink` do, under the same names; see `tidemill.pipelines.writing`. When a task
fails, the transactions of the others stay open until the micro-batch runs again, or until their timeout.
"""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidemill.client.raw import RawClient
from tidemill.pipelines.core.sink import SinkOptions
from tidemill.pipelines.spark.lake import query_of

if TYPE_CHECKING:
    import pyarrow as pa


def into_topic(options: SinkOptions, checkpoint: Path) -> Callable[[DataFrame, int], None]:
    """What foreachBatch does."""

    def add(rows: DataFrame, batch: int) -> None:
        from tidemill.pipelines.writing import commit  # noqa: PLC0415 - kernels are loaded where they work

        write = _writing(options, query_of(checkpoint), batch)
        told = rows.mapInArrow(write, "told binary").collect()
        with RawClient(options.client) as client:
            commit(client, [pickle.loads(bytes(row["told"])) for row in told], batch)  # noqa: S301 - own tasks wrote it

    return add


def _writing(
    options: SinkOptions, query: str, batch: int
) -> Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def write(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa  # noqa: PLC0415 - as above

        from tidemill.pipelines.writing import TaskWriter  # noqa: PLC0415 - as above

        context = TaskContext.get()
        name = f"tidemill-{query}-{context.partitionId() if context else 0}"
        with RawClient(options.client) as client:
            written = TaskWriter(client, options, name, batch).write(batches)
        yield pa.RecordBatch.from_pydict({"told": [pickle.dumps(written)]}, schema=pa.schema([("told", pa.binary())]))

    return write
