"""TimelineService: each call becomes one call to the dispatcher, and its result an answer.

Method names are those of the schema. This module makes no decisions. It checks the rights of the client
(`authorization_table`) and the limits of a request before it calls the dispatcher.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from itertools import accumulate
from typing import TypeVar

from tidemill.broker.broker import BrokerNode
from tidemill.broker.clock_drifts import clock_drifts
from tidemill.model.errors import TidemillError
from tidemill.model.timeline_errors import BadDueTime, BatchTooLarge, ProducerThrottled
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.grpc.call import GrpcCall
from tidemill.servers.grpc.channel_counts import CONSUMER, PRODUCER, ChannelCounts
from tidemill.servers.grpc.client_sessions import CONSUMES, ClientSession, ClientSessions
from tidemill.servers.grpc.error_status import answered, meaning, refuse
from tidemill.servers.grpc.move_hints import MoveHints
from tidemill.servers.grpc.producer_throttle import ProducerThrottle
from tidemill.servers.grpc.work_stream import OPERATIONS_MAX, clock_state, work
from tidemill.timelines.consumer import IN_FLIGHT_MAX
from tidemill.timelines.core.lease import CommandOutcome, error_of
from tidemill.timelines.core.message import DUE_MS_MAX, MessageStatus, Selection, TimedMessage, check_due, status_of
from tidemill.timelines.core.recurrence import UTC_NAME, Recurrence, missed_policy, recurrence_from
from tidemill.timelines.core.timeline import (
    TimelineInfo,
    TimelineSettings,
    refuse_followed,
    refuse_kept,
    resource_of,
)
from tidemill.timelines.dispatcher import Dispatcher, ScheduleRequest
from tidemill.timelines.health import DRIFT_MS_MAX, ClientKind
from tidemill.timelines.lifecycle import settings_from, settings_to
from tidemill.wire.grpc import timeline_pb2 as wire
from tidemill.wire.grpc import timeline_pb2_grpc as generated

SCHEDULE_MESSAGES_MAX = 10_000
IDS_MAX = 10_000
LIST_MESSAGES_MAX = 1_000
LIST_BYTES_MAX = 16 * 1024 * 1024
STATUSES = {
    wire.STATUS_WAITING: MessageStatus.WAITING,
    wire.STATUS_AVAILABLE: MessageStatus.AVAILABLE,
    wire.STATUS_LEASED: MessageStatus.LEASED,
}
SELECTED = {wire.STATUS_ANY: None, **STATUSES}
Reply = TypeVar("Reply")
STATUS_NUMBERS = {status: number for number, status in STATUSES.items()}


class TimelineService(generated.TimelineServiceServicer):
    """The calls of the schema."""

    def __init__(self, broker: BrokerNode, dispatcher: Dispatcher, hints: MoveHints) -> None:
        self._broker = broker
        self._hints = hints
        self._dispatcher = dispatcher
        self._tracer = None if broker.tracer is None else broker.tracer.timelines
        self._throttle = ProducerThrottle(broker.security.failing_producers, ProducerThrottled)
        self._sessions = ClientSessions(lambda: secrets.token_hex(16))
        self._counts = ChannelCounts(broker.metrics)
        broker.loads.producers = self._sessions.producers_by_timeline
        broker.metrics.sources.append(self._counts.readings(self._sessions.producers))

    async def Handshake(self, request: wire.HandshakeRequest, call: GrpcCall) -> wire.HandshakeReply:  # noqa: N802
        """Open a session for a producer or a consumer."""
        if request.role == wire.ROLE_PRODUCER:
            return await answered(call, lambda: self._throttle.watched(call, lambda: self._handshake(request, call)))
        return await answered(call, lambda: self._handshake(request, call))

    async def _handshake(self, request: wire.HandshakeRequest, call: GrpcCall) -> wire.HandshakeReply:
        received_us = self._dispatcher.clock.wall_us()
        operation = Operation.READ if meaning("role", request.role, CONSUMES) else Operation.WRITE
        call.rights.check_topic(operation, resource_of(request.timeline))
        timeline = await self._dispatcher.find(request.timeline)
        limits = wire.Limits(
            schedule_messages_max=SCHEDULE_MESSAGES_MAX,
            body_bytes_max=timeline.settings.body_bytes_max,
            in_flight_max=IN_FLIGHT_MAX,
            operations_max=OPERATIONS_MAX,
        )
        return wire.HandshakeReply(
            session=self._sessions.open(call.caller.principal, request),
            now_ms=self._dispatcher.clock.now_ms(),
            timeline=self._info(timeline),
            limits=limits,
            clock=self._clock() or wire.ClockState(),
            received_us=received_us,
            answered_us=self._dispatcher.clock.wall_us(),
        )

    def _drifts(self) -> dict[str, float]:
        return clock_drifts(self._broker.clock, self._dispatcher.guard)

    def _clock(self) -> wire.ClockState | None:
        """The state of the broker's clock for a producer; None while there is nothing to report."""
        reasons = self._dispatcher.guard.clock_reasons
        apart = {target: round(ms) for target, ms in self._drifts().items() if abs(ms) > DRIFT_MS_MAX}
        return clock_state(reasons, apart) if reasons or apart else None

    def _heard_producer(self, drift_us: int, call: GrpcCall) -> None:
        """Note how far the clock of a producer is ahead. A user has one voice, however many connections it opens."""
        client = str(call.caller.principal) if call.rights.are_checked else call.peer
        self._dispatcher.guard.witness(client, drift_us / 1_000, ClientKind.PRODUCER)

    async def CreateTimeline(self, request: wire.CreateTimelineRequest, call: GrpcCall) -> wire.TimelineInfo:  # noqa: N802
        """Create a timeline."""

        async def create() -> wire.TimelineInfo:
            call.rights.check_topic_or_cluster(Operation.CREATE, resource_of(request.name))
            settings = settings_from(request.settings)
            self._check_dead_letters(settings, call)
            refuse_kept(request.name)
            created = await self._dispatcher.create(request.name, settings)
            if created.is_new:
                call.rights.changed("timeline_created", timeline=request.name)
            info = self._info(created.timeline)
            info.created = created.is_new
            return info

        return await answered(call, create)

    async def AlterTimeline(self, request: wire.AlterTimelineRequest, call: GrpcCall) -> wire.TimelineInfo:  # noqa: N802
        """Change settings of a timeline."""

        async def alter() -> wire.TimelineInfo:
            call.rights.check_topic(Operation.ALTER_CONFIGS, resource_of(request.name))
            refuse_kept(request.name)
            settings = settings_from(request.settings, self._dispatcher.timeline(request.name).settings)
            self._check_dead_letters(settings, call)
            altered = await self._dispatcher.alter(request.name, settings)
            call.rights.changed("timeline_altered", timeline=request.name, settings=sorted(request.settings))
            return self._info(altered)

        return await answered(call, alter)

    def _check_dead_letters(self, settings: TimelineSettings, call: GrpcCall) -> None:
        """The broker writes dead letters, and creates what they need, so the client must have the right to do so."""
        kind, _, target = settings.dead_letter.partition(":")
        if not target:
            return
        call.rights.check_topic(Operation.WRITE, resource_of(target))
        timelines = {each.name for each in self._dispatcher.timelines()}
        exists = target in timelines if kind == "timeline" else self._broker.view.topic(target) is not None
        if not exists:
            call.rights.check_topic_or_cluster(Operation.CREATE, target)

    async def DeleteTimeline(self, request: wire.DeleteTimelineRequest, call: GrpcCall) -> wire.DeleteTimelineReply:  # noqa: N802
        """Delete a timeline."""

        async def delete() -> None:
            call.rights.check_topic(Operation.DELETE, resource_of(request.name))
            refuse_kept(request.name)
            await self._dispatcher.delete(request.name)
            call.rights.changed("timeline_deleted", timeline=request.name)

        await answered(call, delete)
        return wire.DeleteTimelineReply()

    async def DescribeTimeline(self, request: wire.DescribeTimelineRequest, call: GrpcCall) -> wire.TimelineInfo:  # noqa: N802
        """Return a timeline's state and settings."""

        async def describe() -> wire.TimelineInfo:
            call.rights.check_topic(Operation.DESCRIBE, resource_of(request.name))
            return self._info(await self._dispatcher.find(request.name))

        return await answered(call, describe)

    async def ListTimelines(self, _: wire.ListTimelinesRequest, call: GrpcCall) -> wire.ListTimelinesReply:  # noqa: N802
        """List all timelines."""
        found = self._dispatcher.timelines()
        allows = call.rights.allows
        described = [one for one in found if allows(Operation.DESCRIBE, ResourceType.TOPIC, resource_of(one.name))]
        return wire.ListTimelinesReply(timelines=[self._info(one) for one in described])

    def _info(self, timeline: TimelineInfo) -> wire.TimelineInfo:
        return wire.TimelineInfo(
            name=timeline.name,
            state=timeline.state.value,
            settings=settings_to(timeline.settings),
            consumers=self._dispatcher.attending(timeline.name),
            delivery=self._dispatcher.circuit_state(timeline.name).value,
            delivery_reason=self._dispatcher.stopped_reason(timeline.name),
        )

    async def Schedule(self, request: wire.ScheduleRequest, call: GrpcCall) -> wire.ScheduleReply:  # noqa: N802
        """Schedule messages."""
        return await self._of_producer(
            call, lambda: self._throttle.watched(call, lambda: self._schedule(request, call))
        )

    async def _of_producer(self, call: GrpcCall, work: Callable[[], Awaitable[Reply]]) -> Reply:
        async def counted() -> Reply:
            with self._counts.failures(PRODUCER):
                return await work()

        return await answered(call, counted)

    def _producer(self, session_id: str, call: GrpcCall) -> ClientSession:
        """The session of a producer, if it is the client's and the client may still write."""
        session = self._sessions.producer(call.caller.principal, session_id)
        call.rights.check_topic(Operation.WRITE, resource_of(session.timeline))
        return session

    async def _schedule(self, request: wire.ScheduleRequest, call: GrpcCall) -> wire.ScheduleReply:
        session = self._producer(request.session, call)
        refuse_kept(session.timeline)
        _check_length(len(request.messages), SCHEDULE_MESSAGES_MAX)
        if request.HasField("measured"):
            self._heard_producer(request.measured.drift_us, call)
        wanted = [
            ScheduleRequest(
                one.body,
                one.due_ms,
                one.id,
                one.key if one.HasField("key") else None,
                _recurrence(one.recurrence) if one.HasField("recurrence") else None,
            )
            for one in request.messages
        ]
        tracer = self._tracer
        started_ns = 0 if tracer is None else tracer.now_ns()
        kept = await self._dispatcher.schedule(session.timeline, wanted, group=session.group)
        if tracer is not None:
            new = [one.id for one in kept if not one.duplicate]
            tracer.scheduled(session.timeline, call.trace_context(), new, started_ns)
        outcomes = [wire.Outcome(id=one.id, until_ms=one.scheduled_ms, changed=not one.duplicate) for one in kept]
        return wire.ScheduleReply(outcomes=outcomes, clock=self._clock())

    async def Cancel(self, request: wire.CancelRequest, call: GrpcCall) -> wire.OutcomesReply:  # noqa: N802
        """Cancel messages."""

        async def cancel() -> wire.OutcomesReply:
            session = self._producer(request.session, call)
            refuse_followed(session.timeline)
            _check_length(len(request.ids), IDS_MAX)
            outcomes = await self._dispatcher.cancel(session.timeline, request.ids, group=session.group)
            self._counts.rejected("Cancel", outcomes)
            return _outcomes(request.ids, outcomes)

        return await self._of_producer(call, cancel)

    async def Move(self, request: wire.MoveRequest, call: GrpcCall) -> wire.OutcomesReply:  # noqa: N802
        """Change the due times of messages."""

        async def move() -> wire.OutcomesReply:
            session = self._producer(request.session, call)
            refuse_followed(session.timeline)
            _check_length(len(request.ids), IDS_MAX)
            outcomes = await self._dispatcher.move(session.timeline, request.ids, request.due_ms, group=session.group)
            self._counts.rejected("Move", outcomes)
            return _outcomes(request.ids, outcomes)

        return await self._of_producer(call, move)

    async def Work(self, requests: AsyncIterator[wire.WorkUp], call: GrpcCall) -> AsyncIterator[wire.WorkDown]:  # noqa: N802
        """Lease messages as they fall due."""
        stream = work(
            self._dispatcher, self._sessions, requests, call, self._counts, self._hints, self._tracer, self._drifts
        )
        try:
            with self._counts.failures(CONSUMER):
                async with aclosing(stream) as downs:
                    async for down in downs:
                        yield down
        except TidemillError as error:
            await refuse(call, error)

    async def Count(self, request: wire.CountRequest, call: GrpcCall) -> wire.CountReply:  # noqa: N802
        """Count messages."""

        async def count() -> wire.CountReply:
            call.rights.check_topic(Operation.DESCRIBE, resource_of(request.timeline))
            selection = _selection(request.from_ms, request.to_ms, request.status)
            return wire.CountReply(count=await self._dispatcher.count(request.timeline, selection))

        return await answered(call, count)

    async def ListMessages(self, request: wire.ListMessagesRequest, call: GrpcCall) -> wire.ListMessagesReply:  # noqa: N802
        """List the first messages, by due time."""

        async def list_messages() -> wire.ListMessagesReply:
            call.rights.check_topic(Operation.READ, resource_of(request.timeline))
            selection = _selection(request.from_ms, request.to_ms, request.status)
            limit = min(max(1, request.limit), LIST_MESSAGES_MAX)
            heads = await self._dispatcher.messages(request.timeline, selection, limit, bodies=False)
            found = await self._dispatcher.messages(request.timeline, selection, _fitting(heads))
            now_ms = self._dispatcher.clock.now_ms()
            return wire.ListMessagesReply(messages=[_listed(one, now_ms) for one in found])

        return await answered(call, list_messages)

    async def Histogram(self, request: wire.HistogramRequest, call: GrpcCall) -> wire.HistogramReply:  # noqa: N802
        """Count messages by due time."""

        async def histogram() -> wire.HistogramReply:
            call.rights.check_topic(Operation.DESCRIBE, resource_of(request.timeline))
            selection = _selection(request.from_ms, request.to_ms, request.status)
            if selection.start_ms >= selection.end_ms:
                raise BadDueTime("the histogram ends before it starts; the first time must be earlier than the second")
            counts = await self._dispatcher.histogram(request.timeline, selection, request.buckets)
            return wire.HistogramReply(from_ms=selection.start_ms, to_ms=selection.end_ms, counts=counts)

        return await answered(call, histogram)

    async def Ping(self, request: wire.PingRequest, call: GrpcCall) -> wire.PingReply:  # noqa: N802
        """Return four timestamps: two of the broker, two of the caller."""
        received_us = self._dispatcher.clock.wall_us()
        if request.measured:
            self._heard_producer(request.drift_us, call)
        return wire.PingReply(
            sent_us=request.sent_us,
            received_us=received_us,
            answered_us=self._dispatcher.clock.wall_us(),
            state=self._dispatcher.guard.state.value,
        )


