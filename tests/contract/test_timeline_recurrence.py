"""Recurring messages in all stores: one next occurrence, written by the completion of the last one."""

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from tests.contract.test_timeline_store import everything, leased, new, opening, store

from tidemill.timelines.core.lease import (
    Cancel,
    CommandOutcome,
    Complete,
    Extend,
    Move,
    MoveToTimeline,
    Release,
)
from tidemill.timelines.core.message import MessageStatus, Selection, TimedMessage
from tidemill.timelines.core.recurrence import MissedPolicy, Recurrence
from tidemill.timelines.core.timeline import Create, Delete, MakeReady, Purge
from tidemill.timelines.interface import TimelineStore

__all__ = ["opening", "store"]  # fixtures
NOW = 1_767_225_600_000  # 2026-01-01T00:00Z
MINUTE_MS = 60_000
EVERY_MINUTE = Recurrence("* * * * *", "Europe/Berlin")


def recurring(name: str, rule: Recurrence = EVERY_MINUTE, **values: Any) -> Any:
    return new(name, NOW, recurrence=rule.to_text(), **values)


async def test_a_completion_schedules_the_next_occurrence(store: TimelineStore) -> None:
    body = b"b" * 5_000  # in a table of its own
    await store.schedule("line", [recurring("a", body=body, key=b"k", group="g"), new("b", NOW)])
    for number in range(3):
        due_ms = NOW + number * MINUTE_MS
        (before,) = await store.find("line", Selection(ids=("a",)), now_ms=due_ms, limit=1, bodies=True)
        lease = await leased(store, "a", due_ms)
        assert lease.attempts == 1
        done = Complete(lease.seq, lease.token)
        outcomes = await store.settle("line", [done, done], now_ms=due_ms + 1)
        assert outcomes == [CommandOutcome.RECURRED, CommandOutcome.MISSING]
        (after,) = await store.find("line", Selection(ids=("a",)), now_ms=due_ms, limit=1, bodies=True)
        next_ms = due_ms + MINUTE_MS
        assert after == before._replace(
            due_ms=next_ms, scheduled_ms=next_ms, version=lease.token + 1, token=lease.token
        )
        assert (after.body, after.key, after.group) == (body, b"k", "g")
    assert [one.id for one in await everything(store)] == ["b", "a"]
    assert await store.tally("line", Selection(status=MessageStatus.WAITING), now_ms=NOW) == [1]


async def test_recurring_and_other_messages_are_completed_together(store: TimelineStore) -> None:
    await store.schedule("line", [recurring("a"), new("b", NOW), recurring("c")])
    leases = [await leased(store, name, NOW) for name in "abc"]
    outcomes = await store.settle("line", [Complete(one.seq, one.token) for one in leases], now_ms=NOW)
    assert outcomes == [CommandOutcome.RECURRED, CommandOutcome.DONE, CommandOutcome.RECURRED]
    assert [(one.id, one.due_ms) for one in await everything(store)] == [
        ("a", NOW + MINUTE_MS),
        ("c", NOW + MINUTE_MS),
    ]


async def test_the_rule_is_listed_with_and_without_bodies(store: TimelineStore) -> None:
    rule = Recurrence(every_ms=5_000, start_ms=NOW, missed=MissedPolicy.ALL)
    await store.schedule("line", [recurring("a", rule), new("b", NOW)])
    for bodies in (False, True):
        for selection in (Selection(), Selection(ids=("a", "b"))):
            found = await store.find("line", selection, now_ms=NOW, limit=9, bodies=bodies)
            assert {one.id: one.recurrence for one in found} == {"a": rule.to_text(), "b": ""}


async def test_the_last_occurrence_leaves_nothing(store: TimelineStore) -> None:
    await store.schedule("line", [recurring("a", EVERY_MINUTE._replace(left=2))])
    first = await leased(store, "a", NOW)
    assert await store.settle("line", [Complete(first.seq, first.token)], now_ms=NOW) == [CommandOutcome.RECURRED]
    last = await leased(store, "a", NOW + MINUTE_MS)
    late_ms = NOW + MINUTE_MS
    assert await store.settle("line", [Complete(last.seq, last.token)], now_ms=late_ms) == [CommandOutcome.DONE]
    assert not await everything(store)
    (again,) = await store.schedule("line", [new("a", NOW)])
    assert not again.duplicate
    (found,) = await everything(store)
    assert found.recurrence == ""


async def test_an_id_that_recurs_is_a_duplicate(store: TimelineStore) -> None:
    await store.schedule("line", [recurring("a")])
    answers = await store.schedule("line", [new("a", 5), recurring("a", Recurrence(every_ms=1_000)), recurring("b")])
    assert [one.duplicate for one in answers] == [True, True, False]
    assert {one.id: one.recurrence for one in await everything(store)} == dict.fromkeys("ab", EVERY_MINUTE.to_text())


