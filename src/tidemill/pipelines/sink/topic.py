"""A topic. Every micro-batch is one transaction, so it is written once."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill.pipelines.sink.sink_type import SinkType
from tidemill.pipelines.spec.core.section import Section
from tidemill.pipelines.spec.core.spec import Sink, Spec
from tidemill.pipelines.spec.folder import SinkRun
from tidemill.pipelines.topic.core.options import check_columns, parse_sink

if TYPE_CHECKING:
    from tidemill.pipelines.spark.sinks import Rows, RowsWriter


class TopicSink(SinkType):
    """Writes rows as records of a topic."""

    name = "topic"
    rank = 10
    keys = ("key",)
    modes = ("append", "update")

    def target(self, part: Section, environment: Mapping[str, str]) -> str:
        """The name of the topic."""
        del environment
        return part.topic(self.name)

    def problem(self, sink: Sink, spec: Spec) -> str | None:
        """The pipeline must not read the topic: each record would cause another one."""
        source = next((source.name for source in reversed(spec.sources) if source.topic == sink.target), None)
        return None if source is None else f"is {sink.target}, which source {source} reads: it would never end"

    def writer(self, rows: "Rows", run: SinkRun) -> "RowsWriter":
        """Write each micro-batch in transactions."""
        from tidemill.pipelines.spark.topic import into_topic, records_of

        records = records_of(rows, run.sink)
        columns = {field.name: field.dataType.simpleString() for field in records.schema.fields}
        check_columns(columns, run.sink.target)
        options = parse_sink({**run.folder.spec.kafka, "topic": run.sink.target}, streaming=True)
        return records.writeStream.foreachBatch(into_topic(options, run.checkpoint))
