"""Decides a batch of claims or commands as a whole: the results, and the changes for the store to write.

A store reads the messages that a batch refers to, calls these functions, and writes the changes in the same
transaction. Each write requires that the message is still at the version that was decided on. Entries of one batch take
effect in their order, also when two of them refer to the same message.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tidemill.timelines.core.lease import (
    TOOK_EFFECT,
    Cancel,
    Claim,
    Command,
    CommandOutcome,
    LeaseGrant,
    Move,
    MoveToTimeline,
    dead_letter_id,
    decide,
    take,
)
from tidemill.timelines.core.message import NewMessage, Scheduled, TimedMessage


class Change(NamedTuple):
    """A message before and after the change (None: it is removed), and the timeline that contains it afterwards."""

    before: TimedMessage
    after: TimedMessage | None
    timeline: str


def plan_schedule(
    known: Iterable[TimedMessage], messages: Sequence[NewMessage]
) -> tuple[dict[str, Scheduled], list[NewMessage]]:
    """The results for ids that exist already, and the messages that are new, each id once."""
    there = {old.id: Scheduled(old.id, old.seq, old.version, old.due_ms, True, old.scheduled_ms) for old in known}
    fresh: dict[str, NewMessage] = {}
    for message in messages:
        if message.id not in there:
            fresh.setdefault(message.id, message)
    return there, list(fresh.values())


def answer_schedule(
    there: Mapping[str, Scheduled], fresh: Mapping[str, int], messages: Sequence[NewMessage]
) -> list[Scheduled]:
    """A result for each message; of several with one new id, the first is the one that was stored."""
    answers = []
    first: dict[str, Scheduled] = {}
    for message in messages:
        message_id = message.id
        answer = there.get(message_id)
        if answer is None and message_id in first:
            answer = first[message_id]._replace(duplicate=True)
        elif answer is None:
            due_ms = message.due_ms
            answer = first[message_id] = Scheduled(message_id, fresh[message_id], 1, due_ms, False, due_ms)
        answers.append(answer)
    return answers


def plan_leases(
    timeline: str, messages: Iterable[TimedMessage], claims: Sequence[Claim], now_ms: int, early_ms: int
) -> tuple[list[LeaseGrant | None], list[Change]]:
    """The leases that the claims get, and the changes they make."""
    there = {message.seq: message for message in messages}
    leases: list[LeaseGrant | None] = []
    changes = []
    for claim in claims:
        before = there.get(claim.seq)
        taken = take(before, claim, now_ms, early_ms)
        if before is None or taken is None:
            leases.append(None)
            continue
        there[claim.seq] = taken
        leases.append(LeaseGrant(taken.seq, taken.token, claim.holder, taken.due_ms, taken.attempts))
        changes.append(Change(before, taken, timeline))
    return leases, changes


def targets(commands: Sequence[Command]) -> tuple[list[int], list[str]]:
    """The messages that the commands refer to: some by number, some by id."""
    numbers = [command.seq for command in commands if not isinstance(command, Cancel | Move)]
    ids = [command.id for command in commands if isinstance(command, Cancel | Move)]
    return numbers, ids


def wanted_ids(commands: Sequence[Command]) -> dict[str, list[str]]:
    """The ids that commands want to use in other timelines, by timeline; sorted, so that stores lock in one order."""
    wanted: dict[str, list[str]] = {one.to: [] for one in commands if isinstance(one, MoveToTimeline)}
    for command in commands:
        if isinstance(command, MoveToTimeline) and command.id:
            wanted[command.to].append(command.id)
    return dict(sorted(wanted.items()))


def plan_commands(
    timeline: str,
    messages: Iterable[TimedMessage],
    commands: Sequence[Command],
    now_ms: int,
    used: Mapping[str, Collection[str]],
) -> tuple[list[CommandOutcome], list[Change]]:
    """The outcome of each command, and the changes of all commands together.

    `used`: those of the `wanted_ids` that messages of these timelines have.
    """
    taken = {name: set(ids) for name, ids in used.items()}
    there = {message.seq: message for message in messages}
    seq_of = {message.id: message.seq for message in there.values()}
    changes: dict[int, Change] = {}
    outcomes = []
    for command in commands:
        seq = seq_of.get(command.id, 0) if isinstance(command, Cancel | Move) else command.seq
        message = there.get(seq)
        outcome, after = decide(message, command, now_ms)
        outcomes.append(outcome)
        if outcome not in TOOK_EFFECT or message is None:
            continue
        del there[seq]
        target = timeline
        if isinstance(command, MoveToTimeline) and after is not None:
            target = command.to
            there_used = taken.setdefault(target, set())
            is_free = bool(command.id) and command.id not in there_used
            after = after._replace(id=command.id if is_free else dead_letter_id(timeline, after.id, seq))
            there_used.add(after.id)
        elif after is not None:
            there[seq] = after
        first = changes.get(seq)
        changes[seq] = Change(first.before if first else message, after, target)
    return outcomes, list(changes.values())
