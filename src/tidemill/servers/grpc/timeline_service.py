"""TimelineService: each call turned into one question to the dispatcher, and its answer into messages.

Names of methods are those of the schema. Nothing is decided here; the limits of a request are checked before
anything is asked.
"""

import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from itertools import accumulate
from typing import Any

from tidemill.model.timeline_errors import BadDueTime, BatchTooLarge, TimelineError
from tidemill.servers.grpc.client_sessions import ClientSessions
from tidemill.servers.grpc.error_status import answered, meaning, refuse
from tidemill.servers.grpc.work_stream import OPERATIONS_MAX, work
from tidemill.timelines.consumer import IN_FLIGHT_MAX
from tidemill.timelines.core.lease import CommandOutcome, error_of
from tidemill.timelines.core.message import DUE_MS_MAX, MessageStatus, Selection, TimedMessage, check_due, status_of
from tidemill.timelines.core.timeline import TimelineInfo, refuse_followed, refuse_kept
from tidemill.timelines.dispatcher import Dispatcher, ScheduleRequest
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
STATUS_NUMBERS = {status: number for number, status in STATUSES.items()}


class TimelineService(generated.TimelineServiceServicer):
    """The calls of the schema."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._sessions = ClientSessions(lambda: secrets.token_hex(16))

    async def Handshake(self, request: wire.HandshakeRequest, context: Any) -> wire.HandshakeReply:  # noqa: N802
        """Introduce a producer or a consumer."""
        return await answered(context, lambda: self._handshake(request))

    async def _handshake(self, request: wire.HandshakeRequest) -> wire.HandshakeReply:
        timeline = await self._dispatcher.find(request.timeline)
        limits = wire.Limits(
            schedule_messages_max=SCHEDULE_MESSAGES_MAX,
            body_bytes_max=timeline.settings.body_bytes_max,
            in_flight_max=IN_FLIGHT_MAX,
            operations_max=OPERATIONS_MAX,
        )
        return wire.HandshakeReply(
            session=self._sessions.open(request),
            now_ms=self._dispatcher.clock.now_ms(),
            timeline=self._info(timeline),
            limits=limits,
        )

    async def CreateTimeline(self, request: wire.CreateTimelineRequest, context: Any) -> wire.TimelineInfo:  # noqa: N802
        """Create a timeline."""

        async def create() -> wire.TimelineInfo:
            settings = settings_from(request.settings)
            refuse_kept(request.name)
            created = await self._dispatcher.create(request.name, settings)
            info = self._info(created.timeline)
            info.created = created.is_new
            return info

        return await answered(context, create)

    async def AlterTimeline(self, request: wire.AlterTimelineRequest, context: Any) -> wire.TimelineInfo:  # noqa: N802
        """Change settings of a timeline."""

        async def alter() -> wire.TimelineInfo:
            refuse_kept(request.name)
            base = self._dispatcher.timeline(request.name).settings
            return self._info(await self._dispatcher.alter(request.name, settings_from(request.settings, base)))

        return await answered(context, alter)

    async def DeleteTimeline(self, request: wire.DeleteTimelineRequest, context: Any) -> wire.DeleteTimelineReply:  # noqa: N802
        """Delete a timeline."""

        async def delete() -> None:
            refuse_kept(request.name)
            await self._dispatcher.delete(request.name)

        await answered(context, delete)
        return wire.DeleteTimelineReply()

    async def DescribeTimeline(self, request: wire.DescribeTimelineRequest, context: Any) -> wire.TimelineInfo:  # noqa: N802
        """A timeline's state and settings."""

        async def describe() -> wire.TimelineInfo:
            return self._info(await self._dispatcher.find(request.name))

        return await answered(context, describe)

    async def ListTimelines(self, _: wire.ListTimelinesRequest, __: Any) -> wire.ListTimelinesReply:  # noqa: N802
        """All timelines."""
        return wire.ListTimelinesReply(timelines=[self._info(one) for one in self._dispatcher.timelines()])

    def _info(self, timeline: TimelineInfo) -> wire.TimelineInfo:
        return wire.TimelineInfo(
            name=timeline.name,
            state=timeline.state.value,
            settings=settings_to(timeline.settings),
            consumers=self._dispatcher.attending(timeline.name),
        )

    async def Schedule(self, request: wire.ScheduleRequest, context: Any) -> wire.ScheduleReply:  # noqa: N802
        """Keep messages for later."""
        return await answered(context, lambda: self._schedule(request))

    async def _schedule(self, request: wire.ScheduleRequest) -> wire.ScheduleReply:
        session = self._sessions.producer(request.session)
        refuse_kept(session.timeline)
        _check_length(len(request.messages), SCHEDULE_MESSAGES_MAX)
        wanted = [
            ScheduleRequest(one.body, one.due_ms, one.id, one.key if one.HasField("key") else None)
            for one in request.messages
        ]
        kept = await self._dispatcher.schedule(session.timeline, wanted, group=session.group)
        outcomes = [wire.Outcome(id=one.id, until_ms=one.scheduled_ms, changed=not one.duplicate) for one in kept]
        return wire.ScheduleReply(outcomes=outcomes)

    async def Cancel(self, request: wire.CancelRequest, context: Any) -> wire.OutcomesReply:  # noqa: N802
        """Take messages back."""

        async def cancel() -> wire.OutcomesReply:
            session = self._sessions.producer(request.session)
            refuse_followed(session.timeline)
            _check_length(len(request.ids), IDS_MAX)
            return _outcomes(
                request.ids, await self._dispatcher.cancel(session.timeline, request.ids, group=session.group)
            )

        return await answered(context, cancel)

    async def Move(self, request: wire.MoveRequest, context: Any) -> wire.OutcomesReply:  # noqa: N802
        """Give messages another due time."""

        async def move() -> wire.OutcomesReply:
            session = self._sessions.producer(request.session)
            refuse_followed(session.timeline)
            _check_length(len(request.ids), IDS_MAX)
            outcomes = await self._dispatcher.move(session.timeline, request.ids, request.due_ms, group=session.group)
            return _outcomes(request.ids, outcomes)

        return await answered(context, move)

    async def Work(self, requests: AsyncIterator[wire.WorkUp], context: Any) -> AsyncIterator[wire.WorkDown]:  # noqa: N802
        """Lease messages as they fall due."""
        try:
            async with aclosing(work(self._dispatcher, self._sessions, requests)) as downs:
                async for down in downs:
                    yield down
        except TimelineError as error:
            await refuse(context, error)

    async def Count(self, request: wire.CountRequest, context: Any) -> wire.CountReply:  # noqa: N802
        """How many messages there are."""

        async def count() -> wire.CountReply:
            selection = _selection(request.from_ms, request.to_ms, request.status)
            return wire.CountReply(count=await self._dispatcher.count(request.timeline, selection))

        return await answered(context, count)

    async def ListMessages(self, request: wire.ListMessagesRequest, context: Any) -> wire.ListMessagesReply:  # noqa: N802
        """The first messages, by due time."""

        async def list_messages() -> wire.ListMessagesReply:
            selection = _selection(request.from_ms, request.to_ms, request.status)
            limit = min(max(1, request.limit), LIST_MESSAGES_MAX)
            heads = await self._dispatcher.messages(request.timeline, selection, limit, bodies=False)
            found = await self._dispatcher.messages(request.timeline, selection, _fitting(heads))
            now_ms = self._dispatcher.clock.now_ms()
            return wire.ListMessagesReply(messages=[_listed(one, now_ms) for one in found])

        return await answered(context, list_messages)

    async def Histogram(self, request: wire.HistogramRequest, context: Any) -> wire.HistogramReply:  # noqa: N802
        """How many messages are due when."""

        async def histogram() -> wire.HistogramReply:
            selection = _selection(request.from_ms, request.to_ms, request.status)
            if selection.start_ms >= selection.end_ms:
                raise BadDueTime("a histogram ends after it begins: the first time is earlier than the second")
            counts = await self._dispatcher.histogram(request.timeline, selection, request.buckets)
            return wire.HistogramReply(from_ms=selection.start_ms, to_ms=selection.end_ms, counts=counts)

        return await answered(context, histogram)

    async def Ping(self, request: wire.PingRequest, context: Any) -> wire.PingReply:  # noqa: N802
        """Four time stamps: two here, two at the caller."""
        received_us = self._dispatcher.clock.wall_us()
        if request.measured:
            self._dispatcher.guard.witness(context.peer(), request.drift_us / 1_000)
        return wire.PingReply(
            sent_us=request.sent_us,
            received_us=received_us,
            answered_us=self._dispatcher.clock.wall_us(),
            state=self._dispatcher.guard.state.value,
        )


def _fitting(heads: Sequence[TimedMessage]) -> int:
    """How many of the messages, from the first on, fit into one answer with their bodies; at least one."""
    sizes = accumulate(message.size for message in heads)
    return max(1, sum(size <= LIST_BYTES_MAX for size in sizes))


def _check_length(length: int, limit: int) -> None:
    if length > limit:
        raise BatchTooLarge(f"{length} entries in one call; at most {limit}")


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
    )
