"""The ledger of a sink: which micro-batch was decided last, and what of it is still to be done.

A sink has one entry at a time, which is replaced as a whole. It is a text, kept beside a committed offset of the sink's
group; the offset is the entry's number, which grows with every entry. Brokers limit that text, so a long entry is cut
into pieces, one for each of several groups that are written in one transaction.

An entry is in one of three states:
- done: all rows of the micro-batch are visible, and nobody may write them again;
- decided: its branches are to be committed, whatever happens (`branches` are there);
- open: it was decided, but the broker had given up branches by then. The rows of the tasks in `kept` are visible, the
  others must be written again. Without `kept` nothing is.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidemill.pipelines.core.errors import LayoutChanged, PipelineError

PIECE_CHARS = 4_000
"""A piece with its head is shorter than the 4,096 bytes that brokers take unless told otherwise."""
_PIECE = re.compile(r"(\d+)/(\d+) (.*)")
_ENTRY = re.compile(r"(done|open) query=(\S+) batch=(\d+) tasks=(\d+) kept=([\d,]*) branches=(\S*)")


class Branch(NamedTuple):
    """The transaction of one task: its id without the sink's name (the task's number comes first), and who writes."""

    name: str
    producer_id: int
    producer_epoch: int

    @property
    def task(self) -> int:
        """The number of the task."""
        return int(self.name.partition("-")[0])


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What a sink knows of the micro-batch that was decided last."""

    number: int
    query: str
    batch: int
    tasks: int
    done: bool = False
    kept: tuple[int, ...] = ()
    branches: tuple[Branch, ...] = ()

    def covers(self, query: str, batch: int) -> bool:
        """Whether the micro-batch has been written as a whole."""
        return self.query == query and (batch < self.batch or (batch == self.batch and self.done))

    def kept_of(self, query: str, batch: int) -> tuple[int, ...]:
        """The tasks of the micro-batch whose rows are visible although others were lost."""
        return self.kept if (self.query, self.batch, self.done) == (query, batch, False) else ()

    def settled(self, committed: Collection[int]) -> "LedgerEntry":
        """The entry after all of its branches were tried: done, or open if the broker had given up any."""
        if all(branch.task in committed for branch in self.branches):
            return replace(self, number=self.number + 1, done=True, kept=(), branches=())
        return replace(self, number=self.number + 1, kept=tuple(sorted({*self.kept, *committed})), branches=())


def decided(last: LedgerEntry | None, query: str, batch: int, tasks: int, branches: Sequence[Branch]) -> LedgerEntry:
    """The entry that follows `last`; LayoutChanged when it would fill up rows that were spread in another way."""
    kept = () if last is None else last.kept_of(query, batch)
    if kept and last is not None and last.tasks != tasks:
        raise LayoutChanged(
            f"micro-batch {batch} was written in part by {last.tasks} tasks and now has {tasks}: "
            "start the query once with the former partitioning, or some rows would be missing or doubled"
        )
    return LedgerEntry(1 if last is None else last.number + 1, query, batch, tasks, kept=kept, branches=tuple(branches))


def write_entry(entry: LedgerEntry) -> list[str]:
    """The entry as texts, none longer than brokers take."""
    branches = ",".join(f"{branch.name}:{branch.producer_id}.{branch.producer_epoch}" for branch in entry.branches)
    kept = ",".join(str(task) for task in entry.kept)
    state = "done" if entry.done else "open"
    text = f"{state} query={entry.query} batch={entry.batch} tasks={entry.tasks} kept={kept} branches={branches}"
    pieces = [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]
    return [f"{index}/{len(pieces)} {piece}" for index, piece in enumerate(pieces)]


def pieces_of(first: str) -> int:
    """How many pieces the entry has that begins with this one."""
    return int(_piece(first)[2])


def is_piece(text: str) -> bool:
    """Whether a text beside a committed offset is of a ledger; that offset says nothing about records."""
    return _PIECE.fullmatch(text) is not None


def read_entry(number: int, pieces: Sequence[str]) -> LedgerEntry:
    """The entry that these pieces are."""
    text = "".join(_piece(piece)[3] for piece in pieces)
    found = _ENTRY.fullmatch(text)
    if found is None:
        raise PipelineError(f"the sink's ledger cannot be read: {text[:200]!r}")
    state, query, batch, tasks, kept, branches = found.groups()
    return LedgerEntry(
        number,
        query,
        int(batch),
        int(tasks),
        done=state == "done",
        kept=tuple(int(task) for task in kept.split(",") if task),
        branches=tuple(_branch(text) for text in branches.split(",") if text),
    )


def _piece(text: str) -> re.Match[str]:
    found = _PIECE.fullmatch(text)
    if found is None:
        raise PipelineError(f"the sink's ledger cannot be read: {text[:200]!r}")
    return found


def _branch(text: str) -> Branch:
    name, _, producer = text.partition(":")
    producer_id, _, epoch = producer.partition(".")
    return Branch(name, int(producer_id), int(epoch))
