"""Lakes of every format: a crash at any step of a commit or a compaction, then a restart; nothing lost or doubled.

The injected crash comes right before or right after a change on disk: a rename, a removal, an fsync, or the commit of
the library that keeps the table. Power failures are not simulated, only deaths of the process.
"""

import itertools
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from tidemill.pipelines.lake.audit import audit
from tidemill.pipelines.lake.compaction import compact, waiting
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.interface import CommitStep, Lake
from tidemill.pipelines.lake.opening import FORMATS, open_lake
from tidemill.pipelines.lake.rows import StagedRows, stage_rows

DAY = datetime(2026, 11, 16, tzinfo=UTC).date()
TARGET = 1 << 20
CHANGES: dict[str, list[tuple[Any, str]]] = {
    "parquet": [(os, "replace"), (os, "unlink"), (os, "fsync")],
    "delta": [(os, "replace"), (os, "unlink"), (DeltaTable, "create_write_transaction")],
    "iceberg": [(os, "replace"), (SqlCatalog, "commit_table")],
}


class Died(BaseException):
    """As if by kill -9."""


def rows(offsets: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "value": [str(offset).encode() for offset in offsets],
            "topic": ["orders"] * len(offsets),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": list(offsets),
            "date": [DAY] * len(offsets),
        }
    )


def add(lake: Lake, batch: int, offsets: range) -> None:
    """As `pipelines.spark.lake.into_lake` does it."""
    lake.recover()
    if lake.holds("q", batch):
        return
    found = rows(offsets)
    reported = stage_rows(
        StagedRows(str(lake.root), f"{batch:04}-{os.urandom(4).hex()}", ("date",), lake.keeps_columns), 0, [found]
    )
    files = [LakeFile(**row) for each in reported for row in each.to_pylist()]
    lake.commit(CommitStep("q", batch), files, found.schema)


def work(lake: Lake) -> None:
    """What a driver does from its start: micro-batches that are there are skipped."""
    add(lake, 0, range(3))
    add(lake, 1, range(3, 5))
    compact(lake, TARGET)
    add(lake, 2, range(5, 6))


def die_at(patch: pytest.MonkeyPatch, kind: str, moment: int, root: Path) -> None:
    """Die at the moment: even ones are before a change, odd ones after it.

    The functions of `os` are patched for the whole process. Calls of other threads, and of finalizers that remove
    files elsewhere, do not count.
    """
    steps = itertools.count()
    thread = threading.get_ident()

    def is_own(given: tuple[Any, ...]) -> bool:
        is_elsewhere = isinstance(given[0], str | Path) and root.parent not in Path(given[0]).parents
        return threading.get_ident() == thread and not is_elsewhere

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            if not is_own(given):
                return change(*given, **named)
            at = 2 * next(steps)
            if at == moment:
                raise Died
            done = change(*given, **named)
            if at + 1 == moment:
                raise Died
            return done

        return step

    for owner, name in CHANGES[kind]:
        patch.setattr(owner, name, dying(getattr(owner, name)))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_crash_anywhere_neither_loses_nor_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for moment in itertools.count():
        root = tmp_path / str(moment) / "orders"
        with monkeypatch.context() as patch:
            die_at(patch, kind, moment, root)
            try:
                work(open_lake(root, kind))
            except Died:
                died = True
            else:
                died = False
        again = open_lake(root, kind)
        work(again)
        found = audit(again)
        assert found.contiguous, (kind, moment, found)
        assert [(each.first, each.last, each.rows) for each in found.verdicts] == [(0, 5, 6)], (kind, moment)
        if not died:
            break
    assert moment > 10, "the crashes must have been where something happens"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_compaction_leaves_few_files_and_a_second_one_has_nothing_to_do(tmp_path: Path, kind: str) -> None:
    lake = open_lake(tmp_path / "orders", kind)
    for batch in range(6):
        add(lake, batch, range(batch * 2, batch * 2 + 2))
    assert (len(lake.files()), waiting(lake, TARGET)) == (6, 6)
    done: list[int] = []
    compact(lake, TARGET, done.append)
    assert (len(lake.files()), waiting(lake, TARGET), sum(done)) == (1, 0, 6)
    assert audit(lake).contiguous
    assert lake.holds("q", 5)
    add(lake, 5, range(10, 12))
    add(lake, 6, range(12, 14))
    assert audit(open_lake(lake.root, kind)).verdicts[0].last == 13
    assert audit(lake).contiguous
