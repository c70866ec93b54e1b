"""The entries of the journal of replicated timelines: what a call has changed, so that every replica can change it too.

An entry names only what took effect: messages with the numbers that they got, leases that were granted, commands that
were done. Each replica applies the entries in their order, with the rules of `core.lease`, and gets the same messages.
An entry for a message that a replica does not have changes nothing. So a replica may begin to read anywhere before the
`RestatedMessages` of all messages that are older than its first entry.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from tidemill.timelines.core.lease import Claim, Command
from tidemill.timelines.core.message import NewMessage, TimedMessage
from tidemill.timelines.core.timeline import TimelineInfo


class JournalPosition(NamedTuple):
    """The end of what was read of a journal: the next offset, and the leader epoch of the last entry before it."""

    next_offset: int
    epoch: int


class JournalBatch(NamedTuple):
    """Values that were written together, and the position behind them."""

    values: Sequence[bytes]
    until: JournalPosition


def follows(offset: int, batches: Sequence[JournalBatch]) -> bool:
    """Whether the batches begin at this offset, and nothing is missing between them."""
    for each in batches:
        if each.until.next_offset - len(each.values) != offset:
            return False
        offset = each.until.next_offset
    return True


NOTHING_READ = JournalPosition(0, -1)


class ScheduledMessages(NamedTuple):
    """New messages, with consecutive numbers from `first` on."""

    timeline: str
    first: int
    messages: Sequence[NewMessage]


class GrantedClaims(NamedTuple):
    """Claims that were granted."""

    timeline: str
    claims: Sequence[Claim]
    now_ms: int
    early_ms: int


class DoneCommands(NamedTuple):
    """Commands that were done. A `MoveToTimeline` has the id that the message got.

    Completions of recurring messages are `CompleteAs`, with the next occurrence.
    """

    timeline: str
    commands: Sequence[Command]
    now_ms: int


class KeptTimeline(NamedTuple):
    """A timeline as it is after a step of its lifecycle."""

    timeline: TimelineInfo


class PurgedMessages(NamedTuple):
    """Up to `limit` messages of a deleted timeline were removed; `is_last`: then also the timeline."""

    timeline: str
    limit: int
    is_last: bool


class RestatedCatalogue(NamedTuple):
    """All timelines, and the last numbers that were given to a message and to a timeline."""

    timelines: Sequence[TimelineInfo]
    last_seq: int
    last_number: int


class RestatedMessages(NamedTuple):
    """Messages as they are now, with their bodies, for replicas that begin to read here."""

    timeline: str
    messages: Sequence[TimedMessage]


class AdoptedMessages(NamedTuple):
    """Messages that came from another store, with their new numbers; from now on those up to `until` are here.

    `source` names the other store, and `until` is a number of it. So a move that is repeated adds nothing twice.
    """

    source: str
    until: int
    timeline: str
    messages: Sequence[TimedMessage]


JournalEntry: TypeAlias = (
    AdoptedMessages
    | ScheduledMessages
    | GrantedClaims
    | DoneCommands
    | KeptTimeline
    | PurgedMessages
    | RestatedCatalogue
    | RestatedMessages
)


class JournalGroup(NamedTuple):
    """Entries that were written together, and the position behind them."""

    entries: Sequence[JournalEntry]
    until: JournalPosition
