"""Leases: the rules by which a message changes hands, and how every change is fenced.

A lease moves the message along its timeline to the end of the lease and stores holder and token. Nothing else marks the
message as taken, and no task has to run to return it: when the lease ends, the message is available again.

A lease is not a lock. A consumer may have been paused for an hour and resume with a lease that has ended. So every
command carries the token or version that its sender saw, and the store compares it in the same statement that writes.
What must never happen:

- two live leases on one message: a lease is taken only from the version that was seen, and only when due;
- a stale holder changes anything: token, holder and end of lease are compared at the time of the change;
- a producer changes a message under a live lease, or a message of another producer group.

`decide` is the specification for all stores. The memory store calls it, the SQL stores implement it in SQL, and one
contract suite tests all of them.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from tidemill.timelines.core import errors
from tidemill.timelines.core.message import (
    BATCH_MESSAGES_MAX,
    ID_CHARS_MAX,
    TimedMessage,
    check_due,
    check_group,
    check_id,
)
from tidemill.timelines.core.recurrence import next_occurrence, recurrence_from

LEASE_MS_MIN = 1
LEASE_MS_MAX = 7 * 24 * 3_600_000
EARLY_MS_MAX = 1_000
HOLDER_CHARS_MAX = 200
DEAD_LETTER_NAME_CHARS_MAX = 100
"""The part of a timeline's name that is in the ids of its dead letters."""
NO_MORE = -1


class Claim(NamedTuple):
    """A request to lease the message `seq` as it was seen at `version`, until `until_ms`.

    `seen_ms` is the due time that it had then: stores look messages up by their position on the timeline.
    """

    seq: int
    version: int
    holder: str
    until_ms: int
    seen_ms: int


class LeaseGrant(NamedTuple):
    """A live lease. `token` proves it; `attempts` includes this one."""

    seq: int
    token: int
    holder: str
    until_ms: int
    attempts: int


class Complete(NamedTuple):
    """The work is done: remove the message."""

    seq: int
    token: int


class CompleteAs(NamedTuple):
    """A completion of a recurring message as the leader of replicated timelines has decided it; only in its journal.

    With NO_MORE as its due time, that was the last occurrence.
    """

    seq: int
    token: int
    due_ms: int
    recurrence: str


class Release(NamedTuple):
    """The holder returns the message; it is due again at `due_ms`."""

    seq: int
    token: int
    due_ms: int


class Extend(NamedTuple):
    """The holder needs more time: the lease ends at `until_ms` instead."""

    seq: int
    token: int
    until_ms: int


class Cancel(NamedTuple):
    """The producer group withdraws its message."""

    id: str
    group: str = ""


class Move(NamedTuple):
    """The producer group gives its message another due time."""

    id: str
    due_ms: int
    group: str = ""


class MoveToTimeline(NamedTuple):
    """Move the message, seen at `version`, to the timeline `to`, due at once: as a dead letter, or to try again."""

    seq: int
    version: int
    to: str
    id: str = ""
    """The id that it gets there if no message there has it; otherwise `dead_letter_id`."""


class DeadLetterOrigin(NamedTuple):
    """The first `DEAD_LETTER_NAME_CHARS_MAX` characters of a timeline's name, and the id that a dead letter had there.

    The id is empty when it may have been cut.
    """

    timeline: str
    id: str


Command = Complete | CompleteAs | Release | Extend | Cancel | Move | MoveToTimeline


class CommandOutcome(Enum):
    """The result of a command."""

    DONE = "done"
    RECURRED = "recurred"  # completed, and the next occurrence of the message is scheduled
    MISSING = "missing"  # completed, cancelled or unknown; by number also: never leased yet
    STALE = "stale"  # the lease has ended, or the message changed since it was seen
    LEASED = "leased"  # a consumer holds it
    NOT_OWNER = "not owner"


TOOK_EFFECT = frozenset({CommandOutcome.DONE, CommandOutcome.RECURRED})
"""The outcomes of commands that have changed something."""

