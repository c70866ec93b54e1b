"""An event loop in a thread of its own: how an asyncio client is used from threads.

Every call of the synchronous face is a coroutine of the asyncio face that is waited for; there is no second
implementation. What nobody closed is closed when it is forgotten, or when the program ends: a program must not hang
because it was still working when it ended.

Nobody waits for a loop that does not run. Whoever still waits when the client is closed by another thread is told that
it is closed; so is whoever comes later. Without a lock, for the garbage collector may close a client in the midst of
anything: who comes in leaves a note and then looks whether the loop has ended; who ends it says so first, and then
reads the notes. A child of `fork` has the objects but not the thread: it is told, too.
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
FORKED = "this was opened before the process was forked; open one in the child"
WAITS_FOR_ITSELF = "a callback of a delivery must not wait for another; do that in a thread of your own"


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
        raise TypeError("it has a thread and connections, and cannot be pickled: open another one in each process")

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be run any more."""
        return self._ending

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it over there and wait for it; whoever is interrupted ends it."""
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

    def tell(self, callback: Callable[..., object], *arguments: object) -> None:
        """Have it called over there, and do not wait for it."""
        self._check_open()
        self._loop.call_soon_threadsafe(callback, *arguments)
        if self._ended:
            self._check_open()

    def run_last(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run what ends something; where all has ended already, nothing is left to do.

        A generator that is forgotten ends in whatever thread the garbage collector runs, also in the one that would
        have to be waited for.
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
        """What the factory makes, made on the loop; when it cannot be, the thread ends."""
        try:
            return self.make(factory)
        except BaseException:
            self._stop()
            raise

    def make(self, factory: Callable[[], T]) -> T:
        """What the factory makes, made on the loop."""

        async def made() -> T:
            return factory()

        return self.run(made())

    def ends_with(self, owner: object, close: Close) -> Callable[[], object]:
        """What closes the client and ends the thread: called once, by whoever is first."""
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
            return  # the thread, and the connection, are the parent's
        self._ending = True
        ending = self._wind_up(close)
        if threading.current_thread() is self._thread:  # none can wait for itself: see `run_last`
            asyncio.ensure_future(ending, loop=self._loop).add_done_callback(lambda _: self._halt())
            return
        try:
            asyncio.run_coroutine_threadsafe(ending, self._loop).result()
        finally:
            self._stop()

    async def _wind_up(self, close: Close) -> None:
        """Close, and send away those who still wait."""
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
        for future in list(self._waiting):  # who came in too late to be a task
            future.cancel()
        self._loop.close()
