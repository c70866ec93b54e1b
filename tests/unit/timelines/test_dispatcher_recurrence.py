"""Recurring messages on a virtual clock: on time, once per occurrence, and what happens to those that were missed."""

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest
from tests.support.virtual_timelines import START_MS, Fleet, Received, virtual_fleet
from tests.unit.timelines.test_dispatcher_simulation import FlakyStore

from tidemill.model.timeline_errors import BadRecurrence, BatchTooLarge, StoreUnavailable
from tidemill.timelines import dispatcher
from tidemill.timelines.core.lease import Command, CommandOutcome, Complete, Extend
from tidemill.timelines.core.message import EVERYTHING
from tidemill.timelines.core.recurrence import MissedPolicy, Recurrence
from tidemill.timelines.core.timeline import TimelineSettings

pytestmark = pytest.mark.event_loop("virtual_selector")

MINUTE_MS = 60_000
PERIOD_MS = 5 * MINUTE_MS
RULE = Recurrence("*/5 * * * *", "Europe/Berlin")
FIRST_MS = START_MS + PERIOD_MS
"""The clock starts at 8:00 UTC."""


def completing(fleet: Fleet, tasks: "set[asyncio.Task[Any]]", *, after_s: float = 0.0) -> None:
    """Consumers complete what they receive."""

    async def complete(one: Received) -> None:
        await asyncio.sleep(after_s)
        await fleet.complete([one])

    def treat(one: Received) -> None:
        tasks.add(asyncio.create_task(complete(one)))

    fleet.treat = treat


def times(fleet: Fleet) -> list[int]:
    return [one.granted.message.scheduled_ms for one in fleet.received]


