"""Answers that requests share: one question at a time, used for a moment, and never after a change."""

import asyncio

import pytest

from tidemill.servers.http.api.shared_answers import KEPT_MAX, SharedAnswers

FRESH_S = 0.5
pytestmark = pytest.mark.event_loop("virtual")


class SlowBrokers:
    """Counts the questions; each answer takes a second."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None

    async def answer(self) -> int:
        self.asked += 1
        number = self.asked
        await asyncio.sleep(1)
        if self.error is not None:
            raise self.error
        return number


async def test_requests_at_the_same_time_ask_once_and_the_answer_is_used_for_a_moment() -> None:
    shared, brokers = SharedAnswers(), SlowBrokers()

    async def ask(key: str = "report") -> int:
        return await shared.get(key, FRESH_S, brokers.answer)

    assert await asyncio.gather(*(ask() for _ in range(20))) == [1] * 20
    assert await ask() == 1
    assert await ask("another client") == 2
    await asyncio.sleep(FRESH_S)
    assert await ask() == 3


async def test_a_change_ends_the_use_of_everything_that_was_asked_before() -> None:
    shared, brokers = SharedAnswers(), SlowBrokers()
    before = asyncio.create_task(shared.get("report", FRESH_S, brokers.answer))
    await asyncio.sleep(0.5)
    shared.forget()
    after = asyncio.create_task(shared.get("report", FRESH_S, brokers.answer))
    assert (await before, await after) == (1, 2)
    assert await shared.get("report", FRESH_S, brokers.answer) == 2
    shared.forget()
    assert await shared.get("report", FRESH_S, brokers.answer) == 3


async def test_a_client_that_leaves_does_not_take_the_answer_from_the_others() -> None:
    shared, brokers = SharedAnswers(), SlowBrokers()
    first, second = (asyncio.create_task(shared.get("report", FRESH_S, brokers.answer)) for _ in range(2))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == 1


async def test_an_error_is_for_those_that_wait_and_is_not_kept() -> None:
    shared, brokers = SharedAnswers(), SlowBrokers()
    brokers.error = ConnectionError("away")
    both = [shared.get("report", FRESH_S, brokers.answer) for _ in range(2)]
    found = await asyncio.gather(*both, return_exceptions=True)
    assert [str(each) for each in found] == ["away", "away"]
    brokers.error = None
    assert await shared.get("report", FRESH_S, brokers.answer) == 2


async def test_few_answers_are_kept() -> None:
    shared, brokers = SharedAnswers(), SlowBrokers()
    await asyncio.gather(*(shared.get(number, 60.0, brokers.answer) for number in range(3 * KEPT_MAX)))
    assert len(shared._kept) == KEPT_MAX
    assert not shared._making
