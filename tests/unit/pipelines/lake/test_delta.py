"""Lakes as Delta tables: each micro-batch is added once."""

from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.unit.pipelines.lake.sample_orders import DAY, rows, stage

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake import delta
from tidemill.pipelines.lake.audit import audit
from tidemill.pipelines.lake.interface import CommitStep
from tidemill.pipelines.lake.opening import existing_lake, open_lake


def test_a_delta_table_takes_each_micro_batch_once(tmp_path: Path) -> None:
    lake = open_lake(tmp_path / "orders", "delta")
    for batch, offsets in ((0, range(5)), (0, range(5)), (1, range(5, 9)), (0, range(5))):
        lake.recover()
        found = rows(0, offsets)
        if not lake.holds("q", batch):
            lake.commit(CommitStep("q", batch), stage(lake, f"{batch:04}", found), found.schema)
    assert audit(lake).contiguous
    table = DeltaTable(str(lake.root)).to_pyarrow_table()
    assert sorted(table["offset"].to_pylist()) == list(range(9))
    assert set(table["date"].to_pylist()) == set(DAY)
    assert isinstance(existing_lake(lake.root), type(lake))
    with pytest.raises(PipelineError, match="is a lake of format delta, not parquet"):
        open_lake(lake.root, "parquet")


def test_a_delta_commit_that_was_cut_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake(tmp_path / "orders", "delta")
    found = rows(0, range(5))
    with monkeypatch.context() as patch:
        patch.setattr(delta, "AddAction", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lake.commit(CommitStep("q", 0), stage(lake, "a", found), found.schema)
    assert not lake.holds("q", 0)
    lake.recover()
    lake.commit(CommitStep("q", 0), stage(lake, "b", found), found.schema)
    assert DeltaTable(str(lake.root)).to_pyarrow_table().num_rows == 5