async def test_each_occurrence_is_on_time_and_delivered_once() -> None:
    tasks: set[asyncio.Task[Any]] = set()
    async with virtual_fleet() as fleet:
        completing(fleet, tasks, after_s=0.2)
        fleet.consumer()
        await fleet.schedule(0, id="cron", recurrence=RULE)
        await fleet.schedule(0, id="second", recurrence=Recurrence(every_ms=1_000, left=50))
        await fleet.until(lambda: len(fleet.received) == 53, 1_000)
        assert {one.id for one in fleet.received[:50]} == {"second"}
        assert times(fleet)[50:] == [FIRST_MS, FIRST_MS + PERIOD_MS, FIRST_MS + 2 * PERIOD_MS]
        assert all(0 <= one.late_ms <= 2 for one in fleet.received)
        assert all(one.granted.lease.attempts == 1 for one in fleet.received)
        stats = fleet.dispatcher.stats.of("line").messages
        await asyncio.sleep(1)
        assert (stats["scheduled"], stats["completed"], stats["missed"]) == (2 + 49 + 3, 53, 0)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (MissedPolicy.SKIP, [FIRST_MS + 4 * PERIOD_MS]),
        (MissedPolicy.ONCE, [FIRST_MS + 3 * PERIOD_MS, FIRST_MS + 4 * PERIOD_MS]),
        (MissedPolicy.ALL, [FIRST_MS + day * PERIOD_MS for day in range(5)]),
    ],
)
async def test_occurrences_that_nothing_received_follow_the_policy(policy: MissedPolicy, expected: list[int]) -> None:
    tasks: set[asyncio.Task[Any]] = set()
    async with virtual_fleet() as fleet:
        completing(fleet, tasks)
        await fleet.schedule(0, recurrence=RULE._replace(missed=policy))
        await asyncio.sleep(4.5 * 300)  # without a consumer
        fleet.consumer()
        await fleet.until(lambda: len(fleet.received) == len(expected), 400)
        assert times(fleet) == expected
        assert fleet.dispatcher.stats.of("line").messages["missed"] == (policy is not MissedPolicy.ALL)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(MissedPolicy.SKIP, [1, 4, 7]), (MissedPolicy.ONCE, [1, 3, 5]), (MissedPolicy.ALL, [1, 2, 3])],
)
async def test_a_slow_consumer_misses_occurrences(policy: MissedPolicy, expected: list[int]) -> None:
    tasks: set[asyncio.Task[Any]] = set()
    async with virtual_fleet(settings=TimelineSettings(lease_ms=3_600_000)) as fleet:
        completing(fleet, tasks, after_s=24)
        fleet.consumer()
        await fleet.schedule(0, recurrence=Recurrence(every_ms=10_000, missed=policy))
        await fleet.until(lambda: len(fleet.received) == 3, 600)
        assert [(at_ms - START_MS) // 10_000 for at_ms in times(fleet)] == expected


async def test_cancel_ends_a_recurrence_also_while_an_occurrence_is_leased() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer()
        await fleet.schedule(0, id="a", recurrence=Recurrence(every_ms=1_000))
        await fleet.until(lambda: len(fleet.received) == 1)
        assert await fleet.dispatcher.cancel("line", ["a"]) == [CommandOutcome.DONE]
        assert await fleet.complete(fleet.received) == [CommandOutcome.DONE]
        await asyncio.sleep(10)
        assert len(fleet.received) == 1
        assert await fleet.dispatcher.count("line", EVERYTHING) == 0


async def test_a_moved_occurrence_is_followed_by_the_next_time_of_the_rule() -> None:
    tasks: set[asyncio.Task[Any]] = set()
    async with virtual_fleet() as fleet:
        completing(fleet, tasks)
        fleet.consumer()
        await fleet.schedule(0, id="a", recurrence=RULE)
        assert await fleet.dispatcher.move("line", ["a"], FIRST_MS + 2 * MINUTE_MS) == [CommandOutcome.DONE]
        await fleet.until(lambda: len(fleet.received) == 2, 700)
        assert times(fleet) == [FIRST_MS + 2 * MINUTE_MS, FIRST_MS + PERIOD_MS]


@pytest.mark.parametrize("kind", ["timeline", "topic"])
async def test_a_dead_letter_is_one_occurrence_and_the_recurrence_continues(kind: str) -> None:
    appended: list[list[tuple[str, bytes]]] = []

    async def append(topic: str, key: bytes | None, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        assert (topic, key, value) == ("failed", None, b"body")
        appended.append(headers)

    settings = TimelineSettings(lease_ms=1_000, max_attempts=2, dead_letter=f"{kind}:failed")
    async with virtual_fleet(settings=settings, append=append) as fleet:
        fleet.consumer()
        name = "daily-" + "x" * 190
        await fleet.schedule(0, id=name, recurrence=RULE)
        await fleet.until(lambda: len(fleet.received) == 4, 700)
        assert times(fleet) == [FIRST_MS, FIRST_MS, FIRST_MS + PERIOD_MS, FIRST_MS + PERIOD_MS]
        stats = fleet.dispatcher.stats.of("line").messages
        await fleet.until(lambda: stats["dead"] == 2, 60)
        (left,) = await fleet.dispatcher.messages("line", EVERYTHING, 10)
        assert (left.id, left.due_ms, left.attempts) == (name, FIRST_MS + 2 * PERIOD_MS, 0)
        if kind == "topic":
            assert len(appended) == 2
            return
        dead = await fleet.dispatcher.messages("failed", EVERYTHING, 10)
        assert [one.id.split(".")[-2].split("@")[0] for one in dead] == [str(FIRST_MS), str(FIRST_MS + PERIOD_MS)]
        assert [(one.body, one.recurrence) for one in dead] == [(b"body", "")] * 2


async def test_wrong_recurrences_are_rejected_and_nothing_is_scheduled() -> None:
    async with virtual_fleet() as fleet:
        with pytest.raises(BadRecurrence):
            await fleet.schedule(0, recurrence=Recurrence("0 0 30 2 *"))
        many = [dispatcher.ScheduleRequest(b"", 0, recurrence=RULE)] * (dispatcher.RECURRING_MESSAGES_MAX + 1)
        with pytest.raises(BatchTooLarge, match="at most 100"):
            await fleet.dispatcher.schedule("line", many)
        assert await fleet.dispatcher.count("line", EVERYTHING) == 0
        assert fleet.dispatcher.stats.of("line").errors["scheduled", "BadRecurrence"] == 1


async def test_a_failing_store_leaves_one_next_occurrence() -> None:
    rng = random.Random(23)
    store = FlakyStore(rng)
    tasks: set[asyncio.Task[Any]] = set()
    completed: dict[str, list[int]] = {}

    async def treat(fleet: Fleet, one: Received) -> None:
        message, lease = one.granted
        await asyncio.sleep(rng.uniform(0, 2))
        if rng.random() < 0.1:
            return  # its consumer was killed; the lease ends
        commands: list[Command] = [Complete(message.seq, lease.token)]
        if rng.random() < 0.2:
            commands.insert(0, Extend(message.seq, lease.token, fleet.now_ms() + 5_000))
        while True:
            try:
                outcomes = await fleet.dispatcher.settle("line", commands)
            except StoreUnavailable:
                await asyncio.sleep(0.1)
                continue
            break
        if outcomes[-1] is CommandOutcome.RECURRED:
            completed.setdefault(one.id, []).append(message.scheduled_ms)

    async with virtual_fleet(store=store, settings=TimelineSettings(lease_ms=4_000)) as fleet:
        fleet.treat = lambda one: tasks.add(asyncio.create_task(treat(fleet, one)))
        for number in range(3):
            fleet.consumer(id=f"w{number}")
        for number in range(20):
            rule = Recurrence(every_ms=10_000, missed=MissedPolicy.ALL)
            await fleet.schedule(0, id=f"r{number}", recurrence=rule)
        store.failing = 0.2
        await asyncio.sleep(600)
        store.failing = 0.0
        await asyncio.sleep(60)
        left = await fleet.dispatcher.messages("line", EVERYTHING, 100)
        assert sorted(one.id for one in left) == sorted(f"r{number}" for number in range(20))
        seen: dict[str, set[int]] = {}
        for one in fleet.received:
            seen.setdefault(one.id, set()).add(one.granted.message.scheduled_ms)
        for message in left:
            # Every time of the rule up to now was delivered, and none was completed twice.
            dues = sorted({*seen[message.id], message.scheduled_ms})
            assert all(later - earlier == 10_000 for earlier, later in pairwise(dues))
            assert len(completed[message.id]) == len(set(completed[message.id]))
            assert message.scheduled_ms > fleet.now_ms() - 30_000
