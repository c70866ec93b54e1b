"""Holds producers that wait until their records are committed, which means below the high watermark."""

import asyncio
from heapq import heappop, heappush

from tidemill.model.errors import KafkaError, RequestTimedOut


class CommitWaiters:
    """Waiting producers by the offset that they wait for."""

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    async def reach(self, offset: int, timeout_s: float | None) -> None:
        """Return when everything before `offset` is committed. Raise RequestTimedOut when that takes too long."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._count += 1
        heappush(self._waiting, (offset, self._count, waiter))
        if timeout_s is None:
            await waiter
            return
        timer = loop.call_later(timeout_s, _give_up, waiter)
        try:
            await waiter
        finally:
            timer.cancel()

    def advance(self, high_watermark: int) -> None:
        """Release every waiter whose records are committed."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            waiter = heappop(self._waiting)[2]
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: KafkaError) -> None:
        """Fail every waiter. Another leader may still commit the records; this broker cannot know."""
        waiting, self._waiting = self._waiting, []
        for _, _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(
            RequestTimedOut("the in-sync replicas did not acknowledge the records within the request timeout; retry")
        )
