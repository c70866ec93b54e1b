"""Group commit: one flush serves every caller that waits.

A caller that needs a durable offset calls `reach`. Callers that arrive during a flush wait for the next one, which
covers them all. No task runs while no caller waits. A failed flush raises its error in every waiting caller, and the
log stays failed.
"""

import asyncio
from collections.abc import Callable

from tidemill.model.errors import KafkaError, KafkaStorageError, RequestTimedOut
from tidemill.streams.interface import AppendLog


class Flusher:
    """Flushes one log on demand."""

    __slots__ = ("_log", "_on_flushed", "_task", "_waiting", "_wanted", "flushed_offset")

    def __init__(self, log: AppendLog, flushed_offset: int, on_flushed: Callable[[], None]) -> None:
        self.flushed_offset = flushed_offset
        self._on_flushed = on_flushed
        self._wanted = False
        self._log = log
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    async def reach(self, offset: int, *, timeout_s: float | None = None) -> None:
        """Return when everything before `offset` is durable. Raise RequestTimedOut when `timeout_s` passes first.

        The caller has appended up to `offset`. After a timeout the flush continues for the other callers, and the
        appended records stay.
        """
        if offset <= self.flushed_offset:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append(waiter)
        self._start()
        if timeout_s is None:
            await waiter
            return
        timer = loop.call_later(timeout_s, _give_up, waiter)
        try:
            await waiter
        finally:
            timer.cancel()

    def begin(self) -> None:
        """Start a flush of everything that was appended, without waiting. `on_flushed` is called at its end."""
        self._wanted = True
        self._start()

    def note_flushed(self) -> None:
        """Record that the whole log was flushed another way while nothing was appended."""
        self.flushed_offset = self._log.end_offset
        self._on_flushed()

    async def settled(self) -> None:
        """Return when no flush runs."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting or self._wanted:
                self._wanted = False
                waiting, self._waiting = self._waiting, []
                await self._flush_for(waiting)
        finally:
            self._task = None

    async def _flush_for(self, waiting: list[asyncio.Future[None]]) -> None:
        end_offset = self._log.end_offset
        error: KafkaError | None = None
        try:
            await self._log.flush()
            self.flushed_offset = end_offset
            self._on_flushed()
        except KafkaError as raised:
            error = raised
        except Exception as raised:  # noqa: BLE001 - every waiting caller must get the error, whatever it is
            error = KafkaStorageError(repr(raised))
        for waiter in waiting:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(RequestTimedOut("the disk did not flush the records within the request timeout; retry"))
