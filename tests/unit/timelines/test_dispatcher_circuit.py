"""The dispatcher on a virtual clock while consumers fail: pushes stop, probes resume them, and nothing is lost."""

import asyncio
from collections import Counter

import pytest
from tests.support.virtual_timelines import Fleet, Received, virtual_fleet

from tidemill.timelines.core.circuit import FAILED_MESSAGES_MIN, PAUSE_MS_MAX, CircuitState
from tidemill.timelines.core.lease import Command, Complete, Release
from tidemill.timelines.core.message import EVERYTHING
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.health import Doubt, TimelinesState

pytestmark = pytest.mark.event_loop("virtual_selector")

MESSAGES = 500
FOREVER = TimelineSettings(max_attempts=1_000, dead_letter="timeline:dead")


class Team:
    """Consumers that complete or release what they get, 5 ms after they got it."""

    def __init__(self, fleet: Fleet, *, bad: int, good: int = 0, delay_ms: int = 0) -> None:
        self.fleet = fleet
        self.bad = {f"bad{number}" for number in range(bad)}
        self.done: list[str] = []
        self.attempts = Counter[str]()
        self._delay_ms = delay_ms
        self._tasks = set[asyncio.Task[None]]()
        fleet.treat = self.treat
        for name in (*sorted(self.bad), *(f"good{number}" for number in range(good))):
            fleet.consumer(id=name)

    def treat(self, received: Received) -> None:
        assert received.late_ms >= 0
        self.attempts[received.id] += 1
        task = asyncio.create_task(self._settle(received))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, received: Received) -> None:
        await asyncio.sleep(0.005)
        seq, token = received.granted.message.seq, received.granted.lease.token
        if received.consumer in self.bad:
            command: Command = Release(seq, token, self.fleet.now_ms() + self._delay_ms)
        else:
            command = Complete(seq, token)
            self.done.append(received.id)
        await self.fleet.dispatcher.settle("line", [command])

    @property
    def state(self) -> CircuitState:
        return self.fleet.dispatcher.circuit_state("line")


async def test_pushes_stop_while_most_consumers_fail_and_go_on_when_they_work_again() -> None:
    async with virtual_fleet(settings=FOREVER) as fleet:
        team = Team(fleet, bad=3, good=1)
        await asyncio.sleep(20)  # all are dealt in
        await fleet.schedule(*([fleet.now_ms()] * MESSAGES))
        await fleet.until(lambda: team.state is CircuitState.OPEN, 5)
        health = fleet.dispatcher.health()
        assert health.state is TimelinesState.DEGRADED
        assert Doubt.CONSUMERS_FAILING in fleet.dispatcher.guard.doubts()
        assert any("3 of 4 consumers" in reason and "'line'" in reason for reason in health.reasons)
        assert fleet.dispatcher.guard.may_lease, "other timelines go on"
        team.bad.clear()
        await fleet.until(lambda: len(team.done) == MESSAGES, 30)
        assert len(set(team.done)) == MESSAGES
        assert team.state is CircuitState.CLOSED
        assert fleet.dispatcher.health().state is TimelinesState.HEALTHY
        assert fleet.dispatcher.stopped_reason("line") == ""


async def test_attempts_are_not_used_up_while_all_consumers_fail() -> None:
    """Without the circuit, an hour of releases uses up thousands of attempts of each message."""
    async with virtual_fleet(settings=FOREVER) as fleet:
        team = Team(fleet, bad=2)
        await asyncio.sleep(20)
        await fleet.schedule(*([fleet.now_ms()] * MESSAGES))
        await fleet.until(lambda: team.state is CircuitState.OPEN, 5)
        before, pushed = team.attempts.total(), len(fleet.received)
        await asyncio.sleep(3_600)
        probes = team.attempts.total() - before
        assert 2 * 3_600_000 / PAUSE_MS_MAX * 0.9 <= probes <= 2 * (3_600_000 / PAUSE_MS_MAX + 10)
        assert pushed < 2 * MESSAGES
        assert len(await fleet.dispatcher.messages("line", EVERYTHING, MESSAGES)) == MESSAGES
        team.bad.clear()
        await fleet.until(lambda: len(team.done) == MESSAGES, PAUSE_MS_MAX / 1_000 + 5)


async def test_one_bad_consumer_among_good_ones_stops_nothing() -> None:
    async with virtual_fleet(settings=FOREVER) as fleet:
        team = Team(fleet, bad=1, good=2, delay_ms=1_000)
        await asyncio.sleep(20)
        await fleet.schedule(*(fleet.now_ms() + 5 * number for number in range(2_000)))
        await asyncio.sleep(15)
        assert fleet.dispatcher.stats.of("line").stops == 0
        left = await fleet.dispatcher.messages("line", EVERYTHING, 2_000)
        bad_ones = {one.id for one in fleet.received if one.consumer == "bad0"}
        assert {one.id for one in left} == bad_ones
        assert len(team.done) == 2_000 - len(bad_ones) > 1_000


async def test_consumers_that_let_their_leases_end_fail_too() -> None:
    async with virtual_fleet(settings=TimelineSettings(lease_ms=1_000)) as fleet:
        for name in ("w1", "w2", "w3"):
            fleet.consumer(id=name)
        await asyncio.sleep(20)
        await fleet.schedule(*([fleet.now_ms()] * 1_000))
        await fleet.until(lambda: fleet.dispatcher.circuit_state("line") is CircuitState.OPEN, 10)
        assert fleet.dispatcher.stats.of("line").stops == 1


async def test_a_busy_consumer_may_return_what_it_has_not_begun() -> None:
    async with virtual_fleet() as fleet:
        team = Team(fleet, bad=1)
        await asyncio.sleep(1)
        (consumer,) = fleet.dispatcher.consumers("line")
        await fleet.schedule(*([fleet.now_ms()] * 100))
        await asyncio.sleep(0.002)
        fleet.dispatcher.ready("line", consumer, busy=True)
        await asyncio.sleep(1)
        assert team.attempts.total() > FAILED_MESSAGES_MIN
        assert team.state is CircuitState.CLOSED


async def test_the_setting_switches_it_off() -> None:
    async with virtual_fleet(settings=TimelineSettings(failing_percent=0)) as fleet:
        team = Team(fleet, bad=1, delay_ms=1_000)
        await fleet.schedule(*([fleet.now_ms()] * 100))
        await asyncio.sleep(60)
        assert team.state is CircuitState.CLOSED
        assert team.attempts.total() > 100 * 50


async def test_a_timeline_with_stopped_pushes_that_is_deleted_is_no_reason_any_more() -> None:
    async with virtual_fleet(settings=FOREVER) as fleet:
        team = Team(fleet, bad=1)
        await fleet.schedule(*([fleet.now_ms()] * MESSAGES))
        await fleet.until(lambda: team.state is CircuitState.OPEN, 5)
        await fleet.dispatcher.delete("line")
        await asyncio.sleep(1)
        assert fleet.dispatcher.health().reasons == ()


async def test_a_stopped_timeline_does_not_spin() -> None:
    async with virtual_fleet(settings=FOREVER) as fleet:
        team = Team(fleet, bad=1)
        await fleet.schedule(*([fleet.now_ms()] * MESSAGES))
        await fleet.until(lambda: team.state is CircuitState.OPEN, 5)
        await asyncio.sleep(120)
        waits = fleet.world.loop.jumping.waits
        await asyncio.sleep(60)
        assert fleet.world.loop.jumping.waits - waits < 60 * 40
