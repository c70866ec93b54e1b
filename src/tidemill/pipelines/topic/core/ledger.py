"""The ledger of a sink: the last decided micro-batch, and what is still to be done for it.

A sink has one entry at a time, which is replaced as a whole. The entry is text, stored as metadata of a committed
offset of the sink's group. The offset is the entry's number, which grows with every entry. Brokers limit the metadata,
so a long entry is split into pieces, one for each of several groups, written in one transaction.

An entry is in one of three states:
- done: all rows of the micro-batch are visible, and no task may write them again;
- decided: its branches must be committed (`branches` is not empty);
- open: it was decided, but the broker had aborted branches by then. The rows of the tasks in `kept` are visible. The
  other tasks must write again. Without `kept`, no rows are visible.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidemill.pipelines.errors import LayoutChanged, PipelineError

PIECE_CHARS = 4_000
"""A piece with its header is shorter than the brokers' default limit of 4,096 bytes."""
_PIECE = re.compile(r"(\d+)/(\d+) (.*)")
_ENTRY = re.compile(r"(done|open) query=(\S+) batch=(\d+) tasks=(\d+) kept=([\d,]*) branches=(\S*)")


class Branch(NamedTuple):
    """The transaction of one task: its id without the sink's name (beginning with the task number), its producer."""

    name: str
    producer_id: int
    producer_epoch: int

    @property
    def task(self) -> int:
        """The number of the task."""
        return int(self.name.partition("-")[0])


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The state of the last decided micro-batch of a sink."""

    number: int
    query: str
    batch: int
    tasks: int
    done: bool = False
    kept: tuple[int, ...] = ()
    branches: tuple[Branch, ...] = ()

    def covers(self, query: str, batch: int) -> bool:
        """Whether the micro-batch is written completely."""
        return self.query == query and (batch < self.batch or (batch == self.batch and self.done))

    def kept_of(self, query: str, batch: int) -> tuple[int, ...]:
        """The tasks of the micro-batch whose rows are visible although other tasks' rows were lost."""
        return self.kept if (self.query, self.batch, self.done) == (query, batch, False) else ()

    def settled(self, committed: Collection[int]) -> "LedgerEntry":
        """The entry after all branches were tried: done, or open if the broker had aborted any."""
        if all(branch.task in committed for branch in self.branches):
            return replace(self, number=self.number + 1, done=True, kept=(), branches=())
        return replace(self, number=self.number + 1, kept=tuple(sorted({*self.kept, *committed})), branches=())


def decided(last: LedgerEntry | None, query: str, batch: int, tasks: int, branches: Sequence[Branch]) -> LedgerEntry:
    """The entry after `last`. Raises LayoutChanged when `last` is partly written by another number of tasks."""
    kept = () if last is None else last.kept_of(query, batch)
    if kept and last is not None and last.tasks != tasks:
        raise LayoutChanged(
            f"micro-batch {batch} was written in part by {last.tasks} tasks and now has {tasks}: "
            "start the query once with the former partitioning, because otherwise rows would be missing or duplicated"
        )
    return LedgerEntry(1 if last is None else last.number + 1, query, batch, tasks, kept=kept, branches=tuple(branches))


def write_entry(entry: LedgerEntry) -> list[str]:
    """The entry as pieces, each within the brokers' limit."""
    branches = ",".join(f"{branch.name}:{branch.producer_id}.{branch.producer_epoch}" for branch in entry.branches)
    kept = ",".join(str(task) for task in entry.kept)
    state = "done" if entry.done else "open"
    text = f"{state} query={entry.query} batch={entry.batch} tasks={entry.tasks} kept={kept} branches={branches}"
    pieces = [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]
    return [f"{index}/{len(pieces)} {piece}" for index, piece in enumerate(pieces)]


def pieces_of(first: str) -> int:
    """The number of pieces of the entry that begins with this one."""
    return int(_piece(first)[2])


def is_piece(text: str) -> bool:
    """Whether the metadata of a committed offset belongs to a ledger. Such an offset is not a position in the topic."""
    return _PIECE.fullmatch(text) is not None


def read_entry(number: int, pieces: Sequence[str]) -> LedgerEntry:
    """Parse the entry from its pieces."""
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
