"""Bounded counts by due time: their limits, and how often the store is asked."""

import asyncio

import pytest
from tests.support.virtual_timelines import virtual_fleet

from tidemill.model.timeline_errors import BadDueTime, BatchTooLarge, TimelineError
from tidemill.timelines import future
from tidemill.timelines.core.message import DUE_MS_MAX, MessageStatus, Selection
from tidemill.timelines.future import ANSWERS_MAX, FUTURE_BARS_MAX, FutureHistogram, FutureReader

pytestmark = pytest.mark.event_loop("virtual_selector")


class CountingStore:
    """Answers with a fixed count, and notes how it was asked."""

    def __init__(self, count: int = 1) -> None:
        self.asked: list[tuple[str, Selection, int, int]] = []
        self.running = self.most_running = 0
        self._count = count

    async def tally(self, name: str, selection: Selection, bars: int, bar_max: int) -> list[int]:
        self.asked.append((name, selection, bars, bar_max))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return [min(self._count, bar_max)] * bars


async def test_the_dispatcher_counts_the_future_of_a_timeline_by_state() -> None:
    async with virtual_fleet() as fleet:
        start = fleet.now_ms()
        await fleet.schedule(*(start + 1_000 * number for number in range(10)))
        fleet.consumer(max_in_flight=2)
        await asyncio.sleep(4.5)
        whole = await fleet.dispatcher.future_histogram("line", start, start + 10_000, bars=5)
        assert whole == FutureHistogram(start, 2_000, (0, 2, 2, 2, 2), future.FUTURE_MESSAGES_MAX // 5)
        assert whole.is_exact
        late = await fleet.dispatcher.future_histogram(
            "line", start, start + 10_000, bars=5, status=MessageStatus.AVAILABLE
        )
        assert late.counts == (0, 2, 1, 0, 0)


async def test_a_wrong_question_is_refused() -> None:
    async with virtual_fleet() as fleet:
        ask = fleet.dispatcher.future_histogram
        for bars in (0, -1, FUTURE_BARS_MAX + 1):
            with pytest.raises(BatchTooLarge, match="1 to 200 bars"):
                await ask("line", 0, 10, bars=bars)
        for start_ms, end_ms in ((10, 10), (10, 9), (-1, 5), (0, DUE_MS_MAX + 2)):
            with pytest.raises(BadDueTime):
                await ask("line", start_ms, end_ms, bars=1)
        with pytest.raises(TimelineError, match="nothing"):
            await ask("nothing", 0, 10, bars=1)


async def test_equal_questions_at_once_ask_the_store_once() -> None:
    store = CountingStore()
    reader = FutureReader(store.tally)
    answers = await asyncio.gather(*(reader.histogram("line", Selection(0, 10), 5) for _ in range(20)))
    assert len(store.asked) == 1
    assert {answer.counts for answer in answers} == {(1, 1, 1, 1, 1)}


async def test_questions_reach_the_store_one_at_a_time_and_are_not_kept_without_end() -> None:
    store = CountingStore()
    reader = FutureReader(store.tally)
    ranges = [Selection(0, end_ms) for end_ms in range(1, 3 * ANSWERS_MAX)]
    await asyncio.gather(*(reader.histogram("line", each, 1) for each in ranges))
    assert len(store.asked) == len(ranges)
    assert store.most_running == 1
    assert len(reader._answers) <= ANSWERS_MAX


async def test_an_answer_is_asked_again_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore()
    reader = FutureReader(store.tally)
    monkeypatch.setattr(future, "ANSWER_S", 0.0)
    for _ in range(2):
        await reader.histogram("line", Selection(0, 10), 5)
    assert len(store.asked) == 2


async def test_an_answer_says_when_it_did_not_count_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(future, "FUTURE_MESSAGES_MAX", 20)
    exact = await FutureReader(CountingStore(9).tally).histogram("line", Selection(0, 10), 2)
    assert (exact.counts, exact.is_exact) == ((9, 9), True)
    capped = await FutureReader(CountingStore(11).tally).histogram("line", Selection(0, 10), 2)
    assert (capped.counts, capped.bar_max, capped.is_exact) == ((10, 10), 10, False)