async def test_cancel_ends_a_recurrence_that_waits(store: TimelineStore) -> None:
    await store.schedule("line", [recurring("a"), recurring("b", group="g")])
    assert await store.settle("line", [Cancel("a"), Cancel("b")], now_ms=NOW) == [
        CommandOutcome.DONE,
        CommandOutcome.NOT_OWNER,
    ]
    assert [one.id for one in await everything(store)] == ["b"]


async def test_cancel_ends_a_recurrence_whose_occurrence_is_leased(store: TimelineStore) -> None:
    await store.schedule("line", [recurring("a"), recurring("b")])
    leases = [await leased(store, name, NOW) for name in "ab"]
    assert await store.settle("line", [Cancel("a")], now_ms=NOW) == [CommandOutcome.DONE]
    # The consumer keeps its lease. Now it is a message like any other.
    assert await store.settle("line", [Cancel("a")], now_ms=NOW) == [CommandOutcome.LEASED]
    extended = Extend(leases[0].seq, leases[0].token, NOW + 5_000)
    assert await store.settle("line", [extended], now_ms=NOW + 1) == [CommandOutcome.DONE]
    done = [Complete(one.seq, one.token) for one in leases]
    assert await store.settle("line", done, now_ms=NOW + 2) == [CommandOutcome.DONE, CommandOutcome.RECURRED]
    assert [one.id for one in await everything(store)] == ["b"]


async def test_a_released_occurrence_is_tried_again_and_then_recurs(store: TimelineStore) -> None:
    await store.schedule("line", [recurring("a")])
    lease = await leased(store, "a", NOW)
    await store.settle("line", [Release(lease.seq, lease.token, NOW + 5)], now_ms=NOW)
    again = await leased(store, "a", NOW + 5)
    assert again.attempts == 2
    assert await store.settle("line", [Complete(again.seq, again.token)], now_ms=NOW + 6) == [CommandOutcome.RECURRED]
    (following,) = await everything(store)
    assert (following.due_ms, following.attempts, following.holder) == (NOW + MINUTE_MS, 0, None)


async def test_move_changes_one_occurrence(store: TimelineStore) -> None:
    await store.schedule("line", [recurring("a", Recurrence("0 9 * * *", "UTC"))])
    moved_ms = NOW + 12 * 60 * MINUTE_MS
    assert await store.settle("line", [Move("a", moved_ms)], now_ms=NOW) == [CommandOutcome.DONE]
    lease = await leased(store, "a", moved_ms)
    await store.settle("line", [Complete(lease.seq, lease.token)], now_ms=moved_ms)
    (following,) = await everything(store)
    assert following.due_ms == NOW + (24 + 9) * 60 * MINUTE_MS


async def test_a_message_that_moves_to_another_timeline_recurs_no_more(store: TimelineStore) -> None:
    await store.govern(Create("dead"))
    await store.govern(MakeReady("dead"))
    await store.schedule("line", [recurring("a")])
    lease = await leased(store, "a", NOW)
    late_ms = NOW + 2_000
    assert await store.settle("line", [MoveToTimeline(lease.seq, lease.token, "dead")], now_ms=late_ms) == [
        CommandOutcome.DONE
    ]
    (dead,) = await everything(store, line="dead")
    assert dead.recurrence == ""


async def test_rules_are_removed_with_their_timeline(
    opening: "Any",
) -> None:
    opened: AbstractAsyncContextManager[TimelineStore] = opening()
    async with opened as store:
        for _ in range(2):
            await store.govern(Create("line"))
            await store.govern(MakeReady("line"))
            assert not await everything(store)
            await store.schedule("line", [recurring("a"), new("b")])
            await store.govern(Delete("line"))
            while await store.govern(Purge("line")) is not None:
                pass


async def test_rules_survive_a_restart(opening: "Any", request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["opening"] in {"memory", "measured", "replicated", "replicated-apart"}:
        return  # in memory nothing survives; restarts of replicas are in tests/unit/timelines/replicated
    found: list[TimedMessage] = []
    for number in range(2):
        async with opening() as store:
            if number == 0:
                await store.govern(Create("line"))
                await store.govern(MakeReady("line"))
                await store.schedule("line", [recurring("a")])
                lease = await leased(store, "a", NOW)
                await store.settle("line", [Complete(lease.seq, lease.token)], now_ms=NOW)
            found = await everything(store)
    assert [(one.due_ms, one.recurrence) for one in found] == [(NOW + MINUTE_MS, EVERY_MINUTE.to_text())]
