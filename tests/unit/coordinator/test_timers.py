"""Timers of many names: the earliest time wins, and a clock that is set moves all of them."""

import asyncio

from tests.support.waiting import eventually_async

from tidemill.coordinator.timers import Timers
from tidemill.testing import VirtualClock


async def test_alarms_that_wait_go_with_a_clock_that_is_set() -> None:
    clock = VirtualClock(1_000_000)
    rung: list[str] = []
    alarms = Timers(clock, rung.append)
    alarms.set("a", 1_000_020)
    clock.now_ms = 500_000
    alarms.shift(-500_000)
    await asyncio.sleep(0.005)
    assert rung == []
    clock.advance(20)
    await eventually_async(lambda: rung == ["a"])
    alarms.close()


async def test_alarms_ring_once_and_the_earliest_wins() -> None:
    clock = VirtualClock(0)
    rung: list[str] = []
    alarms = Timers(clock, rung.append)
    alarms.set("a", 50_000)
    alarms.set("a", 10)
    alarms.set("a", 90_000)
    alarms.set("b", 20)
    clock.advance(60_000)
    await eventually_async(lambda: len(rung) == 2)
    assert rung == ["a", "b"]
    alarms.set("c", 0)
    alarms.close()
    await asyncio.sleep(0.01)
    assert rung == ["a", "b"]
