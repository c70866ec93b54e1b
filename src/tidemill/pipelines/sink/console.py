"""The console. It shows the rows of a micro-batch again when the micro-batch is repeated after a crash."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill.pipelines.sink.sink_type import SinkType
from tidemill.pipelines.spec.core.section import Section
from tidemill.pipelines.spec.folder import SinkRun

if TYPE_CHECKING:
    from tidemill.pipelines.spark.sinks import Rows, RowsWriter


class ConsoleSink(SinkType):
    """Prints the first rows of each micro-batch."""

    name = "console"
    rank = 30

    def target(self, part: Section, environment: Mapping[str, str]) -> str:
        """The console needs no target."""
        del environment
        if part.found[self.name] is not True:
            raise part.wrong(self.name, "can only be true")
        return ""

    def writer(self, rows: "Rows", run: SinkRun) -> "RowsWriter":
        """Print rows as JSON."""
        from tidemill.pipelines.spark.console import into_console

        return rows.writeStream.foreachBatch(into_console(run.sink.name, run.say))
