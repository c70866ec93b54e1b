"""Deadlines of groups, for any history: they move with a clock that is set, and each one wakes its group in time."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.group_stage import Client, Stage

from tidemill.groups.core.classic_group import NEVER_MS
from tidemill.groups.core.limits import GroupLimits
from tidemill.model.errors import KafkaError

LIMITS = GroupLimits(initial_rebalance_delay_ms=700)
SESSIONS_MS = {"a": 10_000, "b": 6_000, "c": 14_000}
REBALANCES_MS = {"a": 5_000, "b": 21_000, "c": 900}


class Operation(NamedTuple):
    """A request of a member, or a pause."""

    verb: str
    name: str = "a"
    pause_ms: int = 0


def steps(verbs: Sequence[str]) -> st.SearchStrategy[list[Operation]]:
    """Histories. Members come and go, and most pauses are shorter than their sessions."""
    pauses = st.sampled_from([1, 250, 699, 700, 900, 2_999, 5_000, 5_999, 10_000, 31_000])
    request = st.builds(Operation, st.sampled_from(verbs), st.sampled_from("abc"))
    return st.lists(request | request | st.builds(Operation, st.just("wait"), pause_ms=pauses), max_size=30)


CLASSIC = steps(["join", "join", "sync", "sync", "beat", "leave", "restart"])
CONSUMER = steps(["pulse", "pulse", "pulse", "quit", "restart"])


def wake(stage: Stage) -> int | None:
    """The time until the group acts next."""
    group = stage.shard.groups.get("g")
    return None if group is None or group.wake_ms == NEVER_MS else group.wake_ms - stage.now_ms


def play(stage: Stage, operation: Operation) -> object:
    """What the members see of an operation."""
    verb, name, pause_ms = operation
    error = None
    try:
        match verb:
            case "wait":
                stage.wait(pause_ms)
            case "join":
                instance = "i-c" if name == "c" else None
                session_ms, rebalance_ms = SESSIONS_MS[name], REBALANCES_MS[name]
                stage.join("g", name, instance=instance, session_ms=session_ms, rebalance_ms=rebalance_ms)
            case "sync":
                known = {each: each.encode() for each in "abc" if stage.client(each).member_id}
                stage.sync("g", name, known if stage.client(name).leads else None)
            case "beat":
                stage.beat("g", name)
            case "leave":
                stage.leave("g", stage.leaver(name))
            case "pulse":
                changes = {} if stage.client(name).epoch else {"rebalance_timeout_ms": REBALANCES_MS[name]}
                stage.pulse("g", name, **changes)
            case "quit":
                stage.pulse("g", name, member_epoch=-1)
            case _:
                stage.clients[name] = Client(name, instance_id=stage.client(name).instance_id)
    except KafkaError as raised:
        error = type(raised)
        stage.clients[name] = Client(name, instance_id=stage.client(name).instance_id)
    answers = [(who, type(answer) if isinstance(answer, KafkaError) else answer) for who, answer in stage.reported()]
    stage.shard.drop_unused("g")
    group = stage.shard.groups.get("g")
    return error, repr(answers), None if group is None else (group.state, group.generation, sorted(group.members))


def new_stage(verb: str) -> Stage:
    stage = Stage(LIMITS)
    if verb == "consumer":
        stage.make_topic("t", 4)
    return stage


@pytest.mark.parametrize("kind", ["classic", "consumer"])
@given(data=st.data(), by_ms=st.sampled_from([-86_400_000, -1, 1, 86_400_000]))
@settings(max_examples=60)
def test_remaining_times_stay_the_same_when_the_clock_is_set(kind: str, data: st.DataObject, by_ms: int) -> None:
    before = data.draw(CLASSIC if kind == "classic" else CONSUMER)
    after = data.draw(CLASSIC if kind == "classic" else CONSUMER)
    kept, moved = new_stage(kind), new_stage(kind)
    for operation in before:
        assert play(kept, operation) == play(moved, operation)
    moved.now_ms += by_ms
    for group in moved.shard.groups.values():
        group.shift(by_ms)
    assert wake(kept) == wake(moved)
    for operation in [*after, Operation("wait", pause_ms=60_000)]:
        assert play(kept, operation) == play(moved, operation)
        assert wake(kept) == wake(moved)


@pytest.mark.parametrize("kind", ["classic", "consumer"])
@given(data=st.data())
@settings(max_examples=60)
def test_a_group_wakes_at_each_of_its_deadlines(kind: str, data: st.DataObject) -> None:
    history = data.draw(CLASSIC if kind == "classic" else CONSUMER)
    lazy, eager = new_stage(kind), new_stage(kind)
    for operation in [*history, Operation("wait", pause_ms=60_000)]:
        expected: list[object] = []
        parts = range(0, operation.pause_ms, 50) if operation.verb == "wait" else [0]
        for begin_ms in parts:
            part_ms = min(50, operation.pause_ms - begin_ms)
            seen = play(eager, operation._replace(pause_ms=part_ms))
            expected.append(seen)
            for group in list(eager.shard.groups.values()):  # ticks that no deadline asked for
                eager.perform("g", group.tick)
        assert lazy_view(play(lazy, operation)) == lazy_view(expected[-1])


def lazy_view(seen: object) -> object:
    """The state alone: the answers of a pause come in several parts."""
    assert isinstance(seen, tuple)
    return seen[0], seen[2]