_ERRORS: dict[CommandOutcome, type[errors.TimelineError]] = {
    CommandOutcome.MISSING: errors.UnknownMessage,
    CommandOutcome.STALE: errors.StaleLease,
    CommandOutcome.LEASED: errors.LeaseIsLive,
    CommandOutcome.NOT_OWNER: errors.NotOwner,
}


def error_of(outcome: CommandOutcome) -> errors.TimelineError | None:
    """The typed error of an outcome, for callers that answer one command at a time; None when it was done."""
    kind = _ERRORS.get(outcome)
    return kind() if kind else None


def check_claims(claims: Sequence[Claim], now_ms: int, early_ms: int) -> None:
    """Reject the whole batch when one of its claims is invalid, before anything is written."""
    _check_length(len(claims))
    if not 0 <= early_ms <= EARLY_MS_MAX:
        raise errors.BadLease(f"a message can be taken at most {EARLY_MS_MAX} ms early, not {early_ms} ms")
    for claim in claims:
        if not 0 < len(claim.holder) <= HOLDER_CHARS_MAX or not claim.holder.isprintable():
            raise errors.BadLease(f"a holder must have 1 to {HOLDER_CHARS_MAX} printable characters")
        _check_end(claim.until_ms, now_ms)


def check_commands(commands: Sequence[Command], now_ms: int) -> None:
    """Reject the whole batch when one of its commands is invalid, before anything is written."""
    _check_length(len(commands))
    for command in commands:
        match command:
            case Release(_, _, due_ms):
                check_due(due_ms)
            case Extend(_, _, until_ms):
                _check_end(until_ms, now_ms)
            case Move(message_id, due_ms, group):
                check_id(message_id)
                check_group(group)
                check_due(due_ms)
            case Cancel(message_id, group):
                check_id(message_id)
                check_group(group)
            case MoveToTimeline(_, _, _, message_id) if message_id:
                check_id(message_id)
            case _:
                pass


def take(message: TimedMessage | None, claim: Claim, now_ms: int, early_ms: int = 0) -> TimedMessage | None:
    """The message under its new lease, or None when the claim is too early or too late.

    `early_ms` lets the dispatcher take a waiting message shortly before it is due, so that it can be sent in time. A
    message under a live lease is never taken early: its due time is the end of that lease.
    """
    if message is None or (message.version, message.due_ms) != (claim.version, claim.seen_ms):
        return None
    if message.due_ms > now_ms and (message.holder is not None or message.due_ms > now_ms + early_ms):
        return None
    version = message.version + 1
    return message._replace(
        due_ms=claim.until_ms, holder=claim.holder, token=version, version=version, attempts=message.attempts + 1
    )


def decide(message: TimedMessage | None, command: Command, now_ms: int) -> tuple[CommandOutcome, TimedMessage | None]:
    """The outcome of a command on this message, and the message afterwards (None: it was removed, or not changed).

    Commands with a number come from consumers that have held the message. A message at version 1 was never held, so
    stores need not find it by its number.
    """
    if message is None or (message.version == 1 and not isinstance(command, Cancel | Move)):
        return CommandOutcome.MISSING, None
    match command:
        case Complete(_, token) | CompleteAs(_, token, _, _) | Release(_, token, _) | Extend(_, token, _):
            if message.holder is None or message.token != token or message.due_ms <= now_ms:
                return (CommandOutcome.MISSING if _has_recurred(message, token) else CommandOutcome.STALE), None
            if isinstance(command, Complete | CompleteAs):
                again = _again(message, command, now_ms)
                return (CommandOutcome.DONE if again is None else CommandOutcome.RECURRED), again
            return CommandOutcome.DONE, _held(message, command)
        case Cancel(_, group) | Move(_, _, group):
            if message.group != group:
                return CommandOutcome.NOT_OWNER, None
            if message.holder is not None and message.due_ms > now_ms:
                if message.recurrence and isinstance(command, Cancel):  # the occurrence ends with its lease
                    return CommandOutcome.DONE, message._replace(recurrence="", version=message.version + 1)
                return CommandOutcome.LEASED, None
            return CommandOutcome.DONE, _owned(message, command)
        case MoveToTimeline(_, version, _, _):
            if message.version != version or message.due_ms > now_ms:
                return CommandOutcome.STALE, None
            return CommandOutcome.DONE, _dead(message, now_ms)


