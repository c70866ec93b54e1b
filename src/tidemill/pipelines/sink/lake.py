"""Lakes: folders of Parquet files, also as Delta and Iceberg tables. A lake recognises a repeated micro-batch."""

from collections.abc import Mapping
from posixpath import normpath
from typing import TYPE_CHECKING

from tidemill.model.locations import UnsupportedLocation, local_path
from tidemill.pipelines.sink.sink_type import SinkType
from tidemill.pipelines.spec.core.section import Section
from tidemill.pipelines.spec.core.spec import Format, Sink, Spec
from tidemill.pipelines.spec.folder import SinkRun

if TYPE_CHECKING:
    from tidemill.pipelines.spark.sinks import Rows, RowsWriter


class LakeSink(SinkType):
    """Writes rows to a folder of files. A subclass names the format."""

    keys = ("by",)
    modes = ("append",)
    is_lake = True

    def target(self, part: Section, environment: Mapping[str, str]) -> str:
        """The folder, absolute or relative to that of the pipeline."""
        part.text(self.name)  # rejects a number, which `filled` would accept
        place = part.filled(self.name, environment)
        try:
            return local_path(place)
        except UnsupportedLocation as error:
            raise part.wrong(self.name, f"is wrong: {error}") from None

    def problem(self, sink: Sink, spec: Spec) -> str | None:
        """Two sinks cannot write to one folder, also when their formats differ."""
        lakes = (other for other in spec.sinks if other.kind in FORMATS)
        first = next(other for other in lakes if normpath(other.target) == normpath(sink.target))
        return None if first is sink else f"is {sink.target}, where sink {first.name} writes already"

    def writer(self, rows: "Rows", run: SinkRun) -> "RowsWriter":
        """Write each micro-batch as files and commit them together."""
        from tidemill.pipelines.lake.opening import open_lake
        from tidemill.pipelines.spark.lake import into_lake

        self._check(rows, run)
        lake = open_lake(run.folder.root / run.sink.target, self.name)
        into = into_lake(lake, run.checkpoint, run.sink.by, of_topic=_is_raw_topic(run.folder.spec, run.sink.view))
        return rows.writeStream.foreachBatch(into)

    def _check(self, rows: "Rows", run: SinkRun) -> None:
        """Reject rows that the lake cannot store, and a lake with rows of another query."""
        from tidemill.pipelines.lake.core.layout import check_storable, layout_of
        from tidemill.pipelines.lake.interface import check_rows
        from tidemill.pipelines.lake.opening import open_lake
        from tidemill.pipelines.spark.lake import check_continues, schema_of

        lake = open_lake(run.folder.root / run.sink.target, self.name)
        lake.recover()
        schema = schema_of(rows)
        check_storable(layout_of(schema, run.sink.by))
        check_rows(lake, schema, run.sink.by)
        if not run.append:
            check_continues(lake, run.checkpoint)


class ParquetSink(LakeSink):
    """Parquet files with a log of our own."""

    name = "parquet"
    rank = 20


class DeltaSink(LakeSink):
    """A Delta table."""

    name = "delta"
    rank = 21


class IcebergSink(LakeSink):
    """An Iceberg table."""

    name = "iceberg"
    rank = 22


FORMATS = (ParquetSink.name, DeltaSink.name, IcebergSink.name)


def _is_raw_topic(spec: Spec, view: str) -> bool:
    """Whether a view has the columns of a topic unchanged."""
    return any(source.name == view and source.format is Format.RAW for source in spec.sources)
