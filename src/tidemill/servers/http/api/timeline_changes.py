"""Changes of this broker's timelines, made for clients of all brokers.

The rights, and the timelines that only the broker itself changes, are those of `servers/grpc/timeline_service.py`. A
producer names its group in a request, so WRITE is enough to change the messages of any group, and the group of each
message is looked up here. To end a lease of a consumer needs ALTER on the cluster as well. Every change is audited.
"""

from collections.abc import Sequence
from typing import Any

from tidemill.broker.broker import BrokerNode
from tidemill.model.timeline_errors import TimelineError, UnknownTimeline
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.timeline_messages import (
    Origins,
    cursor_of,
    find_messages,
    position_of,
    selection_of,
)
from tidemill.servers.http.api.timeline_parts import dispatcher_of
from tidemill.timelines.core.lease import CommandOutcome, MoveToTimeline, dead_letter_origin, error_of
from tidemill.timelines.core.message import MessageStatus, Selection, TimedMessage, status_of
from tidemill.timelines.core.timeline import TimelineSettings, refuse_followed, refuse_kept, resource_of
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.lifecycle import settings_from
from tidemill.wire.http.timeline_parts import (
    CancelsAsked,
    MovesAsked,
    ReleasesAsked,
    RetriesAsked,
    SettingsAsked,
    TimelineAsked,
    TimelineChanged,
)
from tidemill.wire.http.timelines import (
    IDS_MAX,
    RETRIES_MAX,
    ChangeOutcome,
    ChangeOutcomes,
    RetriesResult,
)

IDS_AUDITED = 20
PREVIEWED_MAX = 10_000
NOT_LEASED = "no consumer holds it; it is delivered when it is due"
IS_LEASED = "a consumer holds it; release its lease first, or wait for its end"


async def _create_here(broker: BrokerNode, rights: ClientRights, asked: SettingsAsked) -> TimelineChanged:
    dispatcher, name = dispatcher_of(broker), asked.timeline
    rights.check_topic_or_cluster(Operation.CREATE, resource_of(name))
    settings = settings_from(asked.settings)
    _check_dead_letters(broker, dispatcher, rights, settings)
    refuse_kept(name)
    created = await dispatcher.create(name, settings)
    if created.is_new:
        rights.changed("timeline_created", timeline=name)
    return TimelineChanged(is_new=created.is_new, is_shared=dispatcher.is_shared)


async def _alter_here(broker: BrokerNode, rights: ClientRights, asked: SettingsAsked) -> TimelineChanged:
    dispatcher, name = dispatcher_of(broker), asked.timeline
    rights.check_topic(Operation.ALTER_CONFIGS, resource_of(name))
    refuse_kept(name)
    settings = settings_from(asked.settings, dispatcher.timeline(name).settings)
    _check_dead_letters(broker, dispatcher, rights, settings)
    await dispatcher.alter(name, settings)
    rights.changed("timeline_altered", timeline=name, settings=sorted(asked.settings))
    return TimelineChanged(is_shared=dispatcher.is_shared)


def _check_dead_letters(
    broker: BrokerNode, dispatcher: Dispatcher, rights: ClientRights, settings: TimelineSettings
) -> None:
    """The broker writes dead letters, and creates what they need, so the client must have the right to do so."""
    kind, _, target = settings.dead_letter.partition(":")
    if not target:
        return
    rights.check_topic(Operation.WRITE, resource_of(target))
    timelines = {each.name for each in dispatcher.timelines()}
    exists = target in timelines if kind == "timeline" else broker.view.topic(target) is not None
    if not exists:
        rights.check_topic_or_cluster(Operation.CREATE, target)


async def _delete_here(broker: BrokerNode, rights: ClientRights, asked: TimelineAsked) -> TimelineChanged:
    dispatcher, name = dispatcher_of(broker), asked.timeline
    rights.check_topic(Operation.DELETE, resource_of(name))
    refuse_kept(name)
    if name not in {each.name for each in dispatcher.timelines()}:
        raise UnknownTimeline(f"there is no timeline {name!r}")
    await dispatcher.delete(name)
    rights.changed("timeline_deleted", timeline=name)
    return TimelineChanged(is_shared=dispatcher.is_shared)


