"""The asyncio client of timelines: all operations of producers, consumers and operators on one timeline."""

import asyncio
import re
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, Self, TypedDict, Unpack, cast

from tidemill.client.grpc_login import FetchToken
from tidemill.client.grpc_security import parse_grpc_security
from tidemill.client.rpc import CONNECT_TIMEOUT_MS
from tidemill.client.timelines.clock_state import OWN_CLOCK, ClockNotices, ClockState, OnClock
from tidemill.client.timelines.connection import TIMEOUT_MS, TimelineConnection
from tidemill.client.timelines.lease import AsyncLease
from tidemill.client.timelines.message import (
    Due,
    Message,
    MissedPolicyName,
    RecurrenceRule,
    ScheduledId,
    due_ms,
    every_ms,
    from_ms,
)
from tidemill.client.timelines.naming import timeline_name
from tidemill.client.timelines.worker import Worker
from tidemill.model.errors import TidemillError
from tidemill.model.message_ids import RANDOM_BITS, new_id
from tidemill.model.timeline_errors import BadMessageId, BadRecurrence, BatchTooLarge, TimelineError, by_name
from tidemill.wire.grpc import timeline_pb2 as wire

SCHEDULE_MESSAGES_MAX = 1_000
RECURRING_MESSAGES_MAX = 100
"""The most recurring messages that the broker takes in one call."""
TRACEPARENT = "traceparent"
TRACEPARENT_SHAPE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
SCHEDULE_BYTES_MAX = 8 * 1024 * 1024
LIST_MESSAGES_MAX = 1_000
DRIFT_US_MAX = 1_000_000
MEASURE_TIMEOUT_S = 2.0
STATUSES = {
    None: wire.STATUS_ANY,
    "waiting": wire.STATUS_WAITING,
    "available": wire.STATUS_AVAILABLE,
    "leased": wire.STATUS_LEASED,
}
STATUS_NAMES = {value: name or "any" for name, value in STATUSES.items()}


LeaseOrderName = Literal["lease-end", "due", "random"]
LEASE_ORDERS: dict[str, wire.LeaseOrder] = {
    "lease-end": wire.LEASE_ORDER_LEASE_END,
    "due": wire.LEASE_ORDER_DUE,
    "random": wire.LEASE_ORDER_RANDOM,
}


class SettingKeywords(TypedDict, total=False):
    """The settings of a timeline; the broker checks the values."""

    lease_ms: int
    max_attempts: int
    dead_letter: str
    window_ms: int
    body_bytes_max: int
    dealer: Literal["racks", "ranges"]
    failing_percent: int


class RecurrenceKeywords(TypedDict, total=False):
    """The fields of `RecurrenceRule` as keywords."""

    cron: str
    every: timedelta | float
    zone: str
    missed: MissedPolicyName
    until: Due
    count: int


@dataclass(frozen=True, slots=True)
class TimelineDescription:
    """A timeline as the broker describes it."""

    name: str
    state: str
    settings: Mapping[str, str] = field(default_factory=dict)
    consumers: int = 0
    created: bool = False
    """Whether this call of `create` created it."""
    delivery: str = "running"
    """`running`; or `stopped` or `probing` while most consumers at the broker that answered fail."""
    delivery_reason: str = ""
    """Why it is not running."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message on a timeline."""

    id: str
    due: datetime
    status: str
    attempts: int
    key: bytes | None
    body: bytes
    holder: str
    group: str = ""
    """The consumer group of the message."""
    lease_ends: datetime | None = None
    """Set while a consumer holds the message."""
    seq: int = 0
    """The order of messages that are due at the same time."""
    recurrence: RecurrenceRule | None = None
    """Set for a message that is due again after its completion."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram: the number of messages due from `start` on, until the next bar."""

    start: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Latency:
    """The result of a ping: the round trip time, and how far the broker's clock is ahead of ours."""

    round_trip_ms: float
    drift_ms: float
    state: str


