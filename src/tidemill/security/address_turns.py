"""Turns at expensive work, divided among client addresses: one address cannot use all of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemill.model.errors import RequestTimedOut


class _Queue:
    """The work of one address."""

    __slots__ = ("count", "permits")

    def __init__(self, at_once: int) -> None:
        self.permits = asyncio.Semaphore(at_once)
        self.count = 0


class AddressTurns:
    """Lets each address do `at_once` pieces of work at the same time, while `waiting_max` more wait in order."""

    def __init__(self, at_once: int, waiting_max: int) -> None:
        self._at_once = at_once
        self._count_max = at_once + waiting_max
        self._queues: dict[str, _Queue] = {}

    def __len__(self) -> int:
        """The number of addresses that have work."""
        return len(self._queues)

    @asynccontextmanager
    async def of(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn of this address; RequestTimedOut when too many wait."""
        queue = self._queues.setdefault(address, _Queue(self._at_once))
        if queue.count >= self._count_max:
            raise RequestTimedOut("too many logins at once from this address; try again")
        queue.count += 1
        try:
            async with queue.permits:
                yield
        finally:
            queue.count -= 1
            if not queue.count:
                self._queues.pop(address, None)
