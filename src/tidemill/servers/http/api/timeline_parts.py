"""What one broker knows about its timelines, for the pages of all brokers.

The rights are those of `servers/grpc/timeline_service.py`: DESCRIBE for counts and settings, READ for messages.
"""

import time
from collections.abc import Sequence
from typing import Any

from tidemill.broker.broker import BrokerNode
from tidemill.model.timeline_errors import TimelineError
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.timelines.consumer import US_PER_MS, TimelineConsumer
from tidemill.timelines.core.message import DUE_MS_MAX, MessageStatus, Selection
from tidemill.timelines.core.timeline import TIMELINE, TimelineInfo, resource_of
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.lifecycle import settings_to
from tidemill.wire.http.timeline_parts import (
    FutureAsked,
    MessageCounts,
    TimelineAsked,
    TimelineCountsAsked,
    TimelineCountsHere,
    TimelineDetail,
    TimelineEntry,
    TimelineMembersHere,
    TimelinesAsked,
    TimelinesHere,
)
from tidemill.wire.http.timelines import FutureView, TimelineMember

END_MS = DUE_MS_MAX + 1
LATE_MS = 1_000
"""A message that is available for so long is late."""
COUNTED_MAX = 1_500_000
"""The messages that a list of timelines counts for one of them."""
COUNTING_S = 0.15
"""A list of timelines stops counting after this time; the others are shown without numbers."""
SPAN_MS_MIN = 60_000


def dispatcher_of(broker: BrokerNode) -> Dispatcher:
    """The timelines of this broker."""
    if broker.timelines is None:
        raise ApiProblem(503, f"broker {broker.node_id} has no timelines; start it with --timelines")
    return broker.timelines


def describes(rights: ClientRights, timeline: str) -> bool:
    """Whether the client may see the timeline."""
    return rights.allows(Operation.DESCRIBE, ResourceType.TOPIC, resource_of(timeline))


def sources_of(dispatcher: Dispatcher, timeline: str) -> list[str]:
    """The timelines whose dead letters come to this one."""
    return [one.name for one in dispatcher.timelines() if one.settings.dead_letter == TIMELINE + timeline]


async def _timelines_here(broker: BrokerNode, rights: ClientRights, asked: TimelinesAsked) -> TimelinesHere:
    dispatcher = broker.timelines
    if dispatcher is None:
        return TimelinesHere(is_on=False, is_shared=False, timelines=[])
    found = [one for one in dispatcher.timelines() if asked.timeline in {None, one.name}]
    return TimelinesHere(
        is_on=True,
        is_shared=dispatcher.is_shared,
        timelines=[_entry(dispatcher, one) for one in found if describes(rights, one.name)],
    )


def _entry(dispatcher: Dispatcher, timeline: TimelineInfo) -> TimelineEntry:
    return TimelineEntry(
        timeline=timeline.name,
        state=timeline.state.value,
        consumers=len(dispatcher.consumers(timeline.name)),
        lease_ms=timeline.settings.lease_ms,
    )


async def _counts_here(broker: BrokerNode, rights: ClientRights, asked: TimelineCountsAsked) -> TimelineCountsHere:
    dispatcher, started_s = dispatcher_of(broker), time.monotonic()
    known = {one.name for one in dispatcher.timelines()}
    counts = {}
    for name in asked.timelines:
        if time.monotonic() - started_s > COUNTING_S:
            break
        if name in known and describes(rights, name):
            counts[name] = await _bounded_counts(dispatcher, name)
    return TimelineCountsHere(counts={name: found for name, found in counts.items() if found is not None})


async def _bounded_counts(dispatcher: Dispatcher, name: str) -> MessageCounts | None:
    """The counts, unless there are so many messages that counting takes long, or the timeline is not usable."""
    try:
        found = [await dispatcher.count_up_to(name, Selection(status=each), COUNTED_MAX) for each in MessageStatus]
    except TimelineError:
        return None
    if max(found) == COUNTED_MAX:
        return None
    return MessageCounts(waiting=found[0], available=found[1], leased=found[2])


async def _detail_here(broker: BrokerNode, rights: ClientRights, asked: TimelineAsked) -> TimelineDetail:
    dispatcher, name = dispatcher_of(broker), asked.timeline
    rights.check_topic(Operation.DESCRIBE, resource_of(name))
    info = await dispatcher.find(name)
    counts = [await _count(dispatcher, name, END_MS, each) for each in MessageStatus]
    span = await dispatcher.span(name)
    now_ms = dispatcher.clock.now_ms()
    late_before_ms = (now_ms - LATE_MS) // LATE_MS * LATE_MS
    health = dispatcher.health()
    sees_health = rights.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return TimelineDetail(
        settings=settings_to(info.settings),
        counts=MessageCounts(waiting=counts[0], available=counts[1], leased=counts[2]),
        late=await _count(dispatcher, name, late_before_ms, MessageStatus.AVAILABLE) if late_before_ms > 0 else 0,
        first_due_ms=None if span is None else span.first_ms,
        last_due_ms=None if span is None else span.last_ms,
        now_ms=now_ms,
        dead_letters=await _dead_letters(dispatcher, rights, info),
        dead_letters_of=[each for each in sources_of(dispatcher, name) if describes(rights, each)],
        health=health.state.value,
        health_reasons=list(health.reasons) if sees_health else [],
    )


