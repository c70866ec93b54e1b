"""Starts a pipeline: one query for each sink. The type of a sink makes the writer of its query."""

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidemill.pipelines.errors import GO_ON, GO_ON_ANEW, PipelineError, WrongOption
from tidemill.pipelines.spark.queries import Queries, line_of
from tidemill.pipelines.spark.views import make_views
from tidemill.pipelines.spec.core.spec import Sink, WrongSpec
from tidemill.pipelines.spec.folder import Folder, SinkRun

LOST_ADVICE = "write lost: skip at the source in pipeline.yml to continue with the records that exist"

Rows = DataFrame
RowsWriter = DataStreamWriter
"""Names for `tidemill.pipelines.sink`, which must not import PySpark."""
WriterOf = Callable[[DataFrame, SinkRun], DataStreamWriter]


def start_pipeline(
    spark: SparkSession,
    folder: Folder,
    writer_of: WriterOf,
    say: Callable[[str], None],
    *,
    once: bool,
    append: bool = False,
) -> Queries:
    """Start a query for each sink. When one cannot start, the others are stopped.

    `writer_of` makes the writer of a sink; see `tidemill.pipelines.sink.registry`.
    `append`: also add rows to lakes that have rows of other queries.
    """
    queries = Queries({}, dict.fromkeys((GO_ON, GO_ON_ANEW), LOST_ADVICE))
    every = None if once else folder.spec.every
    try:
        for sink in folder.spec.sinks:
            views = make_views(spark, folder, f"{folder.spec.name}-{sink.name}")
            _check(views[sink.view], sink)
            run = SinkRun(folder, sink, say, append)
            writer = writer_of(views[sink.view], run)
            writer = writer.option("checkpointLocation", str(run.checkpoint)).queryName(sink.name)
            trigger = writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)
            queries.add(sink.name, trigger.outputMode(sink.mode).start())
    except PySparkException as error:
        queries.stop()
        raise WrongSpec(f"{folder.root}: sinks.{sink.name}: {line_of(str(error))}") from None
    except WrongSpec:
        queries.stop()
        raise
    except PipelineError as error:
        queries.stop()
        raise WrongSpec(f"{folder.root}: sinks.{sink.name}: {error}") from None
    except BaseException:
        queries.stop()
        raise
    return queries


def _check(rows: DataFrame, sink: Sink) -> None:
    """Report errors that Spark would find only in the first micro-batch, or report without naming the key."""
    if not rows.isStreaming:
        raise WrongOption(f"{sink.view} reads none of the sources, so nothing would ever come of it")
    for column in sink.by:
        if column not in rows.columns:
            raise WrongOption(f"by names {column}, which {sink.view} has not; it has {', '.join(rows.columns)}")