async def _cancel_here(broker: BrokerNode, rights: ClientRights, asked: CancelsAsked) -> ChangeOutcomes:
    dispatcher, name = dispatcher_of(broker), asked.timeline
    rights.check_topic(Operation.WRITE, resource_of(name))
    refuse_followed(name)
    outcomes = await _by_group(
        dispatcher, name, asked.messages.ids, lambda ids, group: dispatcher.cancel(name, ids, group=group)
    )
    _audit(rights, "timeline_messages_cancelled", name, outcomes)
    return outcomes


async def _move_here(broker: BrokerNode, rights: ClientRights, asked: MovesAsked) -> ChangeOutcomes:
    dispatcher, name, due_ms = dispatcher_of(broker), asked.timeline, asked.moves.due_ms
    rights.check_topic(Operation.WRITE, resource_of(name))
    refuse_followed(name)
    outcomes = await _by_group(
        dispatcher, name, asked.moves.ids, lambda ids, group: dispatcher.move(name, ids, due_ms, group=group)
    )
    _audit(rights, "timeline_messages_moved", name, outcomes, due_ms=due_ms)
    return outcomes


async def _by_group(dispatcher: Dispatcher, name: str, ids: Sequence[str], change: Any) -> ChangeOutcomes:
    """Make a change for each producer group among the messages."""
    found = await dispatcher.messages(name, Selection(ids=tuple(set(ids))), IDS_MAX, bodies=False)
    groups: dict[str, list[str]] = {}
    for message in found:
        groups.setdefault(message.group, []).append(message.id)
    outcomes: dict[str, CommandOutcome] = {}
    for group, members in groups.items():
        outcomes |= zip(members, await change(members, group), strict=True)
    return ChangeOutcomes(
        outcomes=[
            ChangeOutcome(id=one, error=_reason(outcomes.get(one, CommandOutcome.MISSING)))
            for one in dict.fromkeys(ids)
        ]
    )


def _reason(outcome: CommandOutcome) -> str | None:
    error = error_of(outcome)
    return None if error is None else str(error)


