"""The sinks of a pipeline: one query each, every micro-batch once where the target allows it.

Topics and lakes recognise a micro-batch that runs again. A timeline takes a message of the same id once. The console
shows rows again after a crash.
"""

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidemill.client.timeline import Message, Timeline
from tidemill.pipelines.core.errors import WrongOption
from tidemill.pipelines.core.sink import check_columns, parse_sink
from tidemill.pipelines.core.spec import Kind, Sink, WrongSpec
from tidemill.pipelines.folder import Folder
from tidemill.pipelines.lake.opening import open_lake
from tidemill.pipelines.spark.lake import into_lake
from tidemill.pipelines.spark.queries import Queries, line_of
from tidemill.pipelines.spark.topic import into_topic
from tidemill.pipelines.spark.views import make_views

CONSOLE_ROWS_MAX = 20
MESSAGES = 1_000
"""How many messages are handed to a timeline at a time."""

Say = Callable[[str], None]


def start_pipeline(spark: SparkSession, folder: Folder, say: Say, *, once: bool) -> Queries:
    """Start a query for each sink; none is left running when one cannot be started."""
    queries = Queries({})
    every = None if once else folder.spec.every
    try:
        for sink in folder.spec.sinks:
            views = make_views(spark, folder, f"{folder.spec.name}-{sink.name}")
            writer = _writer(views[sink.view], folder, sink, say)
            writer = writer.option("checkpointLocation", str(folder.checkpoint(sink.name))).queryName(sink.name)
            trigger = writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)
            queries.add(sink.name, trigger.outputMode(sink.mode).start())
    except (PySparkException, WrongOption) as error:
        queries.stop()
        raise WrongSpec(f"{folder.root}: sinks.{sink.name}: {line_of(str(error))}") from None
    except BaseException:
        queries.stop()
        raise
    return queries


def _writer(rows: DataFrame, folder: Folder, sink: Sink, say: Say) -> DataStreamWriter:
    if sink.kind is Kind.TOPIC:
        records = _records(rows, sink)
        check_columns({field.name: field.dataType.simpleString() for field in records.schema.fields}, sink.target)
        options = parse_sink({"kafka.bootstrap.servers": folder.spec.broker, "topic": sink.target}, streaming=True)
        return records.writeStream.foreachBatch(into_topic(options, folder.checkpoint(sink.name)))
    if sink.kind is Kind.PARQUET:
        lake = open_lake(folder.root / sink.target)
        return rows.writeStream.foreachBatch(into_lake(lake, folder.checkpoint(sink.name), sink.by))
    if sink.kind is Kind.CONSOLE:
        return rows.writeStream.foreachBatch(_shown(sink, say))
    return _messages(rows, sink).writeStream.foreachBatch(_scheduled(folder.spec.timelines, sink.target))


def _records(rows: DataFrame, sink: Sink) -> DataFrame:
    """Rows as records: as they are when they have a value, otherwise as JSON."""
    value = F.col("value") if "value" in rows.columns else F.to_json(F.struct("*")).alias("value")
    if sink.key is not None:
        return rows.select(F.col(sink.key).cast("string").alias("key"), value)
    return rows if "value" in rows.columns else rows.select(value)


def _shown(sink: Sink, say: Say) -> Callable[[DataFrame, int], None]:
    def show(rows: DataFrame, batch: int) -> None:
        del batch
        found = rows.select(F.to_json(F.struct("*"))).take(CONSOLE_ROWS_MAX + 1)
        for row in found[:CONSOLE_ROWS_MAX]:
            say(f"{sink.name}  {row[0]}")
        if len(found) > CONSOLE_ROWS_MAX:
            say(f"{sink.name}  ... and more")

    return show


def _messages(rows: DataFrame, sink: Sink) -> DataFrame:
    named = sink.columns or {}
    key = F.lit(None) if sink.key is None else F.col(sink.key)
    return rows.select(
        F.col(named["id"]).cast("string").alias("id"),
        F.unix_millis(F.col(named["due"]).cast("timestamp")).alias("due_ms"),
        F.col(named["body"]).cast("string").alias("body"),
        key.cast("string").alias("key"),
    )


def _scheduled(address: str, name: str) -> Callable[[DataFrame, int], None]:
    def schedule(rows: DataFrame, batch: int) -> None:
        del batch
        waiting: list[Message] = []
        with Timeline(address, name) as timeline:
            for row in rows.toLocalIterator():
                key = None if row["key"] is None else str(row["key"]).encode()
                waiting.append(Message(str(row["body"]).encode(), row["due_ms"] / 1000, id=row["id"], key=key))
                if len(waiting) == MESSAGES:
                    timeline.schedule(waiting)
                    waiting.clear()
            timeline.schedule(waiting)

    return schedule
