"""The supervisor on a virtual clock: restart with backoff, reasons, counts, cancellation."""

import asyncio

import pytest

from tidemill.supervision.policy import STABLE_S
from tidemill.supervision.supervisor import Supervisor

pytestmark = pytest.mark.event_loop("virtual_selector")


@pytest.fixture
async def supervisor() -> Supervisor:
    return Supervisor(asyncio.get_running_loop().time)


class Loop:
    """Fails a given number of times, then runs."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.starts: list[float] = []

    async def run(self) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        if len(self.starts) <= self.failures:
            raise RuntimeError(f"injected {len(self.starts)}")
        await asyncio.sleep(1_000_000)


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def test_a_loop_that_fails_starts_again_after_growing_pauses(supervisor: Supervisor) -> None:
    loop = Loop(3)
    task = supervisor.keep("deal", loop.run, about="orders")
    await asyncio.sleep(5)
    assert [round(at, 6) for at in loop.starts] == [0.0, 0.1, 0.3, 0.7]
    assert supervisor.restarts == {"deal": 3}
    assert supervisor.reasons() == ['task "deal" (orders) failed and is restarted: RuntimeError: injected 3']
    assert supervisor.failing() == {"deal": 1}
    await asyncio.sleep(STABLE_S)
    assert supervisor.reasons() == []
    assert supervisor.failing() == {"deal": 0}
    await end(task)
    assert supervisor.failing() == {}


async def test_cancelling_ends_a_loop_at_once_also_in_its_pause(supervisor: Supervisor) -> None:
    task = supervisor.keep("deal", Loop(1_000).run)
    await asyncio.sleep(60)
    before = asyncio.get_running_loop().time()
    await end(task)
    assert asyncio.get_running_loop().time() == before
    assert supervisor.reasons() == []


async def test_a_call_that_was_cancelled_below_a_loop_does_not_end_it(supervisor: Supervisor) -> None:
    starts = 0

    async def work() -> None:
        nonlocal starts
        starts += 1
        below = asyncio.create_task(asyncio.sleep(60))
        below.cancel()
        await below

    task = supervisor.keep("watch", work)
    await asyncio.sleep(1)
    assert starts > 1
    assert supervisor.reasons() != []
    await end(task)


async def test_a_loop_that_returns_is_over(supervisor: Supervisor) -> None:
    async def short() -> None:
        await asyncio.sleep(1)

    await supervisor.keep("membership", short)
    assert supervisor.failing() == {}


async def test_a_job_that_fails_is_counted_and_named_for_a_while(supervisor: Supervisor) -> None:
    async def fail() -> None:
        raise RuntimeError("injected")

    supervisor.spawn("purge", fail())
    cancelled = supervisor.spawn("purge", asyncio.sleep(100))
    await asyncio.sleep(1)
    cancelled.cancel()
    await asyncio.sleep(1)
    assert supervisor.failures == {"purge": 1}
    assert supervisor.reasons() == ['job "purge" failed: RuntimeError: injected']
    await asyncio.sleep(STABLE_S)
    assert supervisor.reasons() == []
