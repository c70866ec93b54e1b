"""The thread that sends one kind of data to the collector, one request at a time.

It is no thread of an executor: a collector that does not answer must neither take a thread from the broker nor delay
the end of the process.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class ExportThread:
    """Runs functions in their order."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """The result of a function that the thread runs."""
        future: Future[T] = Future()

        def step() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 -- the caller gets it
                future.set_exception(error)

        self._work.put(step)
        return await asyncio.wrap_future(future)

    async def stop(self, within_s: float) -> bool:
        """End the thread after the function that it runs; whether it has ended in this time."""
        self._work.put(None)
        await asyncio.to_thread(self._thread.join, within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (step := self._work.get()) is not None:
            step()
