"""The workers that run the handler: threads, tasks of one event loop, or threads that each use a process.

Each kind takes records from the queue and reports the results to `Outcomes`. No worker uses the Kafka client.
"""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tidemill.client.parallel.options import Halted
from tidemill.client.parallel.record import ParallelRecord
from tidemill.client.parallel.work_queue import WorkQueue

JOIN_S = 30.0
Handler = Callable[[ParallelRecord], Any]


def call(handler: Handler, record: ParallelRecord) -> None:
    """Call a synchronous handler. Halted if it returns an awaitable, because then the record was not handled."""
    answer = handler(record)
    if answer is not None and inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise Halted("the handler returned an awaitable and did not handle the record; define it with async def")


class Outcomes(Protocol):
    """Receives the results of records, from the workers' threads."""

    def succeeded(self, record: ParallelRecord, handler_s: float) -> None:
        """The handler returned."""

    def failed(self, record: ParallelRecord, error: BaseException) -> None:
        """The handler raised."""


class Workers(Protocol):
    """The interface of a kind of worker."""

    def start(self) -> None:
        """Start taking records."""

    def stop(self, *, wait: bool) -> None:
        """Stop after the queue was closed. Without `wait`, abandon handlers that do not return."""


class ThreadWorkers:
    """Threads that call the handler."""

    def __init__(self, queue: WorkQueue, handler: Handler, count: int, outcomes: Outcomes) -> None:
        self._queue, self._handler, self._outcomes = queue, handler, outcomes
        self._abandoned = False
        # Daemons, so that a handler that never returns cannot block a forced stop.
        self._threads = [
            threading.Thread(target=self._run, name=f"tidemill-worker-{index}", daemon=True) for index in range(count)
        ]

    def start(self) -> None:
        """See Workers."""
        for thread in self._threads:
            thread.start()

    def stop(self, *, wait: bool) -> None:
        """See Workers."""
        self._abandoned = not wait
        deadline = time.monotonic() + (JOIN_S if wait else 0)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (record := self._queue.wait()) is not None:
            began = time.perf_counter()
            try:
                call(self._handler, record)
            except BaseException as error:  # noqa: BLE001 -- a handler may raise anything
                if not self._abandoned:
                    self._outcomes.failed(record, error)
            else:
                self._outcomes.succeeded(record, time.perf_counter() - began)


class TaskWorkers:
    """Tasks on an event loop in their own thread, for async handlers."""

    def __init__(
        self, queue: WorkQueue, handler: Callable[[ParallelRecord], Awaitable[Any]], count: int, outcomes: Outcomes
    ) -> None:
        self._queue, self._handler, self._count, self._outcomes = queue, handler, count, outcomes
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tidemill-tasks", daemon=True)
        self._pumping = False
        self._ending = False

    def start(self) -> None:
        """See Workers."""
        self._queue.on_ready(self._announce)
        self._thread.start()

    def stop(self, *, wait: bool) -> None:
        """See Workers."""
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(JOIN_S if wait else 1.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _announce(self) -> None:
        # Called from any thread. At most one `_take_all` is scheduled. Waking the loop from another thread costs a
        # system call, so a call from the loop's own thread avoids it.
        if not self._pumping:
            self._pumping = True
            inside = threading.get_ident() == self._thread.ident
            (self._loop.call_soon if inside else self._loop.call_soon_threadsafe)(self._take_all)

    def _take_all(self) -> None:
        self._pumping = False
        while len(self._tasks) < self._count and (record := self._queue.take()) is not None:
            task = self._loop.create_task(self._handle(record))
            self._tasks.add(task)
            task.add_done_callback(self._task_done)

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        # Announce again: a `_take_all` that ran while this task still counted found no free worker.
        self._tasks.discard(task)
        self._announce()

    async def _handle(self, record: ParallelRecord) -> None:
        began = time.perf_counter()
        try:
            await self._handler(record)
        except BaseException as error:
            if self._ending and isinstance(error, asyncio.CancelledError):
                raise
            self._outcomes.failed(record, error)
        else:
            self._outcomes.succeeded(record, time.perf_counter() - began)

    def _end(self) -> None:
        self._ending = True
        for task in list(self._tasks):
            task.cancel()
        gathered = asyncio.gather(*self._tasks, return_exceptions=True)
        gathered.add_done_callback(lambda _: self._loop.stop())
        if not self._tasks:
            self._loop.stop()
