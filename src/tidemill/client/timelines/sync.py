"""The synchronous client of timelines: the asyncio client, run on an event loop in the background.

Every call waits for a coroutine of `AsyncTimeline`. Several threads may use one instance.
"""

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Self, Unpack

from tidemill.client.background import Background
from tidemill.client.grpc_login import FetchToken
from tidemill.client.rpc import CONNECT_TIMEOUT_MS
from tidemill.client.timelines.aio import (
    AsyncTimeline,
    Bar,
    Latency,
    LeaseOrderName,
    RecurrenceKeywords,
    SettingKeywords,
    Stored,
    TimelineDescription,
)
from tidemill.client.timelines.clock_state import ClockState, OnClock
from tidemill.client.timelines.connection import TIMEOUT_MS
from tidemill.client.timelines.lease import Lease
from tidemill.client.timelines.message import Due, Message, ScheduledId
from tidemill.client.timelines.naming import timeline_name
from tidemill.client.timelines.worker import Arrival, Worker
from tidemill.model.timeline_errors import TimelineError


class Timeline:
    """One timeline of a broker: messages that are delivered at their due time, under a lease.

        with Timeline("127.0.0.1:6174", "reminders") as reminders:
            reminders.create(lease_ms=30_000)
            reminders.schedule([Message(b"tea is ready", due=time.time() + 5)])
            for lease in reminders.work(idle_ms=10_000):
                print(lease.body)
                lease.complete()

    `group` names the producers that may cancel and move each other's messages. A call without an answer is retried for
    `timeout_ms`; if no broker has ever answered, for `connect_timeout_ms`. Several threads may use one instance.

    `client` has settings for TLS and login with the names of Kafka clients, such as `security.protocol`,
    `sasl.username`, `sasl.password`, `ssl.ca.location`. `token` is a function that returns a token for the login; it is
    called again before the token expires.

    In a cluster, the brokers say which of them to use, and consumers move when they get a hint. With
    `follow_hints=False` the client stays at the given address, if that broker serves messages.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:6174",
        name: str = "",
        *,
        group: str = "",
        timeout_ms: int = TIMEOUT_MS,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        client: Mapping[str, str] | None = None,
        token: FetchToken | None = None,
        topic: str | None = None,
        follow_hints: bool = True,
    ) -> None:
        self.name = name = timeline_name(name, topic)
        self._background = Background("tidemill-timeline", TimelineError("the Timeline is closed; open another one"))
        self._run = self._background.run
        self._async = self._background.open(
            lambda: AsyncTimeline(
                address,
                name,
                group=group,
                timeout_ms=timeout_ms,
                connect_timeout_ms=connect_timeout_ms,
                client=client,
                token=token,
                follow_hints=follow_hints,
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
        """Create the timeline. Creating it again changes nothing, and `created` is then false."""
        return self._run(self._async.create(**settings))

    def alter(self, **settings: Unpack[SettingKeywords]) -> TimelineDescription:
        """Change settings of the timeline; settings that are not named stay the same."""
        return self._run(self._async.alter(**settings))

    def delete(self) -> None:
        """Delete the timeline with all its messages."""
        self._run(self._async.delete())

    def describe(self) -> TimelineDescription:
        """Return the timeline's state and settings."""
        return self._run(self._async.describe())

    def timelines(self) -> list[TimelineDescription]:
        """List all timelines of the broker."""
        return self._run(self._async.timelines())

    def schedule(
        self,
        messages: Iterable[Message],
        *,
        traceparent: str | None = None,
        **recurrence: Unpack[RecurrenceKeywords],
    ) -> list[ScheduledId]:
        """Schedule messages. They are durable when this returns. Returns the ids; see `AsyncTimeline.schedule`."""
        return self._run(self._async.schedule(messages, traceparent=traceparent, **recurrence))

    @property
    def clock(self) -> ClockState | None:
        """The broker's clock and the clocks that differ from it; see `AsyncTimeline.clock`."""
        return self._async.clock

    def cancel(self, ids: str | Sequence[str]) -> None:
        """Cancel messages. All are tried; then one error names those that could not be cancelled."""
        self._run(self._async.cancel(ids))

    def move(self, ids: str | Sequence[str], due: Due) -> None:
        """Change the due time of messages. All are tried; then one error names those that could not be moved."""
        self._run(self._async.move(ids, due))

    def count(self, status: str | None = None, start: Due | None = None, end: Due | None = None) -> int:
        """Count messages, by status and due time."""
        return self._run(self._async.count(status, start, end))

    def messages(
        self, status: str | None = None, start: Due | None = None, end: Due | None = None, *, limit: int = 100
    ) -> list[Stored]:
        """Return the first messages by due time: at most `limit`, never more than 1,000 or 16 MiB of bodies."""
        return self._run(self._async.messages(status, start, end, limit=limit))

    def histogram(self, start: Due, end: Due, buckets: int = 20, *, status: str | None = None) -> list[Bar]:
        """Count messages in equal parts of a range of due times."""
        return self._run(self._async.histogram(start, end, buckets, status=status))

    def ping(self) -> Latency:
        """Measure the latency to the broker and the clock difference."""
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
        order: LeaseOrderName = "lease-end",
    ) -> Generator[Lease, None, None]:
        """Lease messages as they fall due, until the timeline is closed, or until none arrived for `idle_ms`.

        `on_clock` is called with the reasons when the broker's clock gets in doubt, and when it is trusted again. It
        runs on the client's own thread. `order` is "lease-end", "due" or "random"; see `AsyncTimeline.work`.
        """
        worker = self._background.make(
            lambda: self._async.worker(consumer_id, rack, max_in_flight, lease_ms, on_clock, order)
        )
        try:
            while arrived := self._arrivals(worker, idle_ms):
                while arrived:
                    if (one := arrived.popleft()).live:
                        yield Lease(worker, one.lease, self._run)
        finally:
            self._background.run_last(self._async.dismiss(worker))

    def _arrivals(self, worker: Worker, idle_ms: int | None) -> deque[Arrival]:
        """Return the leases that have arrived; none when another thread has closed the timeline."""
        try:
            return self._run(worker.arrivals(idle_ms))
        except TimelineError:
            if not self._background.is_closed:
                raise
            return deque()
