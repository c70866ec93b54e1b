"""Decides what a follower requests from its leader, and how it handles the response.

Every request carries the leader epoch that the follower knows, the next offset and the epoch of its last record. A
leader whose log differs there returns the largest epoch that is not above the follower's, and where that epoch ends.
The follower truncates to the point where both logs agree and requests again (KIP-101, KIP-279, KIP-320). It never
truncates to a high watermark.

A response is valid only while its request is still current: the same leader, epoch and log end. Any other response is
late and must be dropped.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage
from tidemill.records.header import BatchHeader
from tidemill.streams.core.epochs import Epochs
from tidemill.streams.core.insync import Term


class Question(NamedTuple):
    """A follower's request for everything from `offset` on. `last_epoch` is the epoch of its last record (-1: none)."""

    leader: int
    epoch: int
    offset: int
    last_epoch: int


class Diverged(NamedTuple):
    """The leader's log differs there: the largest epoch not above the requested one, and where it ends."""

    epoch: int
    end_offset: int


class OutOfRange(NamedTuple):
    """The requested offset is outside of the leader's log: the leader's start offset."""

    log_start_offset: int


class CutTo(NamedTuple):
    """Truncate the log to this offset."""

    end_offset: int


class BeginAt(NamedTuple):
    """Drop everything and start at this offset."""

    offset: int


def question(term: Term, epochs: Epochs, end_offset: int) -> Question:
    """Build the request for a log that ends at `end_offset`."""
    return Question(term.leader, term.epoch, end_offset, epochs.last)


def still_true(asked: Question, term: Term, end_offset: int) -> bool:
    """Whether a response to the request may still be used."""
    return (asked.leader, asked.epoch, asked.offset) == (term.leader, term.epoch, end_offset)


def compare(asked: Question, epochs: Epochs, start_offset: int, end_offset: int) -> Diverged | OutOfRange | None:
    """Return how the follower's log differs from a leader log with these bounds, or None if it may be served."""
    if asked.offset < start_offset:
        return OutOfRange(start_offset)
    if asked.last_epoch >= 0:
        epoch, end = epochs.end_of(asked.last_epoch, end_offset)
        if epoch < asked.last_epoch or end < asked.offset:
            return Diverged(epoch, end)
    elif asked.offset > end_offset:
        return OutOfRange(start_offset)
    return None


def next_step(
    found: Diverged | OutOfRange, epochs: Epochs, start_offset: int, end_offset: int, leader_start_offset: int
) -> CutTo | BeginAt:
    """Return the next step that brings a follower log with these bounds closer to its leader's log."""
    if isinstance(found, OutOfRange):
        return BeginAt(found.log_start_offset)
    _, own_end = epochs.end_of(found.epoch, end_offset)
    cut = min(found.end_offset, own_end)
    if cut <= start_offset:  # no common record: nothing here is known to be the leader's
        return BeginAt(leader_start_offset)
    return CutTo(cut)


def check_copied(headers: Sequence[BatchHeader], asked: Question, epochs: Epochs) -> None:
    """Raise CorruptMessage for batches that no leader of this epoch sends."""
    offset, epoch = asked.offset, epochs.last
    for header in headers:
        if header.base_offset < offset:
            raise CorruptMessage(f"a replicated batch starts at offset {header.base_offset}, before {offset}")
        if not epoch <= header.leader_epoch <= asked.epoch:
            raise CorruptMessage(
                f"a replicated batch has epoch {header.leader_epoch}, outside of {epoch} to {asked.epoch}"
            )
        offset, epoch = header.next_offset, header.leader_epoch
