"""A timeline. It accepts a message with a known id once."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill.pipelines.sink.sink_type import SinkType
from tidemill.pipelines.spec.core.section import Section
from tidemill.pipelines.spec.folder import SinkRun

if TYPE_CHECKING:
    from tidemill.pipelines.spark.sinks import Rows, RowsWriter


class TimelineSink(SinkType):
    """Schedules rows as messages of a timeline."""

    name = "timeline"
    rank = 40
    keys = ("id", "due", "body", "key")
    modes = ("append", "update")
    is_timeline = True

    def target(self, part: Section, environment: Mapping[str, str]) -> str:
        """The name of the timeline."""
        del environment
        return part.topic(self.name)

    def columns(self, part: Section) -> Mapping[str, str]:
        """The columns of a message. Only the id is optional."""
        return {key: part.text(key) for key in ("id", "due", "body") if key != "id" or key in part.found}

    def writer(self, rows: "Rows", run: SinkRun) -> "RowsWriter":
        """Schedule each micro-batch."""
        from tidemill.pipelines.spark.timeline import into_timeline, messages_of

        messages = messages_of(rows, run.sink.columns or {}, run.sink.key)
        spec = run.folder.spec
        into = into_timeline(spec.timelines, run.sink.target, run.checkpoint, spec.client)
        return messages.writeStream.foreachBatch(into)