async def _release_here(broker: BrokerNode, rights: ClientRights, asked: ReleasesAsked) -> ChangeOutcomes:
    dispatcher, name, ids = dispatcher_of(broker), asked.timeline, asked.messages.ids
    rights.check_topic(Operation.READ, resource_of(name))
    rights.check(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    refuse_kept(name)
    found = await dispatcher.messages(name, Selection(ids=tuple(set(ids))), IDS_MAX, bodies=False)
    now_ms = dispatcher.clock.now_ms()
    leased = [one for one in found if status_of(one.due_ms, one.holder, now_ms) is MessageStatus.LEASED]
    results = await dispatcher.release(name, leased)
    reasons = {one.id: _settled_reason(result) for one, result in zip(leased, results, strict=True)}
    known = {one.id for one in found}
    outcomes = ChangeOutcomes(
        outcomes=[
            ChangeOutcome(
                id=one, error=reasons.get(one, NOT_LEASED if one in known else _reason(CommandOutcome.MISSING))
            )
            for one in dict.fromkeys(ids)
        ]
    )
    _audit(rights, "timeline_leases_released", name, outcomes)
    return outcomes


def _settled_reason(result: CommandOutcome | TimelineError) -> str | None:
    return str(result) if isinstance(result, TimelineError) else _reason(result)


def _audit(rights: ClientRights, what: str, timeline: str, outcomes: ChangeOutcomes, **fields: Any) -> None:
    changed = [one.id for one in outcomes.outcomes if one.error is None]
    if changed:
        rights.changed(what, timeline=timeline, messages=len(changed), ids=changed[:IDS_AUDITED], **fields)


async def _retry_here(broker: BrokerNode, rights: ClientRights, asked: RetriesAsked) -> RetriesResult:
    dispatcher, name, retries = dispatcher_of(broker), asked.timeline, asked.retries
    rights.check_topic(Operation.WRITE, resource_of(name))
    refuse_kept(name)
    await dispatcher.find(name)
    selection = selection_of(None, retries.from_ms, retries.to_ms)
    if retries.ids is not None:
        wanted = selection._replace(ids=tuple(dict.fromkeys(retries.ids)))
        found, following = await dispatcher.messages(name, wanted, RETRIES_MAX, bodies=False), None
    else:
        rows = PREVIEWED_MAX if retries.preview else RETRIES_MAX
        page = await find_messages(
            dispatcher, name, selection, retries.search, rows=rows, after=position_of(retries.after)
        )
        found, following = page.messages, cursor_of(page.next)
    back, reasons = _returning(dispatcher, rights, name, found)
    done = len(back)
    if back and not retries.preview:
        outcomes = await dispatcher.retry(name, back)
        done = outcomes.count(CommandOutcome.DONE)
        if done < len(back):
            reasons.add("some have changed meanwhile; try again")
        _audit_retries(rights, name, back, outcomes)
    return RetriesResult(retried=done, kept=len(found) - done, reasons=sorted(reasons), next=following)


def _returning(
    dispatcher: Dispatcher, rights: ClientRights, name: str, found: Sequence[TimedMessage]
) -> tuple[list[MoveToTimeline], set[str]]:
    """The commands that return dead letters, and why other messages stay."""
    origins, now_ms = Origins(dispatcher, name), dispatcher.clock.now_ms()
    may_write: dict[str, bool] = {}
    back: list[MoveToTimeline] = []
    reasons = set()
    for message in found:
        target = origins.of(message)
        if target is None:
            reasons.add(f"messages that come from no timeline with dead_letter timeline:{name} stay")
            continue
        if target not in may_write:
            denial = rights.denial(Operation.WRITE, ResourceType.TOPIC, resource_of(target))
            may_write[target] = denial is None
            reasons |= set() if denial is None else {str(denial)}
        status = status_of(message.due_ms, message.holder, now_ms)
        if not may_write[target]:
            continue
        if status is not MessageStatus.AVAILABLE:
            reasons.add(IS_LEASED if status is MessageStatus.LEASED else "messages that are not due yet stay")
            continue
        origin = dead_letter_origin(message.id)
        back.append(MoveToTimeline(message.seq, message.version, target, "" if origin is None else origin.id))
    return back, reasons


def _audit_retries(
    rights: ClientRights, name: str, back: Sequence[MoveToTimeline], outcomes: Sequence[CommandOutcome]
) -> None:
    for target in sorted({one.to for one in back}):
        count = sum(
            one.to == target and outcome is CommandOutcome.DONE for one, outcome in zip(back, outcomes, strict=True)
        )
        if count:
            rights.changed("timeline_dead_letters_retried", timeline=target, dead_letters=name, messages=count)


TIMELINE_CREATION = PartKind("timeline-create", SettingsAsked, TimelineChanged, _create_here)
TIMELINE_ALTERATION = PartKind("timeline-alter", SettingsAsked, TimelineChanged, _alter_here)
TIMELINE_DELETION = PartKind("timeline-delete", TimelineAsked, TimelineChanged, _delete_here)
TIMELINE_CANCELS = PartKind("timeline-cancel", CancelsAsked, ChangeOutcomes, _cancel_here)
TIMELINE_MOVES = PartKind("timeline-move", MovesAsked, ChangeOutcomes, _move_here)
TIMELINE_RELEASES = PartKind("timeline-release", ReleasesAsked, ChangeOutcomes, _release_here)
TIMELINE_RETRIES = PartKind("timeline-retry", RetriesAsked, RetriesResult, _retry_here)
PARTS: Sequence[PartKind[Any, Any]] = (
    TIMELINE_CREATION,
    TIMELINE_ALTERATION,
    TIMELINE_DELETION,
    TIMELINE_CANCELS,
    TIMELINE_MOVES,
    TIMELINE_RELEASES,
    TIMELINE_RETRIES,
)
