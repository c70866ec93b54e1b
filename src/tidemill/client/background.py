"""An event loop in a thread of its own: how an asyncio client is used from threads.

Every call of the synchronous face is a coroutine of the asyncio face that is waited for; there is no second
implementation. What nobody closed is closed when it is forgotten, or when the program ends: a program must not hang
because it was still working when it ended.
"""

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tidemill.model.errors import TidemillError

T = TypeVar("T")
Close = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """The loop and its thread."""

    def __init__(self, name: str, closed: TidemillError) -> None:
        self.loop = asyncio.new_event_loop()
        self._closed = closed
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be run any more."""
        return self.loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it over there and wait for it; whoever is interrupted ends it."""
        if self.loop.is_closed():
            coroutine.close()
            raise type(self._closed)(str(self._closed))
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def open(self, factory: Callable[[], T]) -> T:
        """What the factory makes, made on the loop; when it cannot be, the thread ends."""
        try:
            return self.make(factory)
        except BaseException:
            _stop(self.loop, self._thread)
            raise

    def make(self, factory: Callable[[], T]) -> T:
        """What the factory makes, made on the loop."""

        async def made() -> T:
            return factory()

        return self.run(made())

    def ends_with(self, owner: object, close: Close) -> Callable[[], object]:
        """What closes the client and ends the thread: called once, by whoever is first."""
        return weakref.finalize(owner, _end, close, self.loop, self._thread)


def _end(close: Callable[[], Awaitable[None]], loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Close, and end the background thread."""
    if threading.current_thread() is thread:  # the garbage collector runs in any thread, and none can wait for itself
        asyncio.ensure_future(close(), loop=loop).add_done_callback(lambda _: loop.stop())
        return

    async def closed() -> None:
        await close()

    try:
        asyncio.run_coroutine_threadsafe(closed(), loop).result()
    finally:
        _stop(loop, thread)


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
