"""Timelines for threads: the asyncio face, run on an event loop of its own in the background.

Every call is a coroutine of `AsyncTimeline` that is waited for. One instance may be used by several threads.
"""

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import Self, Unpack

from tidemill.client.background import Background
from tidemill.client.rpc import CONNECT_TIMEOUT_MS
from tidemill.client.timelines.aio import AsyncTimeline, Bar, Latency, SettingKeywords, Stored, TimelineDescription
from tidemill.client.timelines.connection import TIMEOUT_MS
from tidemill.client.timelines.lease import Lease
from tidemill.client.timelines.message import Due, Message, ScheduledId
from tidemill.client.timelines.worker import Arrival, OnClock, Worker
from tidemill.model.timeline_errors import TimelineError


class Timeline:
    """One timeline of a broker: messages that are delivered at their due time, under a lease.

        with Timeline("127.0.0.1:6174", "reminders") as reminders:
            reminders.create(lease_ms=30_000)
            reminders.schedule([Message(b"tea is ready", due=time.time() + 5)])
            for lease in reminders.work(idle_ms=10_000):
                print(lease.body)
                lease.complete()

    `group` names the producers that may cancel and move each other's messages. A call that nobody answers is tried
    again for `timeout_ms`; where nobody has ever answered, for `connect_timeout_ms`. Several threads may use one.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:6174",
        topic: str = "",
        *,
        group: str = "",
        timeout_ms: int = TIMEOUT_MS,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    ) -> None:
        self.topic = topic
        self._background = Background("tidemill-timeline", TimelineError("this Timeline is closed; open another one"))
        self._run = self._background.run
        self._async = self._background.open(
            lambda: AsyncTimeline(
                address, topic, group=group, timeout_ms=timeout_ms, connect_timeout_ms=connect_timeout_ms
            )
        )
        self._end = self._background.ends_with(self, self._async.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all work, close the connection and end the background thread."""
        self._end()

    def create(self, **settings: Unpack[SettingKeywords]) -> TimelineDescription:
        """Create the timeline; the same again changes nothing, and `created` tells the difference."""
        return self._run(self._async.create(**settings))

    def alter(self, **settings: Unpack[SettingKeywords]) -> TimelineDescription:
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
        """The first messages, by due time: at most `limit`, and no more than 1,000 or 16 MiB of bodies at once."""
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
        on_clock: OnClock | None = None,
    ) -> Generator[Lease, None, None]:
        """Lease messages as they fall due, until the timeline is closed, or until none came for `idle_ms`.

        `on_clock` is called when the broker's clock gets in doubt, with the reasons, and when it is trusted again; on
        the client's own thread.
        """
        worker = self._background.make(lambda: self._async.worker(consumer_id, rack, max_in_flight, lease_ms, on_clock))
        try:
            while arrived := self._arrivals(worker, idle_ms):
                while arrived:
                    if (one := arrived.popleft()).live:
                        yield Lease(worker, one.lease, self._run)
        finally:
            self._background.run_last(self._async.dismiss(worker))

    def _arrivals(self, worker: Worker, idle_ms: int | None) -> deque[Arrival]:
        """Who works while another thread closes the timeline has no more to do."""
        try:
            return self._run(worker.arrivals(idle_ms))
        except TimelineError:
            if not self._background.is_closed:
                raise
            return deque()
