"""Handlers that share the event loop: slices, turns, and the worker thread."""

import asyncio
import threading

import pytest

from tidemill.servers.kafka import loop_guard
from tidemill.servers.kafka.loop_guard import InSlices, LoopGuard, LoopSlice


async def test_items_come_in_order_and_others_get_their_turn_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_guard, "SLICE_S", 0.0)
    seen: list[str] = []

    def handle(name: str, number: int) -> None:
        seen.append(f"{name}{number}")

    async def handler(name: str, guard: LoopGuard) -> None:
        async for number in InSlices(range(3), LoopSlice(guard)):
            handle(name, number)

    guard = LoopGuard()
    await asyncio.gather(handler("a", guard), handler("b", guard))
    guard.close()
    assert sorted(seen) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert seen != sorted(seen), "they take turns"
    assert [each for each in seen if each[0] == "a"] == ["a0", "a1", "a2"]


async def test_items_within_one_slice_do_not_pause() -> None:
    guard = LoopGuard()
    paused: list[int] = []
    asyncio.get_running_loop().call_soon(paused.append, 1)
    found = [number async for number in InSlices(range(5), LoopSlice(guard))]
    assert paused == [], "the loop did not get its turn"
    guard.close()
    assert found == [0, 1, 2, 3, 4]


async def test_a_handler_that_is_cancelled_in_its_pause_does_not_stop_the_others() -> None:
    guard = LoopGuard()
    first, second = asyncio.create_task(guard.pause()), asyncio.create_task(guard.pause())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait_for(second, 30)
    guard.close()


async def test_the_worker_is_another_thread_and_its_errors_come_back() -> None:
    guard = LoopGuard()
    assert await guard.in_worker(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await guard.in_worker(lambda: 1 // 0)
    guard.close()
