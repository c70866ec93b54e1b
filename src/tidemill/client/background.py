"""An event loop in a background thread: it lets threads use an asyncio client.

Every call of the synchronous client waits for a coroutine of the asyncio client; there is no second implementation. A
client that was not closed is closed when it is garbage-collected, or when the program ends. A program must not hang
because a client was still working when it ended.

No call may wait for a loop that does not run. When another thread closes the client, waiting and later calls get an
error. This works without a lock, because the garbage collector may close a client at any moment. A call first registers
and then checks whether the loop has ended. The closing thread first marks the end and then reads the registrations. A
child of `fork` has the objects but not the thread, so its calls get an error, too.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from tidemill.model.errors import TidemillError

T = TypeVar("T")
Close = Callable[[], Coroutine[Any, Any, None]]
FORKED = "the client was opened before the process was forked; open one in the child"
WAITS_FOR_ITSELF = "a delivery callback must not wait for another delivery; do that in a thread of your own"


class Background:
    """The loop and its thread."""

    def __init__(self, name: str, closed: TidemillError) -> None:
        self._loop = asyncio.new_event_loop()
        self._closed = closed
        self._ending = self._ended = False
        self._waiting: set[Future[Any]] = set()
        self._process = os.getpid()
        self._left: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def __reduce__(self) -> str:
        raise TypeError("a client cannot be pickled, because it has a thread and connections; open one in each process")

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be run any more."""
        return self._ending

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it; an interrupt of the caller cancels it."""
        try:
            self._check_open(waits=True)
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise
        self._waiting.add(future)
        try:
            if self._ended:
                future.cancel()
            return future.result()
        except CancelledError:
            coroutine.close()
            self._check_open()
            raise
        except BaseException:
            future.cancel()
            raise
        finally:
            self._waiting.discard(future)

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call the function on the loop, without waiting for it."""
        self._check_open()
        self._loop.call_soon_threadsafe(callback, *arguments)
        if self._ended:
            self._check_open()

    def run_last(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends something; do nothing if everything has ended already.

        An abandoned generator ends in any thread in which the garbage collector runs, even in the loop's own thread.
        """
        if threading.current_thread() is self._thread:
            task = self._loop.create_task(coroutine)
            self._left.add(task)
            task.add_done_callback(self._left.discard)
            return
        try:
            self.run(coroutine)
        except TidemillError:
            if not self.is_closed:
                raise

    def open(self, factory: Callable[[], T]) -> T:
        """Create an object on the loop; end the thread if that fails."""
        try:
            return self.make(factory)
        except BaseException:
            self._stop()
            raise

    def make(self, factory: Callable[[], T]) -> T:
        """Create an object on the loop."""

        async def made() -> T:
            return factory()

        return self.run(made())

    def ends_with(self, owner: object, close: Close) -> Callable[[], object]:
        """Return the function that closes the client and ends the thread; only its first call has an effect."""
        return weakref.finalize(owner, self._end, close)

    def _check_open(self, *, waits: bool = False) -> None:
        if waits and threading.current_thread() is self._thread:
            raise RuntimeError(WAITS_FOR_ITSELF)
        if self._process != os.getpid():
            raise type(self._closed)(FORKED)
        if self.is_closed:
            raise type(self._closed)(str(self._closed))

    def _end(self, close: Close) -> None:
        """Close, and end the background thread."""
        if self._process != os.getpid():
            return  # the thread and the connection belong to the parent process
        self._ending = True
        ending = self._close_and_cancel(close)
        if threading.current_thread() is self._thread:  # a thread cannot wait for itself: see `run_last`
            asyncio.ensure_future(ending, loop=self._loop).add_done_callback(lambda _: self._halt())
            return
        try:
            asyncio.run_coroutine_threadsafe(ending, self._loop).result()
        finally:
            self._stop()

    async def _close_and_cancel(self, close: Close) -> None:
        """Close, and cancel the calls that still wait."""
        try:
            await close()
        finally:
            waiting = asyncio.all_tasks() - {asyncio.current_task()}
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _halt(self) -> None:
        self._ending = self._ended = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _stop(self) -> None:
        self._halt()
        self._thread.join()
        for future in list(self._waiting):  # calls that were registered too late to become a task
            future.cancel()
        self._loop.close()
