"""A table of ClickHouse, on servers or in the embedded engine. The table recognises a repeated micro-batch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill.model.locations import UnsupportedLocation
from tidemill.pipelines.clickhouse.core.addresses import TableAddress, parse_address
from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.sink.sink_type import SinkType
from tidemill.pipelines.spec.core.section import Section
from tidemill.pipelines.spec.folder import SinkRun

if TYPE_CHECKING:
    from tidemill.pipelines.spark.sinks import Rows, RowsWriter


class ClickHouseSink(SinkType):
    """Inserts rows into a table, and creates the table when it does not exist."""

    name = "clickhouse"
    rank = 50
    keys = ("table", "by")
    modes = ("append", "update")

    def target(self, part: Section, environment: Mapping[str, str]) -> str:
        """The address of the server, or chdb: with a folder."""
        part.text(self.name)  # rejects a number, which `filled` would accept
        place = part.filled(self.name, environment)
        try:
            parse_address(place)
        except (UnsupportedLocation, WrongOption) as error:
            raise part.wrong(self.name, f"is wrong: {error}") from None
        return place

    def columns(self, part: Section) -> Mapping[str, str]:
        """The name of the table."""
        return {"table": part.text("table")}

    def writer(self, rows: "Rows", run: SinkRun) -> "RowsWriter":
        """Insert each micro-batch."""
        from tidemill.pipelines.spark.clickhouse import TableTarget, into_table

        table = (run.sink.columns or {})["table"]
        target = TableTarget(_address(run), table, run.sink.by)
        return rows.writeStream.foreachBatch(into_table(target, run.checkpoint))


def _address(run: SinkRun) -> TableAddress:
    """The address of the table. The folder of an embedded engine is relative to that of the pipeline."""
    address = parse_address(run.sink.target)
    return address._replace(path=str((run.folder.root / address.path).absolute())) if address.path else address