def dead_letter_id(timeline: str, message_id: str, seq: int) -> str:
    """The id of a message in the dead-letter timeline: readable, and unique because a seq is never reused."""
    origin = f"@{timeline[:DEAD_LETTER_NAME_CHARS_MAX]}.{seq}"
    return message_id[: ID_CHARS_MAX - len(origin)] + origin


def dead_occurrence_id(timeline: str, message: TimedMessage) -> str:
    """The id of an occurrence of a recurring message in the dead-letter timeline: each occurrence has its own."""
    time = f".{message.scheduled_ms}"
    room = ID_CHARS_MAX - len(dead_letter_id(timeline, "", message.seq)) - len(time)
    return dead_letter_id(timeline, message.id[:room] + time, message.seq)


def dead_letter_origin(message_id: str) -> DeadLetterOrigin | None:
    """Where a dead letter comes from, by its id; None for an id that `dead_letter_id` has not made."""
    before, mark, origin = message_id.rpartition("@")
    timeline, dot, seq = origin.rpartition(".")
    if not (mark and dot and timeline) or not (seq.isascii() and seq.isdigit()):
        return None
    return DeadLetterOrigin(timeline, before if len(message_id) < ID_CHARS_MAX else "")


def _check_length(length: int) -> None:
    if length > BATCH_MESSAGES_MAX:
        raise errors.BatchTooLarge(f"{length} entries in one batch; at most {BATCH_MESSAGES_MAX}")


def _check_end(until_ms: int, now_ms: int) -> None:
    if not LEASE_MS_MIN <= until_ms - now_ms <= LEASE_MS_MAX:
        raise errors.BadLease(f"a lease must last {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {until_ms - now_ms} ms")


def _has_recurred(message: TimedMessage, token: int) -> bool:
    """Whether the lease of this token was completed: a client that got no answer asks again."""
    return message.token == token and message.holder is None and message.attempts == 0 and message.recurrence != ""


def _held(message: TimedMessage, command: Release | Extend) -> TimedMessage:
    if isinstance(command, Release):
        return message._replace(due_ms=command.due_ms, holder=None, version=message.version + 1)
    return message._replace(due_ms=command.until_ms, version=message.version + 1)


def _again(message: TimedMessage, command: Complete | CompleteAs, now_ms: int) -> TimedMessage | None:
    """The next occurrence of a completed message; None for a message that is not due again."""
    if isinstance(command, CompleteAs):
        due_ms, recurrence = command.due_ms, command.recurrence
    elif message.recurrence:
        following = next_occurrence(recurrence_from(message.recurrence), message.scheduled_ms, now_ms)
        due_ms, recurrence = (NO_MORE, "") if following is None else (following.due_ms, following.recurrence.to_text())
    else:
        return None
    if due_ms == NO_MORE:
        return None
    return message._replace(
        due_ms=due_ms,
        scheduled_ms=due_ms,
        holder=None,
        version=message.version + 1,
        attempts=0,
        recurrence=recurrence,
    )


def _owned(message: TimedMessage, command: Cancel | Move) -> TimedMessage | None:
    if isinstance(command, Cancel):
        return None
    due_ms = command.due_ms
    return message._replace(due_ms=due_ms, scheduled_ms=due_ms, holder=None, version=message.version + 1)


def _dead(message: TimedMessage, now_ms: int) -> TimedMessage:
    return message._replace(
        due_ms=now_ms, scheduled_ms=now_ms, holder=None, version=message.version + 1, attempts=0, recurrence=""
    )
