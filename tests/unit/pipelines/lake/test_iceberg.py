"""Lakes as Iceberg tables: each micro-batch is added once."""

from pathlib import Path

from pyiceberg.table import StaticTable
from tests.unit.pipelines.lake.sample_orders import DAY, rows, stage

from tidemill.pipelines.lake.audit import audit
from tidemill.pipelines.lake.interface import CommitStep
from tidemill.pipelines.lake.opening import existing_lake, open_lake


def test_an_iceberg_table_takes_each_micro_batch_once(tmp_path: Path) -> None:
    lake = open_lake(tmp_path / "orders", "iceberg")
    assert lake.files() == []
    for batch, offsets in ((0, range(5)), (0, range(5)), (1, range(5, 9)), (0, range(5))):
        lake.recover()
        found = rows(0, offsets)
        if not lake.holds("q", batch):
            lake.commit(CommitStep("q", batch), stage(lake, f"{batch:04}", found), found.schema)
    assert audit(lake).contiguous
    newest = max((lake.root / "metadata").glob("*.metadata.json"))
    table = StaticTable.from_metadata(str(newest)).scan().to_arrow()
    assert sorted(table["offset"].to_pylist()) == list(range(9))
    assert set(table["date"].to_pylist()) == set(DAY)
    assert isinstance(existing_lake(lake.root), type(lake))
    days = StaticTable.from_metadata(str(newest)).scan(f"date = '{DAY[0]}'").to_arrow()
    assert sorted(days["offset"].to_pylist()) == [0, 2, 4, 6, 8]