async def _dead_letters(dispatcher: Dispatcher, rights: ClientRights, info: TimelineInfo) -> int | None:
    target = info.settings.dead_letter.removeprefix(TIMELINE)
    known = {one.name for one in dispatcher.timelines()}
    if not info.settings.dead_letter.startswith(TIMELINE) or target not in known or not describes(rights, target):
        return None
    try:
        return await _count(dispatcher, target, END_MS, None)
    except TimelineError:
        return None


async def _count(dispatcher: Dispatcher, name: str, end_ms: int, status: MessageStatus | None) -> int:
    return sum((await dispatcher.future_histogram(name, 0, end_ms, bars=1, status=status)).counts)


async def _members_here(broker: BrokerNode, rights: ClientRights, asked: TimelineAsked) -> TimelineMembersHere:
    dispatcher, name = broker.timelines, asked.timeline
    rights.check_topic(Operation.DESCRIBE, resource_of(name))
    if dispatcher is None:
        return TimelineMembersHere(members=[], totals={})
    shares, now_ms = dispatcher.shares(name), dispatcher.clock.now_ms()
    default_ms = {one.name: one.settings.lease_ms for one in dispatcher.timelines()}.get(name, 0)
    stats = dispatcher.stats.get(name)
    return TimelineMembersHere(
        members=[
            TimelineMember(
                consumer=each.id,
                broker=broker.node_id,
                rack=each.terms.rack,
                share=round(shares.get(each.id, 0.0), 4),
                leased=len(each.held),
                max_in_flight=each.terms.max_in_flight,
                lease_ms=each.terms.lease_ms or default_ms,
                latency_ms=round(each.latency_us / US_PER_MS, 1),
                state=_state_of(each, now_ms),
            )
            for each in dispatcher.consumers(name)
        ],
        totals={} if stats is None else dict(stats.messages),
        delivery=dispatcher.circuit_state(name).value,
        delivery_reason=dispatcher.stopped_reason(name),
    )


def _state_of(consumer: TimelineConsumer, now_ms: int) -> Any:
    if consumer.silent(now_ms):
        return "silent"
    if consumer.busy:
        return "paused"
    if not consumer.dealt_in:
        return "stalled"
    return "ready" if consumer.capacity() else "full"


async def _future_here(broker: BrokerNode, rights: ClientRights, asked: FutureAsked) -> FutureView:
    dispatcher, name, query = dispatcher_of(broker), asked.timeline, asked.query
    rights.check_topic(Operation.DESCRIBE, resource_of(name))
    await dispatcher.find(name)
    now_ms = dispatcher.clock.now_ms()
    from_ms, to_ms = query.from_ms, query.to_ms
    if from_ms is None or to_ms is None:
        span = await dispatcher.span(name)
        first_ms, last_ms = (now_ms, now_ms) if span is None else span
        from_ms = min(first_ms, now_ms) if from_ms is None else from_ms
        to_ms = max(last_ms + 1, from_ms + SPAN_MS_MIN) if to_ms is None else to_ms
    to_ms = min(to_ms, END_MS)
    status = None if query.status is None else MessageStatus(query.status)
    found = await dispatcher.future_histogram(name, from_ms, to_ms, bars=query.bars, status=status)
    return FutureView(
        from_ms=from_ms,
        to_ms=to_ms,
        width_ms=found.width_ms,
        counts=list(found.counts),
        bar_max=found.bar_max,
        total=sum(found.counts),
        now_ms=now_ms,
    )


TIMELINES = PartKind("timelines", TimelinesAsked, TimelinesHere, _timelines_here)
TIMELINE_COUNTS = PartKind("timeline-counts", TimelineCountsAsked, TimelineCountsHere, _counts_here)
TIMELINE_DETAIL = PartKind("timeline-detail", TimelineAsked, TimelineDetail, _detail_here)
TIMELINE_MEMBERS = PartKind("timeline-members", TimelineAsked, TimelineMembersHere, _members_here)
TIMELINE_FUTURE = PartKind("timeline-future", FutureAsked, FutureView, _future_here)
PARTS: Sequence[PartKind[Any, Any]] = (
    TIMELINES,
    TIMELINE_COUNTS,
    TIMELINE_DETAIL,
    TIMELINE_MEMBERS,
    TIMELINE_FUTURE,
)
