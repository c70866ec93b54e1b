"""The clock of the machine jumps under a broker that runs as a process of its own, with messages due all the time.

libfaketime stands between the process and the calendar; the steady clock goes on as it does when a clock is set. The
workers are in this process, whose clock is the truth.
"""

import asyncio
import time

import pytest
from tests.integration.health import timelines_health
from tests.integration.timeline_load import LIMIT_S, run
from tests.support.system_clock import SystemClock, system_clock
from tests.support.waiting import eventually_async

from tidemill.client.timelines import AsyncTimeline, Message
from tidemill.testing import Broker

SPREAD_S = 4.5

__all__ = ["system_clock"]


@pytest.mark.parametrize("jump_s", [120, -120])
async def test_a_clock_that_is_set_and_set_right_loses_nothing(jump_s: int, system_clock: SystemClock) -> None:
    with Broker(process=True) as broker:

        async def set_it() -> None:
            system_clock.jump(f"{jump_s:+}s")
            await _state(broker, "degraded")
            await _nothing_moves(broker)
            drift = await asyncio.to_thread(timelines_health, broker)
            assert abs(int(str(drift["clock_drift_ms"])) - jump_s * 1_000) < 10_000
            system_clock.jump("+0")
            await _state(broker, "healthy")

        await run(broker.grpc, set_it, SPREAD_S)


@pytest.mark.long
async def test_a_clock_that_stays_ahead_is_believed(system_clock: SystemClock) -> None:
    with Broker(process=True, settings={"tidemill.clock.accept.after.ms": "20000"}) as broker:

        async def set_it() -> None:
            system_clock.jump("+120s")
            await _state(broker, "degraded")
            async with AsyncTimeline(broker.grpc, "next") as timeline:
                await timeline.create()
                await timeline.schedule([Message(b"x", time.time() + 60)])
                await _state(broker, "healthy")  # by itself, when the leases of before have ended
                async for lease in timeline.work(idle_ms=LIMIT_S * 1_000):
                    assert time.time() < lease.due.timestamp()  # for its calendar is ahead of ours
                    await lease.complete()
                    break

        await run(broker.grpc, set_it, SPREAD_S)


async def _nothing_moves(broker: Broker) -> None:
    """While messages fall due, none is leased; what was leased before is completed as ever."""

    async def nothing_leased() -> bool:
        return await timeline.count("leased") == 0

    async with AsyncTimeline(broker.grpc, "line") as timeline:
        await eventually_async(nothing_leased)
        left = await timeline.count()
        await asyncio.sleep(0.5)  # some messages fall due
        assert left == await timeline.count() > 0
        assert await timeline.count("leased") == 0


async def _state(broker: Broker, state: str) -> None:
    async def reached() -> bool:
        return (await asyncio.to_thread(timelines_health, broker))["state"] == state

    await eventually_async(reached)
