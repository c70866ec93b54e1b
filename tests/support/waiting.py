"""Wait until a condition holds: the polling loops of all tests.

A condition is called until its result is true. A test fails when that takes longer than `within_s`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

LIMIT_S = 60.0
"""Long enough for a busy machine: it is only waited for in full by a test that fails."""


def eventually(
    condition: Callable[[], T],
    what: str = "the condition does not hold",
    *,
    within_s: float = LIMIT_S,
    interval_s: float = 0.02,
) -> T:
    """Return the first true result of a condition, which is checked in this thread."""
    deadline = time.monotonic() + within_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"{what} (waited {within_s:g} s)"
        time.sleep(interval_s)
    return result


async def eventually_async(
    condition: Callable[[], object],
    what: str = "the condition does not hold",
    *,
    within_s: float = LIMIT_S,
    interval_s: float = 0.005,
) -> None:
    """Wait for a condition, which may be a coroutine function, while the event loop runs.

    Time is that of the loop, so it works on a virtual clock.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        result = condition()
        if isinstance(result, Awaitable):
            result = await result
        if result:
            return
        assert loop.time() < deadline, f"{what} (waited {within_s:g} s)"
        await asyncio.sleep(interval_s)
