"""Lakes without Spark: staging, commits, crashes between two steps, audits."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import StaticTable

from tidemill.durable_files import move
from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake import delta, parquet
from tidemill.pipelines.lake.audit import audit, told_by
from tidemill.pipelines.lake.core.contents import Commit, LakeDamaged, LakeFile, OffsetRun, in_order, judge, read_commit
from tidemill.pipelines.lake.interface import CHECKPOINT, STAGING, CommitStep, Lake
from tidemill.pipelines.lake.opening import existing_lake, open_lake
from tidemill.pipelines.lake.parquet import LOG, ParquetLake
from tidemill.pipelines.lake.rows import StagedRows, stage_rows

DAY = [datetime(2026, 11, 15, tzinfo=UTC).date(), datetime(2026, 11, 16, tzinfo=UTC).date()]


def rows(partition: int, offsets: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "value": [str(offset).encode() for offset in offsets],
            "topic": ["orders"] * len(offsets),
            "partition": pa.array([partition] * len(offsets), pa.int32()),
            "offset": list(offsets),
            "date": [DAY[offset % 2] for offset in offsets],
        }
    )


def stage(lake: Lake, name: str, *batches: pa.RecordBatch) -> list[LakeFile]:
    told = stage_rows(StagedRows(str(lake.root), name, ("date",), lake.keeps_columns), 0, batches)
    return [LakeFile(**row) for batch in told for row in batch.to_pylist()]


def add(lake: ParquetLake, batch: int, *batches: pa.RecordBatch, query: str = "q") -> None:
    lake.recover()
    if not lake.holds(query, batch):
        lake.commit(CommitStep(query, batch), stage(lake, f"{batch:04}", *batches), batches[0].schema)


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


def test_an_audit_finds_what_is_missing_doubled_or_not_of_a_commit(tmp_path: Path) -> None:
    lake = ParquetLake(tmp_path / "orders")
    add(lake, 0, rows(0, range(5)), rows(1, range(5)))
    add(lake, 1, rows(0, range(7, 9)), rows(1, range(4, 6)))
    pq.write_table(pa.table({"offset": [1]}), lake.root / "odd.parquet")
    found = audit(lake)
    first, second = found.verdicts
    assert (first.missing, first.holes, first.doubled) == (2, (OffsetRun(5, 7),), 0)
    assert (second.missing, second.doubled) == (0, 1)
    assert found.strays == ("odd.parquet",)
    assert [told_by(first, None), told_by(first, {0: 0}), told_by(first, {0: 1}), told_by(second, None)] == [
        "holes",
        "complete",
        "lost",
        "doubled",
    ]


def test_a_lost_file_a_lost_commit_and_a_damaged_commit_are_told(tmp_path: Path) -> None:
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


def test_folders_keep_their_format_and_are_told_when_they_are_no_lake(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no lake exists at"):
        existing_lake(tmp_path)
    with pytest.raises(PipelineError, match="format orc does not exist"):
        open_lake(tmp_path, "orc")
    (tmp_path / "orders" / LOG).mkdir(parents=True)
    with pytest.raises(PipelineError, match=r"no lake exists at .*; did you mean .*/orders\?$"):
        existing_lake(tmp_path)


def test_an_archive_of_a_topic_without_records_is_an_empty_lake(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).mkdir()
    lake = existing_lake(tmp_path)
    assert (lake.files(), audit(lake).contiguous) == ([], True)
    assert open_lake(tmp_path, "delta").files() == []


def test_rows_that_are_of_no_topic_need_no_offsets(tmp_path: Path) -> None:
    lake = ParquetLake(tmp_path / "revenue")
    batch = pa.RecordBatch.from_pydict({"item": ["tea", "a/b", None], "total": [1, 2, 3]})
    told = stage_rows(StagedRows(str(lake.root), "0", ("item",)), 0, [batch])
    files = [LakeFile(**row) for each in told for row in each.to_pylist()]
    lake.commit(CommitStep("q", 0), files, batch.schema)
    assert sorted(pq.read_table(lake.root).to_pydict()["total"]) == [1, 2, 3]
    assert pq.read_table(lake.root, filters=[("item", "=", "a/b")]).num_rows == 1
    with pytest.raises(PipelineError, match="rows without offsets"):
        audit(lake)


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


def test_a_commit_reads_back() -> None:
    commit = Commit(3, "query", 7, (LakeFile("a.parquet", 1, 2, 3, 4, 5),))
    assert read_commit(commit.name, commit.text()) == commit


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_the_verdict_is_that_of_counting(drawn: list[tuple[int, int]]) -> None:
    runs = [OffsetRun(first, first + length) for first, length in drawn]
    seen = [offset for run in runs for offset in range(run.first, run.end)]
    verdict = judge(0, runs)
    assert (verdict.first, verdict.last, verdict.rows) == (min(seen), max(seen), len(seen))
    assert verdict.missing == max(seen) - min(seen) + 1 - len(set(seen))
    assert verdict.doubled == len(seen) - len(set(seen))


def test_files_whose_offsets_interleave_are_read_together() -> None:
    files = [LakeFile(name, 1, 1, 0, *span) for name, span in {"c": (8, 9), "a": (0, 4), "b": (3, 6)}.items()]
    assert [[file.path for file in group] for group in in_order(files)] == [["a", "b"], ["c"]]
