"""Keeps one client's large request from blocking the event loop.

Four measures are needed for every API. A handler that goes through a client's list pauses after SLICE_S; of all
handlers that have paused, one continues per iteration of the loop, first come first served. Messages with many items
are decoded and encoded in one worker thread. Only LARGE_REQUESTS_MAX requests with many items are in memory as objects
at a time: decoded, they take far more memory than their bytes. The message classes of a version are imported in another
thread when its first request comes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Generic, ParamSpec, Self, TypeVar

SLICE_S = 0.002
"""How long one request may hold the event loop at a stretch."""
LOOP_ITEMS_MAX = 500
"""Messages with up to so many array items are decoded and encoded on the event loop, larger ones in the worker."""
LARGE_REQUESTS_MAX = 2

_P = ParamSpec("_P")
_T = TypeVar("_T")


class LoopGuard:
    """The threads of a listener, its places for large requests, and the queue of paused handlers."""

    def __init__(self) -> None:
        self.large_requests = asyncio.Semaphore(LARGE_REQUESTS_MAX)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="kafka-codec")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="kafka-schema")
        self._paused: deque[asyncio.Future[None]] = deque()

    async def in_worker(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The result of a function that only computes, called in the worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, lambda: function(*args, **kwargs))

    async def in_loader(self, function: Callable[_P, None], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Call a function that imports modules, in a thread that decodes no messages: it never waits for large ones."""
        await asyncio.get_running_loop().run_in_executor(self._loader, lambda: function(*args, **kwargs))

    async def pause(self) -> None:
        """Return in a later iteration of the loop, behind all handlers that have paused before."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._paused.append(turn)
        if len(self._paused) == 1:
            loop.call_soon(self._resume_one, loop)
        await turn

    def close(self) -> None:
        """End the threads after their queued work."""
        self._worker.shutdown(wait=False)
        self._loader.shutdown(wait=False)

    def _resume_one(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._paused:
            turn = self._paused.popleft()
            if not turn.done():  # a cancelled handler has left its place in the queue
                turn.set_result(None)
                break
        if self._paused:
            loop.call_soon(self._resume_one, loop)


class LoopSlice:
    """The time that a request has on the event loop until it pauses."""

    __slots__ = ("_end", "_guard")

    def __init__(self, guard: LoopGuard) -> None:
        self._guard = guard
        self._end = perf_counter() + SLICE_S

    @property
    def is_over(self) -> bool:
        """Whether the request has used up its time."""
        return perf_counter() >= self._end

    async def next(self) -> None:
        """Pause, and begin the next slice."""
        await self._guard.pause()
        self._end = perf_counter() + SLICE_S


class InSlices(Generic[_T]):
    """Items one after the other, with a pause whenever the slice is over.

    A class, and not a generator: the event loop registers every asynchronous generator, which costs a fetch a tenth.
    """

    __slots__ = ("_items", "_slice")

    def __init__(self, items: Iterable[_T], time: LoopSlice) -> None:
        self._items = iter(items)
        self._slice = time

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        if self._slice.is_over:
            await self._slice.next()
        for item in self._items:
            return item
        raise StopAsyncIteration
