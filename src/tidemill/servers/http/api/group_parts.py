"""The parts of views of groups: what one broker knows about the groups that it coordinates.

A group is shown to clients that may DESCRIBE it, or the cluster, as ListGroups does. Topics that a client may not
DESCRIBE are left out, and their lag is not counted.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from heapq import nsmallest
from typing import Any, NamedTuple

from tidemill.broker.broker import BrokerNode
from tidemill.broker.group_lag import KnownLags
from tidemill.broker.loop_turns import LoopTurns
from tidemill.groups.core.group_details import GroupSummary
from tidemill.groups.core.lag import TopicLag
from tidemill.model.errors import CoordinatorLoadInProgress, GroupIdNotFound
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.wire.http.groups import (
    GroupRow,
    GroupsPart,
    GroupsQuestion,
    TopicGroupRow,
    TopicGroupsPart,
    TopicGroupsQuestion,
)

LAG_WAIT_S = 0.1
"""How long a list waits for a refresh of the lag. Then it shows the last known lag."""
TOPICS_SHOWN_MAX = 5
TOPIC_GROUPS_MAX = 500
UNKNOWN_LAG = -1
"""Sorts before every known lag."""


class GroupTotal(NamedTuple):
    """The lag of a group in all topics; None while it is not known."""

    records: int | None
    seconds: float | None


_NO_TOTAL = GroupTotal(None, None)


def describes_topics(rights: ClientRights) -> Callable[[str], bool]:
    """A function that says which topics a client may describe; it asks once for each topic."""
    return cache(lambda topic: rights.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic))


async def visible_groups(
    broker: BrokerNode, rights: ClientRights, turns: LoopTurns, group_ids: Iterable[str]
) -> list[GroupSummary]:
    """Those of some groups of this broker that a client may describe."""
    sees_all = rights.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return [
        summary
        async for group_id in turns.over(group_ids)
        if (sees_all or rights.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id))
        and (summary := broker.groups.summary(group_id)) is not None
    ]


async def totals(known: KnownLags, rights: ClientRights, turns: LoopTurns) -> dict[str, GroupTotal]:
    """The lag of each group in the topics that a client may describe."""
    describes, found = describes_topics(rights), dict[str, TopicLag]()
    async for (group, topic), lag in turns.over(known.by_pair.items()):
        if group not in known.unknown_groups and describes(topic):
            before = found.get(group)
            found[group] = lag if before is None else before.plus_topic(lag)
    return {group: GroupTotal(lag.records, lag.seconds) for group, lag in found.items()}


async def share_lags_here(
    broker: BrokerNode, describes: Callable[[str], bool], topic: str = ""
) -> defaultdict[str, int]:
    """The lag of share groups that this broker counts, in topics that a client may describe, or in one of them."""
    lags: defaultdict[str, int] = defaultdict(int)
    for each in await broker.share_positions.all():
        if each.counts_lag and each.lag is not None and topic in ("", each.topic) and describes(each.topic):
            lags[each.group_id] += each.lag
    return lags


async def _groups_here(broker: BrokerNode, rights: ClientRights, asked: GroupsQuestion) -> GroupsPart:
    turns = LoopTurns()
    known = await broker.group_lag.all(LAG_WAIT_S)
    lags = await totals(known, rights, turns)
    shares = await share_lags_here(broker, describes_topics(rights)) if asked.sort == "lag" else {}
    lags |= {group: GroupTotal(lag, None) for group, lag in shares.items()}
    try:
        visible = await visible_groups(broker, rights, turns, broker.groups.group_ids())
    except CoordinatorLoadInProgress:
        return GroupsPart(groups=[], total=0, states={}, is_loading=True)
    found = [each for each in visible if asked.search in each.group_id and asked.type in ("", each.kind)]
    states = Counter(str(each.state) for each in found)
    chosen = [each for each in found if asked.state in ("", each.state)]
    keys = {each.group_id: await _key(broker, each, asked.sort, lags, turns) for each in chosen}
    first = _first(chosen, asked, lambda each: (keys[each.group_id], each.group_id))
    describes = describes_topics(rights)
    rows = [_row(broker, each, lags, describes) async for each in turns.over(first)]
    return GroupsPart(groups=rows, total=len(chosen), states=dict(states), is_loading=False)


async def _key(
    broker: BrokerNode, group: GroupSummary, sort: str, lags: dict[str, GroupTotal], turns: LoopTurns
) -> Any:
    await turns.pause()
    if sort == "lag":
        records = lags.get(group.group_id, _NO_TOTAL).records
        return UNKNOWN_LAG if records is None else records
    if sort == "topics":
        return len(_topics(broker, group))
    if sort == "members":
        return group.members
    return {"type": group.kind, "state": str(group.state), "protocol": group.protocol_type}.get(
        sort, group.assignor if sort == "assignor" else ""
    )


def _first(chosen: list[GroupSummary], asked: GroupsQuestion, key: Callable[[GroupSummary], Any]) -> list[GroupSummary]:
    """The first rows in the order of the page."""
    if asked.limit >= len(chosen) or asked.descending:
        return sorted(chosen, key=key, reverse=asked.descending)[: asked.limit]
    return nsmallest(asked.limit, chosen, key)


def _row(
    broker: BrokerNode, group: GroupSummary, lags: dict[str, GroupTotal], describes: Callable[[str], bool]
) -> GroupRow:
    topics = sorted(topic for topic in _topics(broker, group) if describes(topic))
    total = lags.get(group.group_id, _NO_TOTAL)
    return GroupRow(
        group=group.group_id,
        type=group.kind,
        state=str(group.state),
        protocol=group.protocol_type,
        assignor=group.assignor,
        members=group.members,
        topics=topics[:TOPICS_SHOWN_MAX],
        topic_count=len(topics),
        lag=total.records,
        lag_s=total.seconds,
        coordinator=broker.node_id,
    )


def _topics(broker: BrokerNode, group: GroupSummary) -> set[str]:
    """The topics that a group reads or has read; a share group without members has only the state of partitions."""
    found = broker.groups.topics_of(group.group_id)
    with suppress(GroupIdNotFound):
        topic_ids = {topic_id for topic_id, _ in broker.groups.shared_partitions(group.group_id)}
        found.update(name for topic_id in topic_ids if (name := broker.view.topic_name(topic_id)) is not None)
    return found


async def _topic_groups_here(broker: BrokerNode, rights: ClientRights, asked: TopicGroupsQuestion) -> TopicGroupsPart:
    if not describes_topics(rights)(asked.topic):
        return TopicGroupsPart(groups=[], total=0)
    turns = LoopTurns()
    known = await broker.group_lag.all(LAG_WAIT_S)
    try:
        topic = broker.view.topic(asked.topic)
        found_in = broker.groups.readers_of(asked.topic, None if topic is None else topic.topic_id)
        readers = [each async for some in turns.over(found_in) for each in some]
    except CoordinatorLoadInProgress:
        readers = []
    found = await visible_groups(broker, rights, turns, [each for each in readers if asked.search in each])
    rows = [_topic_row(broker, each, known.by_pair.get((each.group_id, asked.topic))) for each in found]
    return TopicGroupsPart(groups=largest(rows), total=len(rows))


def largest(rows: Iterable[TopicGroupRow]) -> list[TopicGroupRow]:
    """The groups with the largest lag first; no more than are shown."""
    ordered = sorted(rows, key=lambda row: (-(UNKNOWN_LAG if row.lag is None else row.lag), row.group))
    return ordered[:TOPIC_GROUPS_MAX]


def _topic_row(broker: BrokerNode, group: GroupSummary, lag: TopicLag | None) -> TopicGroupRow:
    return TopicGroupRow(
        group=group.group_id,
        type=group.kind,
        state=str(group.state),
        members=group.members,
        lag=None if lag is None else lag.records,
        lag_s=None if lag is None else lag.seconds,
        coordinator=broker.node_id,
    )


GROUPS = PartKind("groups", GroupsQuestion, GroupsPart, _groups_here)
TOPIC_GROUPS = PartKind("topic-groups", TopicGroupsQuestion, TopicGroupsPart, _topic_groups_here)
