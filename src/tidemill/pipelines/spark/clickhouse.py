"""Writes micro-batches to a ClickHouse or chDB table. Tasks send rows to a server; rows for chDB go through the driver.

The embedded engine can be open only once and in one process, so only the driver can use it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidemill.pipelines.clickhouse.core.addresses import TableAddress
from tidemill.pipelines.clickhouse.core.tables import StageTables, stage_of
from tidemill.pipelines.spark.lake import query_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.pipelines.clickhouse.target_table import TargetTable

ROWS_PER_INSERT = 100_000
"""ClickHouse writes a file for every insert, so few large inserts are best."""
COUNTED = "rows bigint"


@dataclass(frozen=True, slots=True)
class TableTarget:
    """The table of a sink. `by` are the columns that a new table is sorted by."""

    address: TableAddress
    table: str
    by: tuple[str, ...] = ()


def into_table(target: TableTarget, checkpoint: Path) -> Callable[[DataFrame, int], None]:
    """The function for foreachBatch."""
    from tidemill.pipelines.clickhouse.target_table import TargetTable  # noqa: PLC0415 - loaded only where it is used

    address = target.address

    def add(rows: DataFrame, batch: int) -> None:
        stage = stage_of(address.database, target.table, query_of(checkpoint))
        attempt = uuid4().hex
        with TargetTable(address, stage) as table:
            table.create(_schema(rows), target.by)
            if not table.begin(batch, attempt):
                return
            if address.path:
                total = send(table, attempt, "driver", iter(rows.toArrow().to_batches()))
            else:
                counts = rows.mapInArrow(_sending(address, stage, attempt), COUNTED).collect()
                total = sum(int(row["rows"]) for row in counts)
            if total:
                table.finish(batch, attempt)

    return add


def send(table: "TargetTable", attempt: str, sender: str, batches: Iterator["pa.RecordBatch"]) -> int:
    """Insert rows and return their number. The same rows always give the same inserts."""
    from tidemill.pipelines.clickhouse.target_table import portions  # noqa: PLC0415 - as above

    total = 0
    for number, rows in enumerate(portions(batches, ROWS_PER_INSERT)):
        table.insert(attempt, rows, f"{attempt}-{sender}-{number}")
        total += rows.num_rows
    return total


def _sending(
    address: TableAddress, stage: StageTables, attempt: str
) -> Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def write(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa  # noqa: PLC0415 - as above

        from tidemill.pipelines.clickhouse.target_table import TargetTable  # noqa: PLC0415 - as above

        context = TaskContext.get()
        with TargetTable(address, stage) as table:
            total = send(table, attempt, str(context.partitionId() if context else 0), batches)
        yield pa.RecordBatch.from_pydict({"rows": [total]}, schema=pa.schema([("rows", pa.int64())]))

    return write


def _schema(rows: DataFrame) -> "pa.Schema":
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - as above

    return to_arrow_schema(rows.schema, timezone="UTC")
