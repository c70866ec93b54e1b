"""Divides long work on the event loop into turns, so that requests of clients are served in between."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from time import perf_counter
from typing import TypeVar

TURN_S = 0.002
"""How long such work holds the event loop at a stretch."""
T = TypeVar("T")


class LoopTurns:
    """The turns of one piece of work. It calls `pause` often, where other work may change what it reads."""

    def __init__(self, clock_s: Callable[[], float] = perf_counter) -> None:
        self._clock_s = clock_s
        self._end_s = clock_s() + TURN_S

    async def pause(self) -> None:
        """Let other work run when the turn is over."""
        if self._clock_s() >= self._end_s:
            await asyncio.sleep(0)
            self._end_s = self._clock_s() + TURN_S

    async def over(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items, with a pause whenever the turn is over."""
        for item in items:
            if self._clock_s() >= self._end_s:
                await self.pause()
            yield item
