"""Turns: an address has few at a time, others do not wait for it, and too many are refused."""

import asyncio

import pytest

from tidemill.model.errors import RequestTimedOut
from tidemill.security.address_turns import AddressTurns


async def hold(turns: AddressTurns, address: str, until: asyncio.Event, began: list[str]) -> None:
    async with turns.of(address):
        began.append(address)
        await until.wait()


async def test_one_address_does_not_keep_others_waiting() -> None:
    turns, until, began = AddressTurns(2, 8), asyncio.Event(), []  # type: ignore[var-annotated]
    work = [asyncio.create_task(hold(turns, "one", until, began)) for _ in range(8)]
    work.append(asyncio.create_task(hold(turns, "two", until, began)))
    await asyncio.sleep(0)
    assert began == ["one", "one", "two"]
    until.set()
    await asyncio.gather(*work)
    assert len(began) == 9
    assert not turns


async def test_too_many_of_one_address_are_refused() -> None:
    turns, until, began = AddressTurns(1, 1), asyncio.Event(), []  # type: ignore[var-annotated]
    work = [asyncio.create_task(hold(turns, "one", until, began)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(RequestTimedOut):
        await hold(turns, "one", until, began)
    until.set()
    await asyncio.gather(*work)


async def test_work_that_is_cancelled_gives_its_turn_back() -> None:
    turns, until, began = AddressTurns(1, 1), asyncio.Event(), []  # type: ignore[var-annotated]
    running = asyncio.create_task(hold(turns, "one", until, began))
    waiting = asyncio.create_task(hold(turns, "one", until, began))
    await asyncio.sleep(0)
    for each in (waiting, running):
        each.cancel()
        with pytest.raises(asyncio.CancelledError):
            await each
    assert not turns
