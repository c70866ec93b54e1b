"""The sinks of a pipeline: one query each, every micro-batch once where the target allows it.

Topics, lakes and tables recognise a micro-batch that runs again. A timeline takes a message of the same id once. The
console shows rows again after a crash.
"""

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidemill.pipelines.core.addresses import TableAddress, parse_address
from tidemill.pipelines.core.errors import GO_ON, GO_ON_ANEW, PipelineError, WrongOption
from tidemill.pipelines.core.sink import COLUMN_TYPES, check_columns, parse_sink
from tidemill.pipelines.core.spec import LAKES, Format, Sink, SinkKind, WrongSpec
from tidemill.pipelines.folder import Folder
from tidemill.pipelines.lake.interface import check_rows
from tidemill.pipelines.lake.opening import open_lake
from tidemill.pipelines.spark.clickhouse import TableTarget, into_table
from tidemill.pipelines.spark.lake import check_continues, into_lake, schema_of
from tidemill.pipelines.spark.queries import Queries, line_of
from tidemill.pipelines.spark.timeline import into_timeline, messages_of
from tidemill.pipelines.spark.topic import into_topic
from tidemill.pipelines.spark.views import make_views

CONSOLE_ROWS_MAX = 20
LOST_ADVICE = "write lost: skip at the source in pipeline.yml to go on with what is there"

Say = Callable[[str], None]


def start_pipeline(spark: SparkSession, folder: Folder, say: Say, *, once: bool, append: bool = False) -> Queries:
    """Start a query for each sink; none is left running when one cannot be started.

    `append`: rows are added to lakes that hold others than those of this pipeline.
    """
    queries = Queries({}, dict.fromkeys((GO_ON, GO_ON_ANEW), LOST_ADVICE))
    every = None if once else folder.spec.every
    try:
        for sink in folder.spec.sinks:
            views = make_views(spark, folder, f"{folder.spec.name}-{sink.name}")
            _check(views[sink.view], sink)
            if sink.kind in LAKES:
                _check_lake(views[sink.view], folder, sink, append=append)
            writer = _writer(views[sink.view], folder, sink, say)
            writer = writer.option("checkpointLocation", str(folder.checkpoint(sink.name))).queryName(sink.name)
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
    """What would only be found in the first micro-batch, or told in words that are not the user's."""
    if not rows.isStreaming:
        raise WrongOption(f"{sink.view} reads none of the sources, so nothing would ever come of it")
    for column in sink.by:
        if column not in rows.columns:
            raise WrongOption(f"by names {column}, which {sink.view} has not; it has {', '.join(rows.columns)}")


def _check_lake(rows: DataFrame, folder: Folder, sink: Sink, *, append: bool) -> None:
    """Refuse rows that the lake cannot take, and a lake that another query has filled."""
    from tidemill.pipelines.core.layout import check_storable, layout_of  # noqa: PLC0415 - Arrow is loaded late

    lake = open_lake(folder.root / sink.target, sink.kind)
    lake.recover()
    schema = schema_of(rows)
    check_storable(layout_of(schema, sink.by))
    check_rows(lake, schema, sink.by)
    if not append:
        check_continues(lake, folder.checkpoint(sink.name))


def _of_topic(folder: Folder, view: str) -> bool:
    """Whether a view is a topic as it is."""
    return any(source.name == view and source.format is Format.RAW for source in folder.spec.sources)


def _writer(rows: DataFrame, folder: Folder, sink: Sink, say: Say) -> DataStreamWriter:
    if sink.kind is SinkKind.TOPIC:
        records = records_of(rows, sink)
        check_columns({field.name: field.dataType.simpleString() for field in records.schema.fields}, sink.target)
        options = parse_sink({**folder.spec.kafka, "topic": sink.target}, streaming=True)
        return records.writeStream.foreachBatch(into_topic(options, folder.checkpoint(sink.name)))
    if sink.kind in LAKES:
        lake = open_lake(folder.root / sink.target, sink.kind)
        of_topic = _of_topic(folder, sink.view)
        return rows.writeStream.foreachBatch(into_lake(lake, folder.checkpoint(sink.name), sink.by, of_topic=of_topic))
    if sink.kind is SinkKind.CONSOLE:
        return rows.writeStream.foreachBatch(_shown(sink, say))
    named = sink.columns or {}
    if sink.kind is SinkKind.CLICKHOUSE:
        target = TableTarget(_place(folder, sink), named["table"], sink.by)
        return rows.writeStream.foreachBatch(into_table(target, folder.checkpoint(sink.name)))
    messages = messages_of(rows, named, sink.key)
    return messages.writeStream.foreachBatch(
        into_timeline(folder.spec.timelines, sink.target, folder.checkpoint(sink.name))
    )


def _place(folder: Folder, sink: Sink) -> TableAddress:
    """Where the table is; the folder of an embedded engine is named from that of the pipeline."""
    address = parse_address(sink.target)
    return address._replace(path=str((folder.root / address.path).absolute())) if address.path else address


def records_of(rows: DataFrame, sink: Sink) -> DataFrame:
    """Rows as records: as they are when they have a value, otherwise as JSON."""
    if sink.key is None:
        return rows if "value" in rows.columns else rows.select(_as_json())
    # Bytes stay what they are: not all of them are text.
    [(_, kind)] = rows.select(sink.key).dtypes
    key = F.col(sink.key).cast("binary" if kind == "binary" else "string").alias("key")
    if "value" not in rows.columns:
        return rows.select(key, _as_json())
    replaced = {"key"} | {sink.key.lower()} - COLUMN_TYPES.keys()
    return rows.select(key, *(name for name in rows.columns if name.lower() not in replaced))


def _as_json() -> Column:
    return F.to_json(F.struct("*")).alias("value")


def _shown(sink: Sink, say: Say) -> Callable[[DataFrame, int], None]:
    def show(rows: DataFrame, batch: int) -> None:
        del batch
        found = rows.select(F.to_json(F.struct("*"))).take(CONSOLE_ROWS_MAX + 1)
        for row in found[:CONSOLE_ROWS_MAX]:
            say(f"{sink.name}  {row[0]}")
        if len(found) > CONSOLE_ROWS_MAX:
            say(f"{sink.name}  ... and more")

    return show
