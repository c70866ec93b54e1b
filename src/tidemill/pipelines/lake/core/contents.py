"""The contents of a lake: its files, the commits that added them, and the offsets that are covered.

A commit names the query and the micro-batch whose rows it holds. A micro-batch that runs again after a crash finds its
commit and is skipped. This check alone makes a lake exactly-once. A commit that removes files (a compaction, or a table
by key) names all remaining files, so the commits before it are not needed. `judge` collects offsets as runs, so an
audit of any number of rows needs little memory. A partition without holes and duplicates is one run.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tidemill.pipelines.errors import PipelineError

NUMBER_DIGITS = 12
"""Digits of a commit number in its file name. Padding makes names sort like numbers."""
DATE = "date"
"""The column by which topics are partitioned in a lake: the UTC day of the record's timestamp."""


class LakeDamaged(PipelineError):
    """The files of a lake do not agree with its commits."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One Parquet file. `path` is relative to the lake. The offsets are -1 when the rows are not of a topic."""

    path: str
    rows: int
    size: int
    partition: int = -1
    first: int = -1
    last: int = -1

    @property
    def folder(self) -> str:
        """Its folder in the lake, such as date=2026-11-16/; empty in a lake without partitions."""
        return self.path[: self.path.rfind("/") + 1]

    @property
    def by(self) -> tuple[str, ...]:
        """The partition columns, taken from the folder names."""
        return tuple(part.partition("=")[0] for part in self.folder.split("/")[:-1])


@dataclass(frozen=True, slots=True)
class Commit:
    """The files that one micro-batch added, and the position of its query.

    `removed` are the paths that it removed. If it is `whole`, `files` are all files of the lake. `columns` are names
    and types; commits of former versions have none.
    """

    number: int
    query: str
    batch: int
    files: tuple[LakeFile, ...]
    removed: tuple[str, ...] = ()
    whole: bool = False
    columns: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.number:0{NUMBER_DIGITS}}.json"

    def text(self) -> str:
        """The commit as the text of its file."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def holds(self, query: str, batch: int) -> bool:
        """Whether the lake has the rows of this micro-batch, given that this is the last commit."""
        return self.query == query and self.batch >= batch


def read_commit(name: str, text: str) -> Commit:
    """Parse the text of `Commit.text`."""
    try:
        kept: dict[str, Any] = json.loads(text)
        files = tuple(LakeFile(**each) for each in kept["files"])
        removed, whole = tuple(kept.get("removed", ())), bool(kept.get("whole", False))
        columns = tuple((str(name), str(kind)) for name, kind in kept.get("columns", ()))
        return Commit(kept["number"], kept["query"], kept["batch"], files, removed, whole, columns)
    except (ValueError, KeyError, TypeError) as error:
        raise LakeDamaged(f"{name} is not a commit of a lake: {error}") from None


class OffsetRun(NamedTuple):
    """All offsets from `first` up to, but not including, `end`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """The result of an audit for one partition."""

    partition: int
    rows: int
    first: int
    last: int
    holes: tuple[OffsetRun, ...]
    doubled: int

    @property
    def missing(self) -> int:
        """The number of offsets between the first and the last that have no row."""
        return sum(hole.end - hole.first for hole in self.holes)

    @property
    def contiguous(self) -> bool:
        """Whether every offset has exactly one row."""
        return not self.holes and not self.doubled


def judge(partition: int, runs: Iterable[OffsetRun]) -> AuditVerdict:
    """Whether runs of offsets, in any order, form one run without holes and duplicates."""
    ordered = sorted(runs)
    holes: list[OffsetRun] = []
    doubled = 0
    end = ordered[0].first
    for run in ordered:
        if run.first > end:
            holes.append(OffsetRun(end, run.first))
        doubled += max(0, min(end, run.end) - run.first)
        end = max(end, run.end)
    rows = sum(run.end - run.first for run in ordered)
    return AuditVerdict(partition, rows, ordered[0].first, end - 1, tuple(holes), doubled)


def in_order(files: Sequence[LakeFile]) -> list[list[LakeFile]]:
    """The files of one partition in offset order. Files whose offsets interleave are in one list."""
    groups: list[list[LakeFile]] = []
    last = -1
    for file in sorted(files, key=lambda file: (file.first, file.last)):
        if groups and file.first <= last:
            groups[-1].append(file)
        else:
            groups.append([file])
        last = max(last, file.last)
    return groups


def small_runs(files: Iterable[LakeFile], target_bytes: int) -> list[list[LakeFile]]:
    """The groups of files that a compaction merges: neighbours in one folder and partition, up to the wanted size.

    Files of at least half the size stay unchanged. Only neighbours are merged, so that the offset ranges of files never
    overlap.
    """
    places: dict[tuple[str, int], list[LakeFile]] = defaultdict(list)
    for file in files:
        places[file.folder, file.partition].append(file)
    runs: list[list[LakeFile]] = []
    for _, found in sorted(places.items()):
        run: list[LakeFile] = []
        for file in sorted(found, key=lambda file: (file.first, file.last, file.path)):
            if run and (file.size * 2 >= target_bytes or sum(each.size for each in run) + file.size > target_bytes):
                runs.append(run)
                run = []
            if file.size * 2 < target_bytes:
                run.append(file)
        runs.append(run)
    return [run for run in runs if len(run) > 1]
