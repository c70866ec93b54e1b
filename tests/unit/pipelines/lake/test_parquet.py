"""Lakes of Parquet files: staging, commits, and crashes between two steps."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.unit.pipelines.lake.sample_orders import add, rows, stage

from tidemill.durable_files import move
from tidemill.pipelines.lake import parquet
from tidemill.pipelines.lake.audit import audit
from tidemill.pipelines.lake.core.contents import LakeDamaged, read_commit
from tidemill.pipelines.lake.interface import STAGING
from tidemill.pipelines.lake.parquet import LOG, ParquetLake


def test_rows_are_in_folders_by_day_and_read_back_by_any_tool(tmp_path: Path) -> None:
    lake = ParquetLake(tmp_path / "orders")
    add(lake, 0, rows(0, range(10)), rows(1, range(4)))
    table = pq.read_table(lake.root)
    assert table.num_rows == 14
    assert {path.name for path in lake.root.iterdir()} >= {"date=2026-11-15", "date=2026-11-16"}
    assert [file.rows for file in lake.files()] == [5, 5, 2, 2]


def test_a_micro_batch_that_runs_again_is_skipped(tmp_path: Path) -> None:
    lake = ParquetLake(tmp_path / "orders")
    for batch, offsets in ((0, range(5)), (0, range(5)), (1, range(5, 9)), (1, range(5, 9)), (0, range(5))):
        add(lake, batch, rows(0, offsets))
    found = audit(lake)
    assert found.contiguous
    assert [(verdict.rows, verdict.first, verdict.last) for verdict in found.verdicts] == [(9, 0, 8)]


def test_a_crash_before_the_commit_leaves_nothing(tmp_path: Path) -> None:
    lake = ParquetLake(tmp_path / "orders")
    add(lake, 0, rows(0, range(5)))
    stage(lake, "0001", rows(0, range(5, 9)))
    assert pq.read_table(lake.root).num_rows == 5
    lake.recover()
    assert not (lake.root / STAGING).exists()
    add(lake, 1, rows(0, range(5, 9)))
    assert audit(lake).contiguous


@pytest.mark.parametrize("moved", [0, 1, 2, 3])
def test_a_crash_while_files_move_is_rolled_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    lake = ParquetLake(tmp_path / "orders")
    add(lake, 0, rows(0, range(5)))
    left = [moved]

    def dying(source: Path, target: Path) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        move(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(parquet, "move", dying)
        with pytest.raises(KeyboardInterrupt):
            add(lake, 1, rows(0, range(5, 9)), rows(1, range(4)))
    again = ParquetLake(lake.root)
    add(again, 1, rows(0, range(5, 9)), rows(1, range(4)))
    assert audit(again).contiguous
    assert pq.read_table(lake.root).num_rows == 13


def test_a_lost_file_a_lost_commit_and_a_damaged_commit_are_reported(tmp_path: Path) -> None:
    lake = ParquetLake(tmp_path / "orders")
    for batch in range(3):
        add(lake, batch, rows(0, range(batch * 2, batch * 2 + 2)))
    (lake.root / lake.files()[0].path).unlink()
    with pytest.raises(LakeDamaged, match=r"parquet is missing, but a commit names it;"):
        audit(lake)
    (lake.root / LOG / "000000000001.json").unlink()
    with pytest.raises(LakeDamaged, match=r"commit 1 of .* is missing"):
        lake.files()
    with pytest.raises(LakeDamaged, match="is not a commit"):
        read_commit("x.json", '{"number": 1}')
