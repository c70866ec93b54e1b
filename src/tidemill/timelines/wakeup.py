"""An event with a timeout: how loops sleep without polling."""

import asyncio


class Wakeup:
    """One waiter, any number of notifiers."""

    def __init__(self) -> None:
        self._notified = False
        self._waiter: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wake the waiter, now or at its next wait."""
        self._notified = True
        self._wake()

    async def wait(self, timeout_s: float | None) -> None:
        """Sleep until notified or until the timeout."""
        if not self._notified:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = None if timeout_s is None else loop.call_later(timeout_s, self._wake)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        self._notified = False

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
