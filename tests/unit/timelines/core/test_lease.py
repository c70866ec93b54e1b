"""The law of leases, case by case."""

import pytest

from tidemill.timelines.core import errors
from tidemill.timelines.core.changes import plan_commands, plan_leases
from tidemill.timelines.core.lease import (
    Cancel,
    Claim,
    Command,
    CommandOutcome,
    Complete,
    Extend,
    Move,
    MoveToTimeline,
    Release,
    dead_letter_id,
    decide,
    error_of,
    take,
)
from tidemill.timelines.core.message import MessageStatus, TimedMessage, check_id, status_of
from tidemill.timelines.core.timeline import TimelineSettings

FREE = TimedMessage(1, "a", 100, 100, 0, "mine", None, 0, 1, 0, 0, None)
HELD = FREE._replace(due_ms=200, holder="w", token=2, version=2, attempts=1)


@pytest.mark.parametrize(
    ("due_ms", "holder", "status"),
    [
        (100, None, MessageStatus.AVAILABLE),
        (100, "w", MessageStatus.AVAILABLE),
        (101, None, MessageStatus.WAITING),
        (101, "w", MessageStatus.LEASED),
    ],
)
def test_the_state_follows_from_position_holder_and_time(
    due_ms: int, holder: str | None, status: MessageStatus
) -> None:
    assert status_of(due_ms, holder, 100) is status


@pytest.mark.parametrize(
    ("message", "version", "seen_ms", "now_ms", "early_ms", "taken"),
    [
        (FREE, 1, 100, 100, 0, True),
        (FREE, 1, 100, 99, 0, False),
        (FREE, 1, 100, 95, 5, True),
        (FREE, 1, 90, 100, 0, False),
        (FREE, 2, 100, 100, 0, False),
        (HELD, 2, 200, 199, 0, False),
        (HELD, 2, 200, 199, 5, False),
        (HELD, 2, 200, 200, 0, True),
        (HELD, 2, 100, 200, 0, False),
        (None, 1, 100, 100, 0, False),
    ],
)
def test_a_lease_is_taken_from_the_version_seen_when_due(
    message: TimedMessage | None, version: int, seen_ms: int, now_ms: int, early_ms: int, *, taken: bool
) -> None:
    result = take(message, Claim(1, version, "x", 500, seen_ms), now_ms, early_ms)
    assert (result is not None) == taken
    if result is not None:
        assert (result.due_ms, result.holder, result.token, result.version) == (500, "x", version + 1, version + 1)


def test_no_lease_is_taken_early_by_default() -> None:
    claim = Claim(1, FREE.version, "x", 500, FREE.due_ms)
    assert take(FREE, claim, FREE.due_ms - 1) is None
    assert take(FREE, claim, FREE.due_ms) is not None


@pytest.mark.parametrize(
    ("message", "command", "now_ms", "outcome"),
    [
        (HELD, Complete(1, 2), 199, CommandOutcome.DONE),
        (HELD, Complete(1, 2), 200, CommandOutcome.STALE),
        (HELD, Complete(1, 1), 150, CommandOutcome.STALE),
        (FREE, Complete(1, 0), 50, CommandOutcome.MISSING),
        (None, Complete(1, 2), 150, CommandOutcome.MISSING),
        (HELD, Release(1, 2, 300), 199, CommandOutcome.DONE),
        (HELD, Extend(1, 2, 300), 200, CommandOutcome.STALE),
        (HELD, Cancel("a", "mine"), 199, CommandOutcome.LEASED),
        (HELD, Cancel("a", "mine"), 200, CommandOutcome.DONE),
        (HELD, Move("a", 5, "yours"), 200, CommandOutcome.NOT_OWNER),
        (FREE, Move("a", 5, "mine"), 50, CommandOutcome.DONE),
        (FREE, MoveToTimeline(1, 1, "dead"), 100, CommandOutcome.MISSING),
        (HELD, MoveToTimeline(1, 2, "dead"), 200, CommandOutcome.DONE),
        (HELD, MoveToTimeline(1, 2, "dead"), 199, CommandOutcome.STALE),
        (HELD, MoveToTimeline(1, 1, "dead"), 200, CommandOutcome.STALE),
    ],
)
def test_every_command_is_fenced(
    message: TimedMessage | None, command: Command, now_ms: int, outcome: CommandOutcome
) -> None:
    assert decide(message, command, now_ms)[0] is outcome


def test_outcomes_have_typed_errors() -> None:
    assert error_of(CommandOutcome.DONE) is None
    assert isinstance(error_of(CommandOutcome.STALE), errors.StaleLease)
    assert {type(error_of(outcome)) for outcome in CommandOutcome} == {
        type(None),
        errors.UnknownMessage,
        errors.StaleLease,
        errors.LeaseIsLive,
        errors.NotOwner,
    }


def test_two_claims_of_one_batch_give_one_lease() -> None:
    leases, changes = plan_leases("line", [FREE], [Claim(1, 1, "x", 500, 100), Claim(1, 1, "y", 500, 100)], 100, 0)
    assert [lease is not None for lease in leases] == [True, False]
    assert len(changes) == 1


def test_commands_of_one_batch_act_in_their_order_and_are_written_once() -> None:
    commands: list[Command] = [Extend(1, 2, 400), Release(1, 2, 300), Complete(1, 2), Cancel("a", "mine")]
    outcomes, changes = plan_commands("line", [HELD], commands, 150, {})
    assert outcomes == [CommandOutcome.DONE, CommandOutcome.DONE, CommandOutcome.STALE, CommandOutcome.DONE]
    (change,) = changes
    assert change.before is HELD
    assert change.after is None


def test_attempts_are_used_up_at_the_limit() -> None:
    settings = TimelineSettings(max_attempts=3, dead_letter="topic:dead")
    assert [settings.exhausted(attempts) for attempts in (2, 3, 4)] == [False, True, True]
    assert not TimelineSettings().exhausted(10**6)


def test_settings_survive_json_and_skip_what_a_later_version_added() -> None:
    settings = TimelineSettings(lease_ms=7, window_ms=9)
    assert TimelineSettings.from_json(settings.to_json()) == settings
    assert TimelineSettings.from_json('{"lease_ms": 7, "colour": "red"}') == TimelineSettings(lease_ms=7)


def test_the_id_of_a_dead_letter_is_an_id() -> None:
    long = dead_letter_id("t" * 249, "m" * 200, 2**62)
    check_id(long)
    assert long.startswith("mm")
    assert long.endswith(f".{2**62}")
    assert dead_letter_id("t" * 249, "m" * 200, 2**62 - 1) != long
    assert dead_letter_id("line", "a", 7) == "a@line.7"
