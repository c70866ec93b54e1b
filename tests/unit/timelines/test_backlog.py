"""When the backlog is counted: not too often, never twice at a time, and not waited for without end."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.support.virtual_timelines import VirtualLoop, World

from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.timelines.backlog import PAUSE_MS, REST_SHARE, WAIT_S, BacklogReader
from tidemill.timelines.core.backlog import EMPTY, Backlog

pytestmark = pytest.mark.event_loop("virtual_selector")


class SlowCount:
    """Counts as a store does that takes its time, or fails."""

    def __init__(self) -> None:
        self.takes_s = 0.0
        self.fails = self.has_bug = False
        self.counts = self.running = self.most_running = 0

    async def __call__(self, _: int) -> dict[str, Backlog]:
        self.counts += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.takes_s)
            if self.fails:
                raise StoreUnavailable("the test says so")
            if self.has_bug:
                raise ZeroDivisionError
            return {"line": EMPTY._replace(available=self.counts)}
        finally:
            self.running -= 1


def make_reader() -> tuple[BacklogReader, SlowCount, World]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    world, count = World(loop), SlowCount()
    return BacklogReader(world.clock, count), count, world


async def available(reader: BacklogReader) -> int | None:
    found = await reader.read()
    return None if found is None else found.by_name["line"].available


async def test_one_count_serves_all_until_it_is_old() -> None:
    reader, count, _ = make_reader()
    assert await asyncio.gather(*(available(reader) for _ in range(20))) == [1] * 20
    await asyncio.sleep(PAUSE_MS / 1_000 - 0.1)
    assert await available(reader) == 1
    await asyncio.sleep(0.2)
    assert await asyncio.gather(*(available(reader) for _ in range(20))) == [2] * 20
    assert count.most_running == 1


async def test_a_slow_count_is_not_waited_for_and_rests_longer() -> None:
    reader, count, _ = make_reader()
    count.takes_s = 3 * WAIT_S
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert await available(reader) is None
    assert loop.time() - began_s == pytest.approx(WAIT_S)
    await asyncio.sleep(3 * WAIT_S)
    assert await available(reader) == 1
    rest_s = REST_SHARE * count.takes_s
    await asyncio.sleep(rest_s - 10)
    assert await available(reader) == 1
    await asyncio.sleep(10)
    assert await available(reader) == 1  # the next count runs, and was not waited for
    assert count.counts == 2
    await reader.close()
    assert count.running == 0


async def test_a_failing_store_leaves_the_count_before() -> None:
    reader, count, _ = make_reader()
    assert await available(reader) == 1
    count.fails = True
    await asyncio.sleep(10)
    found = await reader.read()
    assert found is not None
    assert (found.by_name["line"].available, count.counts) == (1, 2)
    count.fails = False
    await asyncio.sleep(10)
    assert await available(reader) == 3


async def test_an_unexpected_error_is_logged_and_the_next_question_counts_again() -> None:
    reader, count, _ = make_reader()
    count.has_bug = True
    with capture_logs() as logged:
        assert await reader.read() is None
    assert [each["event"] for each in logged] == ["backlog_count_failed"]
    count.has_bug = False
    assert await available(reader) == 2
