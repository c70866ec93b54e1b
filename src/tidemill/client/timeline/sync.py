"""Timelines for threads: the asyncio face, run on an event loop of its own in the background.

Every call is a coroutine of `AsyncTimeline` that is waited for; there is no second implementation. One instance may be
used by several threads. One that nobody closed is closed when it is forgotten, or when the program ends: a program must
not hang because it was still working when it ended.
"""

import asyncio
import threading
import weakref
from collections.abc import Coroutine, Generator, Iterable, Sequence
from typing import Any, Self, TypeVar

from tidemill.client.timeline.aio import AsyncTimeline, Bar, Latency, Stored, TimelineDescription
from tidemill.client.timeline.connection import TIMEOUT_MS
from tidemill.client.timeline.lease import Lease
from tidemill.client.timeline.message import Due, Message, ScheduledId
from tidemill.client.timeline.worker import Worker
from tidemill.model.timeline_errors import TimelineError

T = TypeVar("T")


class Timeline:
    """One timeline of a broker."""

    def __init__(
        self, address: str = "127.0.0.1:6174", topic: str = "", *, group: str = "", timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self.topic = topic
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidemill-timeline", daemon=True)
        self._thread.start()
        self._async = self._run(self._open(address, topic, group, timeout_ms))
        self._end = weakref.finalize(self, _end, self._async, self._loop, self._thread)

    @staticmethod
    async def _open(address: str, topic: str, group: str, timeout_ms: int) -> AsyncTimeline:
        return AsyncTimeline(address, topic, group=group, timeout_ms=timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            coroutine.close()
            raise TimelineError("this Timeline is closed; open another one")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End all work, close the connection and end the background thread."""
        self._end()

    def create(self, **settings: object) -> TimelineDescription:
        """Create the timeline; the same again changes nothing."""
        return self._run(self._async.create(**settings))

    def alter(self, **settings: object) -> TimelineDescription:
        """Change settings of the timeline; those not named stay."""
        return self._run(self._async.alter(**settings))

    def delete(self) -> None:
        """Delete the timeline with all its messages."""
        self._run(self._async.delete())

    def describe(self) -> TimelineDescription:
        """The timeline's state and settings."""
        return self._run(self._async.describe())

    def timelines(self) -> list[TimelineDescription]:
        """All timelines of the broker."""
        return self._run(self._async.timelines())

    def schedule(self, messages: Iterable[Message]) -> list[ScheduledId]:
        """Keep messages for later; durable when it returns. The ids, in order; see `AsyncTimeline.schedule`."""
        return self._run(self._async.schedule(messages))

    def cancel(self, ids: str | Sequence[str]) -> None:
        """Take messages back; those that cannot be are told in one error, after all were tried."""
        self._run(self._async.cancel(ids))

    def move(self, ids: str | Sequence[str], due: Due) -> None:
        """Give messages another due time; those that cannot be moved are told in one error, after all were tried."""
        self._run(self._async.move(ids, due))

    def count(self, status: str | None = None, start: Due | None = None, end: Due | None = None) -> int:
        """How many messages there are, by status and due time."""
        return self._run(self._async.count(status, start, end))

    def messages(
        self, status: str | None = None, start: Due | None = None, end: Due | None = None, *, limit: int = 100
    ) -> list[Stored]:
        """The first messages, by due time."""
        return self._run(self._async.messages(status, start, end, limit=limit))

    def histogram(self, start: Due, end: Due, buckets: int = 20, *, status: str | None = None) -> list[Bar]:
        """How many messages are due in each part of a range of time."""
        return self._run(self._async.histogram(start, end, buckets, status=status))

    def ping(self) -> Latency:
        """Measure the way to the broker and the difference of the clocks."""
        return self._run(self._async.ping())

    def work(
        self,
        *,
        consumer_id: str | None = None,
        rack: str = "",
        max_in_flight: int = 100,
        lease_ms: int = 0,
        idle_ms: int | None = None,
    ) -> Generator[Lease, None, None]:
        """Lease messages as they fall due, for ever, or until none came for `idle_ms`."""
        worker = self._run(self._start(consumer_id, rack, max_in_flight, lease_ms))
        try:
            while arrived := self._run(worker.arrivals(idle_ms)):
                while arrived:
                    if (one := arrived.popleft()).live:
                        yield Lease(worker, one.lease, self._run)
        finally:
            if not self._loop.is_closed():
                self._run(self._async.dismiss(worker))

    async def _start(self, consumer_id: str | None, rack: str, max_in_flight: int, lease_ms: int) -> Worker:
        return self._async.worker(consumer_id, rack, max_in_flight, lease_ms)


def _end(timeline: AsyncTimeline, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """End all work, close the connection and end the background thread."""
    if threading.current_thread() is thread:  # the garbage collector runs in any thread, and none can wait for itself
        loop.create_task(timeline.close()).add_done_callback(lambda _: loop.stop())
        return
    asyncio.run_coroutine_threadsafe(timeline.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