class AsyncTimeline:
    """One timeline of a broker: `Timeline` for asyncio, with the same names."""

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
        self._connection = TimelineConnection(
            address,
            name,
            timeout_ms=timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            security=parse_grpc_security(client, token),
            follow_hints=follow_hints,
        )
        self._greeting = wire.HandshakeRequest(role=wire.ROLE_PRODUCER, timeline=name, id=group)
        self._workers: set[Worker] = set()
        self._measured: Latency | None = None
        self._clock = ClockNotices()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all work and close the connection."""
        await asyncio.gather(*(worker.close() for worker in list(self._workers)))
        await self._connection.end()

    async def create(self, **settings: Unpack[SettingKeywords]) -> TimelineDescription:
        """Create the timeline. Creating it again changes nothing, and `created` is then false."""
        request = wire.CreateTimelineRequest(name=self.name, settings=_texts(settings))
        return _description(await self._connection.call("CreateTimeline", request))

    async def alter(self, **settings: Unpack[SettingKeywords]) -> TimelineDescription:
        """Change settings of the timeline; settings that are not named stay the same."""
        request = wire.AlterTimelineRequest(name=self.name, settings=_texts(settings))
        return _description(await self._connection.call("AlterTimeline", request))

    async def delete(self) -> None:
        """Delete the timeline with all its messages."""
        await self._connection.call("DeleteTimeline", wire.DeleteTimelineRequest(name=self.name))

    async def describe(self) -> TimelineDescription:
        """Return the timeline's state and settings."""
        return _description(
            await self._connection.call("DescribeTimeline", wire.DescribeTimelineRequest(name=self.name))
        )

    async def timelines(self) -> list[TimelineDescription]:
        """List all timelines of the broker."""
        reply = await self._connection.call("ListTimelines", wire.ListTimelinesRequest())
        return [_description(one) for one in reply.timelines]

    async def schedule(
        self,
        messages: Iterable[Message],
        *,
        traceparent: str | None = None,
        **recurrence: Unpack[RecurrenceKeywords],
    ) -> list[ScheduledId]:
        """Schedule messages. They are durable when this returns. Returns the ids, in order.

        An existing id is left unchanged: its `exists_already` is true, and its `due` is the stored time. `traceparent`
        is the W3C trace context of the caller: a broker that records traces continues it. With `cron` or `every` the
        messages are due again and again; these keywords are those of `RecurrenceRule`.
        """
        if isinstance(messages, Message):
            raise TypeError("schedule needs a list of messages: schedule([Message(...)])")
        metadata = () if traceparent is None else ((TRACEPARENT, _checked_traceparent(traceparent)),)
        rule = RecurrenceRule(**recurrence) if recurrence else None
        await self._measure_again()
        ids: list[ScheduledId] = []
        for batch in _batches([_new(one, rule) for one in messages]):
            reply = await self._connection.call_in_session(
                "Schedule",
                self._greeting,
                partial(self._schedule_request, batch),
                metadata=metadata,
            )
            self._heard(reply.clock)
            ids.extend(ScheduledId.of(one.id, one.until_ms, exists_already=not one.changed) for one in reply.outcomes)
        return ids

    @property
    def clock(self) -> ClockState | None:
        """What the last answers of the broker said about its clock, and which clocks differ from it by over a second.

        The drift of this machine's clock is `drifts_ms["client"]`. None before the first answer. Consumers have it at
        their leases: `lease.worker.clock`.
        """
        return self._clock.state

    def _heard(self, clock: wire.ClockState) -> None:
        """Take the state of the broker's clock, with the drift of our own."""
        measured = self._connection.measured
        if measured is not None and abs(measured.drift_us) > DRIFT_US_MAX:
            clock.drifts.add(target=OWN_CLOCK, drift_ms=round(measured.drift_us / 1_000))
        self._clock.take(clock)

    def _schedule_request(self, batch: list[wire.NewMessage], session: str) -> wire.ScheduleRequest:
        return wire.ScheduleRequest(session=session, messages=batch, measured=self._connection.measured)

    async def _measure_again(self) -> None:
        """Compare the clocks again when the last comparison is old; the call that follows reports the result."""
        if self._connection.should_measure():
            with suppress(TidemillError, TimeoutError):
                async with asyncio.timeout(MEASURE_TIMEOUT_S):
                    await self.ping()

    async def cancel(self, ids: str | Sequence[str]) -> None:
        """Cancel messages. All are tried; then one error names those that could not be cancelled."""
        reply = await self._connection.call_in_session(
            "Cancel", self._greeting, lambda session: wire.CancelRequest(session=session, ids=_listed(ids))
        )
        _raise_failures(reply.outcomes)

    async def move(self, ids: str | Sequence[str], due: Due) -> None:
        """Change the due time of messages. All are tried; then one error names those that could not be moved."""
        at_ms = due_ms(due)
        reply = await self._connection.call_in_session(
            "Move", self._greeting, lambda session: wire.MoveRequest(session=session, ids=_listed(ids), due_ms=at_ms)
        )
        _raise_failures(reply.outcomes)

    async def count(self, status: str | None = None, start: Due | None = None, end: Due | None = None) -> int:
        """Count messages, by status and due time."""
        first_ms, end_ms = _range(start, end)
        request = wire.CountRequest(timeline=self.name, status=_status(status), from_ms=first_ms, to_ms=end_ms)
        return int((await self._connection.call("Count", request)).count)

    async def messages(
        self, status: str | None = None, start: Due | None = None, end: Due | None = None, *, limit: int = 100
    ) -> list[Stored]:
        """Return the first messages by due time: at most `limit`, never more than 1,000 or 16 MiB of bodies."""
        if limit < 1:
            raise BatchTooLarge(f"limit={limit} must be 1 to {LIST_MESSAGES_MAX}")
        first_ms, end_ms = _range(start, end)
        limit = min(limit, LIST_MESSAGES_MAX)
        request = wire.ListMessagesRequest(
            timeline=self.name, status=_status(status), from_ms=first_ms, to_ms=end_ms, limit=limit
        )
        return [_stored(one) for one in (await self._connection.call("ListMessages", request)).messages]

    async def histogram(self, start: Due, end: Due, buckets: int = 20, *, status: str | None = None) -> list[Bar]:
        """Count messages in equal parts of a range of due times."""
        first_ms, end_ms = _range(start, end)
        request = wire.HistogramRequest(
            timeline=self.name, from_ms=first_ms, to_ms=end_ms, buckets=buckets, status=_status(status)
        )
        reply = await self._connection.call("Histogram", request)
        width_ms = max(1, -(-(reply.to_ms - reply.from_ms) // buckets))
        return [Bar(from_ms(reply.from_ms + at * width_ms), count) for at, count in enumerate(reply.counts)]

    async def ping(self) -> Latency:
        """Measure the latency to the broker and the clock difference, with four timestamps."""
        before = self._measured
        request = wire.PingRequest(sent_us=_now_us(), measured=before is not None)
        if before is not None:
            request.drift_us = round(-before.drift_ms * 1_000)
            request.latency_us = round(before.round_trip_ms * 500)
        reply = await self._connection.call("Ping", request)
        back_us = _now_us()
        round_trip_us = (back_us - reply.sent_us) - (reply.answered_us - reply.received_us)
        drift_us = ((reply.received_us - reply.sent_us) + (reply.answered_us - back_us)) / 2
        self._measured = Latency(round_trip_us / 1_000, drift_us / 1_000, reply.state)
        self._connection.measure(request.sent_us, reply, back_us)
        return self._measured

    async def work(
        self,
        *,
        consumer_id: str | None = None,
        rack: str = "",
        max_in_flight: int = 100,
        lease_ms: int = 0,
        idle_ms: int | None = None,
        on_clock: OnClock | None = None,
        order: LeaseOrderName = "lease-end",
    ) -> AsyncGenerator[AsyncLease, None]:
        """Lease messages as they fall due, until the timeline is closed, or until none arrived for `idle_ms`.

        `on_clock` is called with the reasons when the broker's clock gets in doubt, and when it is trusted again.
        `order` says which of several due messages come first: "lease-end", as they became available; "due", by their
        due times, also those that were leased before; or "random".
        """
        worker = self.worker(consumer_id, rack, max_in_flight, lease_ms, on_clock, order)
        try:
            while arrived := await worker.arrivals(idle_ms):
                while arrived:
                    if (one := arrived.popleft()).live:
                        yield AsyncLease(worker, one.lease)
        finally:
            await self.dismiss(worker)

    def worker(
        self,
        consumer_id: str | None,
        rack: str,
        max_in_flight: int,
        lease_ms: int,
        on_clock: OnClock | None = None,
        order: LeaseOrderName = "lease-end",
    ) -> Worker:
        """Open a consumer's stream, for the asyncio and the synchronous client."""
        self._connection.check_usable()
        if order not in LEASE_ORDERS:
            raise TimelineError(f"order {order!r} does not exist; use {', '.join(LEASE_ORDERS)}")
        greeting = wire.HandshakeRequest(
            role=wire.ROLE_CONSUMER,
            timeline=self.name,
            id=consumer_id or f"consumer-{uuid.uuid4().hex[:12]}",
            rack=rack,
            max_in_flight=max_in_flight,
            lease_ms=lease_ms,
            holds_back=True,
            order=LEASE_ORDERS[order],
        )
        worker = Worker(self._connection, greeting, on_clock)
        self._workers.add(worker)
        return worker

    async def dismiss(self, worker: Worker) -> None:
        """End a consumer's stream; unused leases are released."""
        self._workers.discard(worker)
        await worker.close()


def _now_us() -> int:
    return time.time_ns() // 1_000


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items() if value is not None}


def _description(info: wire.TimelineInfo) -> TimelineDescription:
    return TimelineDescription(
        info.name,
        info.state,
        dict(info.settings),
        info.consumers,
        info.created,
        info.delivery or "running",
        info.delivery_reason,
    )


def _new(message: Message, rule: RecurrenceRule | None) -> wire.NewMessage:
    """Encode the message. The id is generated here, so that a repeated call schedules the same message."""
    if not isinstance(message, Message):
        raise TypeError(f"schedule needs a list of Message, not of {type(message).__name__}")
    if message.id == "":
        raise BadMessageId("the message id is empty; omit it to get a generated one")
    message_id = _generated_id() if message.id is None else message.id
    rule = message.recurrence or rule
    if message.due is None and rule is None:
        raise TypeError("a message needs its due time, or a recurrence: Message(body, due=time.time() + 5)")
    recurrence = None if rule is None else _recurrence(rule)
    try:
        at_ms = 0 if message.due is None else due_ms(message.due)
        return wire.NewMessage(body=message.body, due_ms=at_ms, id=message_id, key=message.key, recurrence=recurrence)
    except TypeError as error:
        raise TypeError(f"body and key must be bytes, id a str, due a datetime or seconds: {message!r}") from error
    except UnicodeEncodeError as error:
        raise BadMessageId(f"message id {message_id!a} is not valid text: {error.reason}") from error


def _recurrence(rule: RecurrenceRule) -> wire.Recurrence:
    if (rule.cron is None) == (rule.every is None):
        raise BadRecurrence("a recurrence has either cron or every: cron='0 9 * * 1-5', or every=300")
    if rule.count is not None and rule.count < 1:
        raise BadRecurrence(f"count={rule.count} must be at least 1")
    try:
        return wire.Recurrence(
            cron=rule.cron,
            zone=rule.zone,
            every_ms=None if rule.every is None else every_ms(rule.every),
            missed=rule.missed,
            until_ms=None if rule.until is None else due_ms(rule.until),
            count=rule.count,
        )
    except (TypeError, ValueError) as error:
        raise BadRecurrence(f"{rule} cannot be sent: {error}") from error


def _rule(recurrence: wire.Recurrence) -> RecurrenceRule:
    return RecurrenceRule(
        cron=recurrence.cron or None,
        every=timedelta(milliseconds=recurrence.every_ms) if recurrence.every_ms else None,
        zone=recurrence.zone if recurrence.cron else None,
        missed=cast("MissedPolicyName", recurrence.missed),
        until=from_ms(recurrence.until_ms) if recurrence.until_ms else None,
        count=recurrence.count or None,
    )


def _generated_id() -> str:
    return new_id(time.time_ns() // 1_000_000, secrets.randbits(RANDOM_BITS))


def _batches(messages: Sequence[wire.NewMessage]) -> Iterable[list[wire.NewMessage]]:
    batch: list[wire.NewMessage] = []
    size = 0
    for message in messages:
        messages_max = RECURRING_MESSAGES_MAX if message.HasField("recurrence") else SCHEDULE_MESSAGES_MAX
        if batch and (len(batch) >= messages_max or size + len(message.body) > SCHEDULE_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.body)
    if batch:
        yield batch


def _checked_traceparent(text: str) -> str:
    """Refuse what gRPC cannot send. The broker ignores a context that is not valid."""
    if not isinstance(text, str) or not TRACEPARENT_SHAPE.fullmatch(text):
        raise ValueError(f"traceparent {str(text)[:60]!r} is not a trace context; write 00-TRACE_ID-SPAN_ID-01")
    return text


def _listed(ids: str | Sequence[str]) -> list[str]:
    listed = [ids] if isinstance(ids, str) else list(ids)
    if not all(isinstance(one, str) for one in listed):
        raise TypeError(f"ids must be a str or a list of them, not {ids!r}")
    return listed


def _raise_failures(outcomes: Sequence[wire.Outcome]) -> None:
    """Raise one error of the first failure's class that lists all failures."""
    failures = {one.id: by_name(one.error)(one.reason) for one in outcomes if one.error}
    if not failures:
        return
    listed = "; ".join(f"{message_id}: {failure}" for message_id, failure in failures.items())
    others = f" ({len(outcomes) - len(failures)} of {len(outcomes)} succeeded)" if len(outcomes) > 1 else ""
    error = type(next(iter(failures.values())))(listed + others)
    error.failures = failures
    raise error


def _range(start: Due | None, end: Due | None) -> tuple[int, int]:
    return 0 if start is None else due_ms(start), 0 if end is None else due_ms(end)


def _status(name: str | None) -> wire.Status:
    if name not in STATUSES:
        raise TimelineError(f"status {name!r} does not exist; use waiting, available or leased")
    return STATUSES[name]


def _stored(message: wire.ListedMessage) -> Stored:
    key = message.key if message.HasField("key") else None
    return Stored(
        message.id,
        from_ms(message.due_ms),
        STATUS_NAMES[message.status],
        message.attempts,
        key,
        message.body,
        message.holder,
        message.group,
        from_ms(message.position_ms) if message.status == wire.STATUS_LEASED else None,
        message.seq,
        _rule(message.recurrence) if message.HasField("recurrence") else None,
    )
