"""A bell that rings at a set time or when somebody pulls it: how loops sleep without polling."""

import asyncio


class Wakeup:
    """One waiter, any number of ringers."""

    def __init__(self) -> None:
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake the waiter, now or at its next wait."""
        self._rung = True
        self._wake()

    async def wait(self, timeout_s: float | None) -> None:
        """Sleep until the bell rings or the time has passed."""
        if not self._rung:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = None if timeout_s is None else loop.call_later(timeout_s, self._wake)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        self._rung = False

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