def _fitting(heads: Sequence[TimedMessage]) -> int:
    """Return how many of the messages fit into one answer with their bodies, from the first on; at least one."""
    sizes = accumulate(message.size for message in heads)
    return max(1, sum(size <= LIST_BYTES_MAX for size in sizes))


def _check_length(length: int, limit: int) -> None:
    if length > limit:
        raise BatchTooLarge(f"the call has {length} entries; the limit is {limit}")


def _selection(from_ms: int, to_ms: int, status: wire.Status) -> Selection:
    end_ms = to_ms or DUE_MS_MAX + 1
    check_due(from_ms)
    check_due(end_ms - 1)
    return Selection(start_ms=from_ms, end_ms=max(from_ms, end_ms), status=meaning("status", status, SELECTED))


def _outcomes(ids: Iterable[str], outcomes: Iterable[CommandOutcome]) -> wire.OutcomesReply:
    return wire.OutcomesReply(outcomes=[_outcome(*one) for one in zip(ids, outcomes, strict=True)])


def _outcome(message_id: str, outcome: CommandOutcome) -> wire.Outcome:
    error = error_of(outcome)
    if error is None:
        return wire.Outcome(id=message_id, changed=True)
    return wire.Outcome(id=message_id, error=type(error).__name__, reason=str(error))


def _recurrence(given: wire.Recurrence) -> Recurrence:
    return Recurrence(
        cron=given.cron,
        zone=given.zone or UTC_NAME,
        every_ms=given.every_ms,
        missed=missed_policy(given.missed),
        until_ms=given.until_ms,
        left=given.count,
    )


def _rule_of(message: TimedMessage) -> wire.Recurrence | None:
    if not message.recurrence:
        return None
    rule = recurrence_from(message.recurrence)
    return wire.Recurrence(
        cron=rule.cron,
        zone=rule.zone,
        every_ms=rule.every_ms,
        missed=rule.missed.value,
        until_ms=rule.until_ms,
        count=rule.left,
    )


def _listed(message: TimedMessage, now_ms: int) -> wire.ListedMessage:
    status = status_of(message.due_ms, message.holder, now_ms)
    return wire.ListedMessage(
        id=message.id,
        due_ms=message.due_ms if status is not MessageStatus.LEASED else message.scheduled_ms,
        status=STATUS_NUMBERS[status],
        attempts=message.attempts,
        key=message.key,
        body=message.body or b"",
        holder=message.holder or "",
        position_ms=message.due_ms,
        seq=message.seq,
        group=message.group,
        recurrence=_rule_of(message),
    )
