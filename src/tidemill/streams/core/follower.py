"""What a follower asks its leader, and what it does with the answer.

Every question carries the leader epoch that the follower knows, the offset it goes on from and the epoch of its last
record. A leader whose log differs there answers with the largest epoch that is not above the follower's and where
that epoch ends; the follower cuts back to where both agree and asks again (KIP-101, KIP-279, KIP-320). It never cuts
to a high watermark.

An answer counts only while the question is still true: the same leader, the same epoch, the same end of the log.
Anything else is late and is dropped.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage
from tidemill.records.header import BatchHeader
from tidemill.streams.core.epochs import Epochs
from tidemill.streams.core.insync import Term


class Question(NamedTuple):
    """What a follower asks: everything from `offset` on; its last record is of `last_epoch` (-1: it has none)."""

    leader: int
    epoch: int
    offset: int
    last_epoch: int


class Diverged(NamedTuple):
    """The leader's log is another one there: the largest epoch not above the asked one, and where it ends."""

    epoch: int
    end_offset: int


class OutOfRange(NamedTuple):
    """The leader's log does not reach so far back (or the follower's lies before it): where it begins."""

    log_start_offset: int


class CutTo(NamedTuple):
    """Drop everything from this offset on."""

    end_offset: int


class BeginAt(NamedTuple):
    """Drop everything and begin at this offset."""

    offset: int


def question(term: Term, epochs: Epochs, end_offset: int) -> Question:
    """What to ask with a log that ends there."""
    return Question(term.leader, term.epoch, end_offset, epochs.last)


def still_true(asked: Question, term: Term, end_offset: int) -> bool:
    """Whether an answer to the question may be used now."""
    return (asked.leader, asked.epoch, asked.offset) == (term.leader, term.epoch, end_offset)


def compare(asked: Question, epochs: Epochs, start_offset: int, end_offset: int) -> Diverged | OutOfRange | None:
    """What a leader whose log has these bounds finds wrong with a follower's; None when it may be served."""
    if asked.offset < start_offset:
        return OutOfRange(start_offset)
    if asked.last_epoch >= 0:
        epoch, end = epochs.end_of(asked.last_epoch, end_offset)
        if epoch < asked.last_epoch or end < asked.offset:
            return Diverged(epoch, end)
    elif asked.offset > end_offset:
        return OutOfRange(start_offset)
    return None


def mend(
    found: Diverged | OutOfRange, epochs: Epochs, start_offset: int, end_offset: int, leader_start_offset: int
) -> CutTo | BeginAt:
    """How a follower whose log has these bounds comes nearer to a leader whose log differs."""
    if isinstance(found, OutOfRange):
        return BeginAt(found.log_start_offset)
    _, own_end = epochs.end_of(found.epoch, end_offset)
    cut = min(found.end_offset, own_end)
    if cut <= start_offset:  # no record in common: nothing here is known to be the leader's
        return BeginAt(leader_start_offset)
    return CutTo(cut)


def check_copied(headers: Sequence[BatchHeader], asked: Question, epochs: Epochs) -> None:
    """Refuse batches that no leader of this epoch sends: CorruptMessage."""
    offset, epoch = asked.offset, epochs.last
    for header in headers:
        if header.base_offset < offset:
            raise CorruptMessage(f"a copied batch begins at {header.base_offset}, before {offset}")
        if not epoch <= header.leader_epoch <= asked.epoch:
            raise CorruptMessage(f"a copied batch has epoch {header.leader_epoch}, between {epoch} and {asked.epoch}")
        offset, epoch = header.next_offset, header.leader_epoch
