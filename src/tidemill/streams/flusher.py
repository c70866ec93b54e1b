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

    __slots__ = ("_log", "_on_flushed", "_released", "_task", "_waiting", "_wanted", "flushed_offset")

    def __init__(self, log: AppendLog, flushed_offset: int, on_flushed: Callable[[], None]) -> None:
        self.flushed_offset = flushed_offset
        self._on_flushed = on_flushed
        self._wanted = False
        self._log = log
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._released: set[object] = set()
        """Callers that may return and have not run yet; later callers must not overtake them."""
        self._task: asyncio.Task[None] | None = None

    async def reach(self, offset: int, *, timeout_s: float | None = None) -> None:
        """Return when everything before `offset` is durable. Raise RequestTimedOut when `timeout_s` passes first.

        The caller has appended up to `offset`. After a timeout the flush continues for the other callers, and the
        appended records stay.
        """
        if offset <= self.flushed_offset:
            if self._released:
                await self._return_in_order()
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append((offset, waiter))
        self._start()
        timer = None if timeout_s is None else loop.call_later(timeout_s, _give_up, waiter)
        try:
            await waiter
        finally:
            self._released.discard(waiter)
            if timer is not None:
                timer.cancel()

    async def _return_in_order(self) -> None:
        """Return after the released callers: the event loop runs them first."""
        turn = object()
        self._released.add(turn)
        try:
            await asyncio.sleep(0)
        finally:
            self._released.discard(turn)

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

    async def _flush_for(self, waiting: list[tuple[int, asyncio.Future[None]]]) -> None:
        end_offset = self._log.end_offset
        error: KafkaError | None = None
        try:
            await self._log.flush()
            self.flushed_offset = end_offset
            self._on_flushed()
            waiting += self._take_flushed()
        except KafkaError as raised:
            error = raised
        except Exception as raised:  # noqa: BLE001 - every waiting caller must get the error, whatever it is
            error = KafkaStorageError(repr(raised))
        self._release(waiting, error)

    def _take_flushed(self) -> list[tuple[int, asyncio.Future[None]]]:
        """Callers that came during the flush and whose records it covered."""
        flushed = [each for each in self._waiting if each[0] <= self.flushed_offset]
        self._waiting = [each for each in self._waiting if each[0] > self.flushed_offset]
        return flushed

    def _release(self, waiting: list[tuple[int, asyncio.Future[None]]], error: KafkaError | None) -> None:
        """Let the callers return in the order of their records, whatever the order in which they came here."""
        for _, waiter in sorted(waiting, key=_offset):
            if waiter.done():
                continue
            self._released.add(waiter)
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)


def _offset(waiting: tuple[int, asyncio.Future[None]]) -> int:
    return waiting[0]


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(RequestTimedOut("the disk did not flush the records within the request timeout; retry"))
