"""A lake of plain Parquet files that every tool can read, with a commit log in the same folder.

    lake/orders/date=2026-11-16/....parquet                  rows
    lake/orders/_log/000000000003.json                       which files commit 3 added, for which micro-batch
    lake/orders/_staging/                                    files of the running micro-batch's tasks
    lake/orders/_checkpoint/                                 Spark's checkpoint

Tasks write into `_staging`. Writing the log entry is the commit. The files are moved to their places after it. After a
crash, `recover` moves the files of the last entry that are still staged, and deletes all other staged files. So a
reader of the folder finds the rows of a micro-batch at most once, and after `recover` exactly once.

A commit that removes files names all remaining files. The old files are removed before the new ones are moved, so that
a reader never finds a row twice. The commits before it are deleted.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tidemill.durable_files import move, replace_file, sync
from tidemill.pipelines.lake.core.contents import Commit, LakeDamaged, LakeFile, read_commit
from tidemill.pipelines.lake.core.layout import LakeColumn, LakeLayout, layout_of
from tidemill.pipelines.lake.interface import CHECKPOINT, STAGING, CommitStep, check_rows

if TYPE_CHECKING:
    import pyarrow as pa

LOG = "_log"


class ParquetLake:
    """One folder of Parquet files with its commit log."""

    keeps_columns = False
    kept_as: Mapping[str, str] = MappingProxyType({})

    def __init__(self, root: Path) -> None:
        self.root = root

    def recover(self) -> None:
        """Complete the last commit. Other staged files belong to no commit and are deleted."""
        last = self._last()
        if last is not None:
            self._place(last)
            self._forget(last)
        shutil.rmtree(self.root / STAGING, ignore_errors=True)

    def holds(self, query: str, batch: int) -> bool:
        """Whether the last commit has this micro-batch, or a later one."""
        last = self._last()
        return last is not None and last.holds(query, batch)

    def commit(self, step: CommitStep, files: Sequence[LakeFile], schema: "pa.Schema") -> None:
        """Write the log entry, then move the files. `recover` handles a crash in between."""
        if step.query is not None:
            check_rows(self, schema, (*files, *step.removed)[0].by)
        last = self._last()
        columns = _columns(schema) if step.query is not None or last is None else last.columns
        number = 0 if last is None else last.number + 1
        query, batch = (step.query, step.batch) if step.query is not None else _where(last)
        removed = tuple(file.path for file in step.removed)
        added = tuple(files)
        if removed:
            added = (*(file for file in self.files() if file.path not in removed), *added)
        entry = Commit(number, query, batch, added, removed, whole=bool(removed), columns=columns)
        self.root.joinpath(LOG).mkdir(parents=True, exist_ok=True)
        replace_file(self.root / LOG / entry.name, entry.text().encode())
        self._place(entry)
        self._forget(entry)

    def layout(self) -> LakeLayout | None:
        """The columns of the last commit, or of one of its files if a former version wrote the commit."""
        last = self._last()
        if last is None:
            return None
        files = last.files or tuple(self.files())
        if last.columns:
            # A table that was emptied has no files; the paths that its last commit removed name its folders.
            paths = [file.path for file in files] or last.removed
            by = LakeFile(paths[-1], 0, 0).by if paths else ()
            return LakeLayout(tuple(LakeColumn(name, kind) for name, kind in last.columns), by)
        if not files:
            return None
        import pyarrow.parquet as pq  # noqa: PLC0415 - loaded only where it is used

        found = layout_of(pq.read_schema(self.root / files[-1].path), files[-1].by)
        folders = tuple(
            LakeColumn(name, None) for name in files[-1].by if name not in {each.name for each in found.columns}
        )
        return LakeLayout(tuple(each._replace(nullable=True) for each in found.columns) + folders, found.by)

    def files(self) -> list[LakeFile]:
        """All files of all commits."""
        return [file for entry in self._entries() for file in entry.files]

    def strays(self) -> list[str]:
        """Parquet files outside of `_staging` that no commit names."""
        known = {file.path for file in self.files()}
        found = (path.relative_to(self.root) for path in self.root.rglob("*.parquet"))
        visible = (path for path in found if path.parts[0] not in {STAGING, CHECKPOINT})
        return sorted(str(path) for path in visible if str(path) not in known)

    def _place(self, entry: Commit) -> None:
        folders = set()
        for path in entry.removed:
            (self.root / path).unlink(missing_ok=True)
        for file in entry.files:
            target = self.root / file.path
            try:
                move(self.root / STAGING / file.path, target)
            except FileNotFoundError:
                raise LakeDamaged(
                    f"{target} is missing, but commit {entry.number} of {self.root} names it; restore it from a backup"
                ) from None
            folders.add(target.parent)
        for folder in folders:
            sync(folder)

    def _names(self) -> list[Path]:
        return sorted((self.root / LOG).glob("*.json"))

    def _forget(self, entry: Commit) -> None:
        """Delete the commits before one that names all files."""
        if entry.whole:
            for path in self._names():
                if path.name < entry.name:
                    path.unlink()

    def _entries(self) -> Iterator[Commit]:
        """The commits, starting with the newest that names all files."""
        found = [_read(path) for path in self._names()]
        begin = max((index for index, entry in enumerate(found) if entry.whole), default=0)
        number = found[begin].number if found and found[begin].whole else 0
        for number_, entry in enumerate(found[begin:], number):
            if entry.number != number_:
                raise LakeDamaged(f"commit {number_} of {self.root} is missing; the next one is {entry.name}")
            yield entry

    def _last(self) -> Commit | None:
        names = self._names()
        return _read(names[-1]) if names else None


def _columns(schema: "pa.Schema") -> tuple[tuple[str, str], ...]:
    return tuple((column.name, str(column.type)) for column in layout_of(schema).columns)


def _where(last: Commit | None) -> tuple[str, int]:
    """The query and micro-batch for a commit that changes no rows: those of the last commit."""
    return ("", -1) if last is None else (last.query, last.batch)


def _read(path: Path) -> Commit:
    return read_commit(str(path), path.read_text(encoding="utf-8"))
