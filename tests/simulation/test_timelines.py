"""Millions of steps of a timeline on a virtual clock, and mutants that must be caught."""

import pytest
from tests.simulation.timeline_world import Rules, World

from tidemill.timelines.core.lease import Cancel, Command, CommandOutcome, Complete, Extend, Move, Release, decide
from tidemill.timelines.core.message import TimedMessage

STEPS = 500_000
MUTANT_STEPS = 200_000
SEEDS = (1, 2, 3, 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_is_broken(seed: int) -> None:
    report = World(seed, Rules()).run(STEPS)
    assert report.violations == [], f"seed {seed}"
    assert report.steps >= STEPS
    # The run has met what it is meant to meet.
    assert min(report.crashes, report.refused, report.cancelled, report.moved) > 50
    assert report.jumps > 5
    assert report.deliveries > report.completed > 10_000


def test_the_same_seed_is_the_same_run() -> None:
    assert World(7, Rules()).run(20_000) == World(7, Rules()).run(20_000)


def test_without_faults_nearly_everything_is_delivered_at_the_next_look() -> None:
    report = World(3, Rules(), faults=False).run(MUTANT_STEPS)
    assert report.violations == []
    assert report.late_ms(0.99) <= 40


def _no_token(
    message: TimedMessage | None, command: Command, now_ms: int
) -> tuple[CommandOutcome, TimedMessage | None]:
    if message is not None and isinstance(command, Complete | Release | Extend):
        return decide(message, command._replace(token=message.token), now_ms)
    return decide(message, command, now_ms)


def _no_end(message: TimedMessage | None, command: Command, now_ms: int) -> tuple[CommandOutcome, TimedMessage | None]:
    if message is not None and message.holder is not None and isinstance(command, Complete | Release | Extend):
        return decide(message, command, min(now_ms, message.due_ms - 1))
    return decide(message, command, now_ms)


def _owner_ignores_lease(
    message: TimedMessage | None, command: Command, now_ms: int
) -> tuple[CommandOutcome, TimedMessage | None]:
    if message is not None and isinstance(command, Cancel | Move):
        return decide(message._replace(holder=None), command, now_ms)
    return decide(message, command, now_ms)


@pytest.mark.parametrize(
    ("mutant", "finding"),
    [
        (Rules(decide=_no_token), "stale holder"),
        (Rules(decide=_no_end), "stale holder"),
        (Rules(decide=_owner_ignores_lease), "under a live lease"),
        (Rules(ahead_ms=50), "early"),
        (Rules(trust_the_wall=True), "early|two live leases|stale holder"),
        (Rules(tail_lost=20), "lost|finished|token|two live leases|stale holder"),
    ],
    ids=["no token", "no end of lease", "owner ignores lease", "early", "wall clock", "lost tail"],
)
def test_a_mutant_is_caught(mutant: Rules, finding: str) -> None:
    report = World(5, mutant).run(MUTANT_STEPS)
    assert any(word in violation for violation in report.violations for word in finding.split("|")), report.violations
