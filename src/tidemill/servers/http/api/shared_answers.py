"""Answers of brokers that requests of the same client share: those that ask while it is made, and for a moment after.

Pages of the cluster ask every broker. Without this, a client that loads one page again and again would keep all brokers
busy. A change through this broker ends the use of everything that was asked before it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, TypeVar

KEPT_MAX = 64

T = TypeVar("T")


class SharedAnswers:
    """The answers that are made or used at the moment."""

    def __init__(self) -> None:
        self._making: dict[Hashable, asyncio.Task[Any]] = {}
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._changes = 0

    async def get(self, key: Hashable, fresh_s: float, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer to `key`, not older than `fresh_s`. Who asks gets the error of `make`, too; it is not kept."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._kept and next(iter(self._kept.values()))[0] <= now:
            self._kept.popitem(last=False)
        known = self._kept.get(key)
        if known is not None and known[0] > now:
            found: T = known[1]
            return found
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = loop.create_task(self._made(key, fresh_s, make))
            making.add_done_callback(lambda task: task.cancelled() or task.exception())  # all may have left
        answer: Awaitable[T] = asyncio.shield(making)  # the others still wait when one leaves
        return await answer

    def forget(self) -> None:
        """Something has changed: share nothing that was asked before."""
        self._changes += 1
        self._making.clear()
        self._kept.clear()

    async def _made(self, key: Hashable, fresh_s: float, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        changes = self._changes
        try:
            found = await make()
            if changes == self._changes:
                self._kept[key] = asyncio.get_running_loop().time() + fresh_s, found
                self._kept.move_to_end(key)
                while len(self._kept) > KEPT_MAX:
                    self._kept.popitem(last=False)
            return found
        finally:
            if changes == self._changes:
                self._making.pop(key, None)
