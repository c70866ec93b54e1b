"""Timelines in the JSON API.

Brokers with PostgreSQL share their timelines; other brokers have timelines of their own, also of one name. A request
goes to the broker that has the timeline: this one if it shares it, otherwise the broker that the request names, or the
one with the lowest number.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from tidemill.client.kafka.client import KafkaClient
from tidemill.model.errors import KafkaError
from tidemill.model.timeline_errors import UnknownTimeline
from tidemill.model.topics import TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.scheduling.core.delivery_headers import CANCEL
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation
from tidemill.servers.http.api import timeline_changes as changes
from tidemill.servers.http.api import timeline_messages as reads
from tidemill.servers.http.api import timeline_parts as parts
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.paging import rows_of
from tidemill.timelines.core.timeline import SCHEDULE, TIMELINE, WAITING_PREFIX, resource_of
from tidemill.wire.http.timeline_parts import (
    CancelsAsked,
    FutureAsked,
    MessageAsked,
    MessageCounts,
    MessagesAsked,
    MovesAsked,
    ReleasesAsked,
    RetriesAsked,
    SettingsAsked,
    TimelineAsked,
    TimelineCountsAsked,
    TimelineEntry,
    TimelinesAsked,
    TimelinesHere,
)
from tidemill.wire.http.timelines import (
    ChangeOutcome,
    ChangeOutcomes,
    DeadLetterTarget,
    FutureQuery,
    FutureView,
    MessageIds,
    MessagePage,
    MessagesQuery,
    MessageView,
    MovesInput,
    RetriesInput,
    RetriesResult,
    TimelineCreated,
    TimelineInput,
    TimelinePage,
    TimelinePlace,
    TimelineQuery,
    TimelineRow,
    TimelineSettingsInput,
    TimelineView,
)

KEPT = (SCHEDULE, WAITING_PREFIX)


class TimelineOwner(NamedTuple):
    """Where a timeline is: the broker to ask, and all that have one of its name."""

    node_id: int
    is_shared: bool
    entry: TimelineEntry
    brokers: list[int]
    unreachable: list[int]

    @property
    def broker(self) -> int | None:
        """The only broker of the timeline; None when brokers share it."""
        return None if self.is_shared else self.node_id


def topic_of(timeline: str) -> str | None:
    """The topic whose scheduled records a timeline has."""
    return resource_of(timeline) if timeline.startswith(KEPT) else None


async def locate(context: ApiContext, rights: ClientRights, name: str, wanted: int | None) -> TimelineOwner:
    """Where the timeline is."""
    rights.check_topic(Operation.DESCRIBE, resource_of(name))
    gathered = await context.parts.gather(parts.TIMELINES, rights, TimelinesAsked(timeline=name))
    having = {node_id: part for node_id, part in gathered.parts.items() if part.timelines}
    shared = [node_id for node_id, part in having.items() if part.is_shared]
    if wanted is not None and wanted not in having:
        raise ApiProblem(404, f"broker {wanted} has no timeline {name!r}; leave the broker out to find it")
    if not having and gathered.unreachable:
        raise ApiProblem(503, f"timeline {name!r} may be on broker {gathered.unreachable[0]}, which does not answer")
    if not having:
        raise UnknownTimeline(f"there is no timeline {name!r}; create it with: tidemill timeline create {name}")
    own_id = context.broker.node_id
    node_id = wanted if wanted is not None else own_id if own_id in shared else min(having)
    return TimelineOwner(node_id, node_id in shared, having[node_id].timelines[0], sorted(having), gathered.unreachable)


async def list_timelines(context: ApiContext, call: ApiCall[TimelineQuery, None]) -> TimelinePage:
    """A page of the timelines that the client may describe."""
    gathered = await context.parts.gather(parts.TIMELINES, call.rights, TimelinesAsked())
    rows = [each for each in _rows(gathered.parts) if _is_wanted(each, call.query)]
    shown = rows_of(rows, call.query, _by_consumers if call.query.sort == "consumers" else _by_name)
    counts = await _counts(context, call.rights, shown, gathered.parts)
    return TimelinePage(
        timelines=[_counted(each, counts.get((each.broker, each.timeline))) for each in shown],
        total=len(rows),
        unreachable_brokers=gathered.unreachable,
        is_available=any(part.is_on for part in gathered.parts.values()),
    )


def _by_name(row: TimelineRow) -> Any:
    return row.timeline, row.broker or 0


def _by_consumers(row: TimelineRow) -> Any:
    return row.consumers, row.timeline, row.broker or 0


def _rows(found: Mapping[int, TimelinesHere]) -> list[TimelineRow]:
    """A row for each timeline; a shared one has the consumers of all its brokers."""
    entries: dict[tuple[int | None, str], list[TimelineEntry]] = {}
    for node_id, part in found.items():
        for each in part.timelines:
            entries.setdefault((None if part.is_shared else node_id, each.timeline), []).append(each)
    return [
        TimelineRow(
            timeline=name,
            state=same[0].state,
            broker=broker,
            topic=topic_of(name),
            consumers=sum(each.consumers for each in same),
            lease_ms=same[0].lease_ms,
        )
        for (broker, name), same in entries.items()
    ]


def _is_wanted(row: TimelineRow, query: TimelineQuery) -> bool:
    if query.kind != "all" and (row.topic is not None) != (query.kind == "scheduled"):
        return False
    return query.search in row.timeline


async def _counts(
    context: ApiContext, rights: ClientRights, rows: Sequence[TimelineRow], found: Mapping[int, TimelinesHere]
) -> dict[tuple[int | None, str], MessageCounts]:
    """The counts of these timelines, each from one broker that has it."""
    shared = [node_id for node_id, part in found.items() if part.is_shared]
    own_id = context.broker.node_id
    source = own_id if own_id in shared else min(shared, default=own_id)
    wanted: dict[int, list[str]] = {}
    for each in rows:
        wanted.setdefault(source if each.broker is None else each.broker, []).append(each.timeline)
    counts: dict[tuple[int | None, str], MessageCounts] = {}
    for node_id, names in wanted.items():
        try:
            part = await context.parts.at(node_id, parts.TIMELINE_COUNTS, rights, TimelineCountsAsked(timelines=names))
        except ApiProblem:  # the list is shown without these numbers
            continue
        broker = None if node_id in shared else node_id
        counts |= {(broker, name): each for name, each in part.counts.items()}
    return counts


def _counted(row: TimelineRow, counts: MessageCounts | None) -> TimelineRow:
    if counts is None:
        return row
    return msgspec.structs.replace(row, waiting=counts.waiting, available=counts.available, leased=counts.leased)


async def show_timeline(context: ApiContext, call: ApiCall[TimelinePlace, None]) -> TimelineView:
    """One timeline."""
    name = call.name()
    owner = await locate(context, call.rights, name, call.query.broker)
    asked = TimelineAsked(timeline=name)
    detail = await context.parts.at(owner.node_id, parts.TIMELINE_DETAIL, call.rights, asked)
    if owner.is_shared:
        gathered = await context.parts.gather(parts.TIMELINE_MEMBERS, call.rights, asked)
        here, unreachable = list(gathered.parts.values()), gathered.unreachable
    else:
        here, unreachable = [await context.parts.at(owner.node_id, parts.TIMELINE_MEMBERS, call.rights, asked)], []
    members = sorted((each for part in here for each in part.members), key=lambda each: (each.consumer, each.broker))
    return TimelineView(
        timeline=name,
        state=owner.entry.state,
        broker=owner.broker,
        topic=topic_of(name),
        consumers=len(members),
        lease_ms=owner.entry.lease_ms,
        waiting=detail.counts.waiting,
        available=detail.counts.available,
        leased=detail.counts.leased,
        settings=detail.settings,
        late=detail.late,
        first_due_ms=detail.first_due_ms,
        last_due_ms=detail.last_due_ms,
        now_ms=detail.now_ms,
        members=members,
        dead_letters=_dead_letters(detail.settings.get("dead_letter", ""), detail.dead_letters),
        dead_letters_of=tuple(detail.dead_letters_of),
        totals=_sum(part.totals for part in here),
        health=detail.health,
        health_reasons=tuple(detail.health_reasons),
        delivery=next((part.delivery for part in here if part.delivery_reason), "running"),
        delivery_reasons=tuple(part.delivery_reason for part in here if part.delivery_reason),
        brokers=tuple(owner.brokers),
        unreachable_brokers=tuple(unreachable),
    )


def _dead_letters(setting: str, messages: int | None) -> DeadLetterTarget | None:
    kind, _, target = setting.partition(":")
    if not target:
        return None
    return (
        DeadLetterTarget(timeline=target, messages=messages)
        if kind + ":" == TIMELINE
        else DeadLetterTarget(topic=target)
    )


def _sum(parts_: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts_:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))


async def create_timeline(context: ApiContext, call: ApiCall[None, TimelineInput]) -> TimelineCreated:
    """Create a timeline."""
    asked, given = SettingsAsked(timeline=call.body.timeline, settings=call.body.settings), call.body.broker
    if given is not None and given not in context.broker.view.image.brokers:
        raise ApiProblem(404, f"there is no broker {given} now; leave the broker out, or choose one of the cluster")
    node_id = given if given is not None else await _creator(context, call.rights)
    made = await context.parts.at(node_id, changes.TIMELINE_CREATION, call.rights, asked)
    return TimelineCreated(timeline=asked.timeline, broker=None if made.is_shared else node_id, created=made.is_new)


async def _creator(context: ApiContext, rights: ClientRights) -> int:
    """The broker that gets a new timeline: this one, if it has timelines."""
    if context.broker.timelines is not None:
        return context.broker.node_id
    gathered = await context.parts.gather(parts.TIMELINES, rights, TimelinesAsked(timeline=""))
    able = [node_id for node_id, part in gathered.parts.items() if part.is_on]
    if not able:
        raise ApiProblem(503, "no broker that answers has timelines; start one with --timelines sqlite:")
    return min(able)


async def alter_timeline(context: ApiContext, call: ApiCall[None, TimelineSettingsInput]) -> None:
    """Change settings of a timeline."""
    owner = await locate(context, call.rights, call.name(), call.body.broker)
    asked = SettingsAsked(timeline=call.name(), settings=call.body.settings)
    await context.parts.at(owner.node_id, changes.TIMELINE_ALTERATION, call.rights, asked)


async def delete_timeline(context: ApiContext, call: ApiCall[TimelinePlace, None]) -> None:
    """Delete a timeline and all its messages."""
    owner = await locate(context, call.rights, call.name(), call.query.broker)
    await context.parts.at(owner.node_id, changes.TIMELINE_DELETION, call.rights, TimelineAsked(timeline=call.name()))


async def show_future(context: ApiContext, call: ApiCall[FutureQuery, None]) -> FutureView:
    """The messages of a timeline by due time."""
    owner = await locate(context, call.rights, call.name(), call.query.broker)
    asked = FutureAsked(timeline=call.name(), query=call.query)
    return await context.parts.at(owner.node_id, parts.TIMELINE_FUTURE, call.rights, asked)


async def list_messages(context: ApiContext, call: ApiCall[MessagesQuery, None]) -> MessagePage:
    """A page of messages."""
    owner = await locate(context, call.rights, call.name(), call.query.broker)
    asked = MessagesAsked(timeline=call.name(), query=call.query)
    return await context.parts.at(owner.node_id, reads.TIMELINE_MESSAGES, call.rights, asked)


async def show_message(context: ApiContext, call: ApiCall[TimelinePlace, None]) -> MessageView:
    """One message."""
    owner = await locate(context, call.rights, call.name(), call.query.broker)
    asked = MessageAsked(timeline=call.name(), id=call.name("id"))
    found = await context.parts.at(owner.node_id, reads.TIMELINE_MESSAGE, call.rights, asked)
    return msgspec.structs.replace(found, broker=owner.broker)


async def download_body(context: ApiContext, call: ApiCall[TimelinePlace, None]) -> Response:
    """The body of a message as a file."""
    owner = await locate(context, call.rights, call.name(), call.query.broker)
    asked = MessageAsked(timeline=call.name(), id=call.name("id"))
    found = await context.parts.at(owner.node_id, reads.TIMELINE_BODY, call.rights, asked)
    headers = {"content-disposition": 'attachment; filename="message.bin"'}
    return Response(found.body, media_type="application/octet-stream", headers=headers)


async def cancel_messages(context: ApiContext, call: ApiCall[None, MessageIds]) -> ChangeOutcomes:
    """Cancel messages that no consumer holds."""
    name = call.name()
    if name.startswith(WAITING_PREFIX):
        return await _cancel_in_topic(context, call.rights, resource_of(name), call.body.ids)
    owner = await locate(context, call.rights, name, call.body.broker)
    asked = CancelsAsked(timeline=name, messages=call.body)
    return await context.parts.at(owner.node_id, changes.TIMELINE_CANCELS, call.rights, asked)


async def _cancel_in_topic(context: ApiContext, rights: ClientRights, topic: str, ids: Sequence[str]) -> ChangeOutcomes:
    """Cancel scheduled records whose timeline follows a replicated journal: as a producer does, with a record."""

    def work(client: KafkaClient) -> list[ChangeOutcome]:
        outcomes = []
        for one in dict.fromkeys(ids):
            batch = build_batch([NewRecord(None, None, ((CANCEL, one.encode()),))])
            try:
                client.produce(TopicPartition(topic, 0), batch)
            except KafkaError as error:
                outcomes.append(ChangeOutcome(id=one, error=str(error)))
            else:
                outcomes.append(ChangeOutcome(id=one))
        return outcomes

    return ChangeOutcomes(outcomes=await context.as_client(rights, work))


async def move_messages(context: ApiContext, call: ApiCall[None, MovesInput]) -> ChangeOutcomes:
    """Give messages another due time."""
    owner = await locate(context, call.rights, call.name(), call.body.broker)
    asked = MovesAsked(timeline=call.name(), moves=call.body)
    return await context.parts.at(owner.node_id, changes.TIMELINE_MOVES, call.rights, asked)


async def release_messages(context: ApiContext, call: ApiCall[None, MessageIds]) -> ChangeOutcomes:
    """End leases of consumers."""
    owner = await locate(context, call.rights, call.name(), call.body.broker)
    asked = ReleasesAsked(timeline=call.name(), messages=call.body)
    return await context.parts.at(owner.node_id, changes.TIMELINE_RELEASES, call.rights, asked)


async def retry_dead_letters(context: ApiContext, call: ApiCall[None, RetriesInput]) -> RetriesResult:
    """Return dead letters to the timelines where they come from."""
    owner = await locate(context, call.rights, call.name(), call.body.broker)
    asked = RetriesAsked(timeline=call.name(), retries=call.body)
    return await context.parts.at(owner.node_id, changes.TIMELINE_RETRIES, call.rights, asked)


HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/timelines": list_timelines,
    "POST /api/v1/timelines": create_timeline,
    "GET /api/v1/timelines/{name}": show_timeline,
    "PATCH /api/v1/timelines/{name}": alter_timeline,
    "DELETE /api/v1/timelines/{name}": delete_timeline,
    "GET /api/v1/timelines/{name}/future": show_future,
    "GET /api/v1/timelines/{name}/messages": list_messages,
    "GET /api/v1/timelines/{name}/messages/{id}": show_message,
    "GET /api/v1/timelines/{name}/messages/{id}/body": download_body,
    "POST /api/v1/timelines/{name}/cancellations": cancel_messages,
    "POST /api/v1/timelines/{name}/moves": move_messages,
    "POST /api/v1/timelines/{name}/releases": release_messages,
    "POST /api/v1/timelines/{name}/retries": retry_dead_letters,
}
PARTS: Sequence[PartKind[Any, Any]] = (*parts.PARTS, *reads.PARTS, *changes.PARTS)
