"""What a lake holds: files, the commits that put them there, and which offsets are covered.

A commit names the query and the number of the micro-batch whose rows it holds. A micro-batch that runs again after a
crash finds its commit and is skipped: that is all of exactly once. A commit that takes files away (those of a
compaction, and those of a table by key) names all that are left, so that the commits before it are not needed.
`judge` gathers the offsets of the rows as runs, so that an audit of any number of rows needs little memory: a
partition without holes and doubles is one run.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tidemill.pipelines.core.errors import PipelineError

NUMBER_DIGITS = 12
"""Of a commit, in the name of its file: names sort as numbers do."""
DATE = "date"
"""The column by which topics are partitioned in a lake: the day of the record's timestamp in UTC."""


class LakeDamaged(PipelineError):
    """A lake is not as its commits say."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One Parquet file; `path` is below the lake's folder. The offsets are -1 when the rows are not of a topic."""

    path: str
    rows: int
    size: int
    partition: int = -1
    first: int = -1
    last: int = -1

    @property
    def folder(self) -> str:
        """Its part of the lake, such as date=2026-11-16/; empty in a lake without parts."""
        return self.path[: self.path.rfind("/") + 1]

    @property
    def by(self) -> tuple[str, ...]:
        """The columns that its folders are named after."""
        return tuple(part.partition("=")[0] for part in self.folder.split("/")[:-1])


@dataclass(frozen=True, slots=True)
class Commit:
    """What one micro-batch added, and how far its query was then.

    `removed` are the paths that it took away. If it is `whole`, `files` are all that the lake has now. `columns` are
    names and types; commits of former versions have none.
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
        """Of its file."""
        return f"{self.number:0{NUMBER_DIGITS}}.json"

    def text(self) -> str:
        """It as it is kept."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def holds(self, query: str, batch: int) -> bool:
        """Whether the rows of this micro-batch are in the lake, if this is the last commit."""
        return self.query == query and self.batch >= batch


def read_commit(name: str, text: str) -> Commit:
    """What `Commit.text` made."""
    try:
        kept: dict[str, Any] = json.loads(text)
        files = tuple(LakeFile(**each) for each in kept["files"])
        removed, whole = tuple(kept.get("removed", ())), bool(kept.get("whole", False))
        columns = tuple((str(name), str(kind)) for name, kind in kept.get("columns", ()))
        return Commit(kept["number"], kept["query"], kept["batch"], files, removed, whole, columns)
    except (ValueError, KeyError, TypeError) as error:
        raise LakeDamaged(f"{name} is not a commit of a lake: {error}") from None


class OffsetRun(NamedTuple):
    """Offsets from `first` to before `end`, all of them."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What an audit says about a partition."""

    partition: int
    rows: int
    first: int
    last: int
    holes: tuple[OffsetRun, ...]
    doubled: int

    @property
    def missing(self) -> int:
        """Offsets between the first and the last that no row has."""
        return sum(hole.end - hole.first for hole in self.holes)

    @property
    def contiguous(self) -> bool:
        """Every offset has one row."""
        return not self.holes and not self.doubled


def judge(partition: int, runs: Iterable[OffsetRun]) -> AuditVerdict:
    """Whether runs of offsets, in any order, make one run without holes and doubles."""
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
    """Files of one partition in the order of their offsets; those whose offsets interleave are together."""
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
    """What a compaction puts together: neighbours in one folder and partition that make a file of the wanted size.

    Files of at least half the size stay as they are. Only neighbours are joined, so that no file reaches over another.
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
