"""Groups as an administrator sees them: a line for each group of a broker, and everything about one group.

Topics are names here. A partition of a topic that is deleted has no name, and is left out.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from tidemill.groups.core.assignors import choose_assignor
from tidemill.groups.core.classic_group import CONSUMER_PROTOCOL, ClassicGroup, ClassicState
from tidemill.groups.core.consumer_group import NEW_MEMBER, ConsumerGroup
from tidemill.groups.core.entries import NO_PARTITIONS, OffsetValue, Partitions
from tidemill.groups.core.overview import NameOf
from tidemill.groups.core.shard import Group, Shard
from tidemill.groups.core.share_group import ASSIGNOR, ShareGroup
from tidemill.groups.core.subscriptions import read_assignment, read_subscription
from tidemill.model.errors import GroupIdNotFound
from tidemill.model.topics import TopicPartition

Assigned = Mapping[str, list[int]]
"""Partitions by topic."""


class GroupSummary(NamedTuple):
    """One group in a list, without its topics."""

    group_id: str
    kind: str
    state: str
    protocol_type: str
    assignor: str
    members: int


class MemberDetails(NamedTuple):
    """One member. `epoch` is the generation of a classic member; `target` is what it gets at the end of a rebalance."""

    member_id: str
    kind: str
    client_id: str
    client_host: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    topics: tuple[str, ...]
    pattern: str | None
    assigned: Assigned
    target: Assigned


class GroupDetails(NamedTuple):
    """One group. `target_epoch` is the epoch of its assignment; the generation of a classic group is both epochs."""

    summary: GroupSummary
    epoch: int
    target_epoch: int
    leader: str | None
    members: tuple[MemberDetails, ...]
    offsets: Mapping[TopicPartition, OffsetValue]
    unstable: frozenset[TopicPartition]
    """Partitions whose offset an open transaction may change."""


def summary_of(shard: Shard, group_id: str) -> GroupSummary | None:
    """Return the line of one group; None when it does not exist. A group that only has offsets is empty."""
    group = shard.groups.get(group_id)
    if group is not None:
        return GroupSummary(
            group_id, group.kind, group.state, group.protocol_type or "", _assignor(group), len(group.members)
        )
    if not shard.exists(group_id):
        return None
    return GroupSummary(group_id, ClassicGroup.kind, ClassicState.EMPTY, "", "", 0)


def topics_of(shard: Shard, group_id: str) -> set[str]:
    """Return the topics for which the group has committed offsets, or that its members name in their subscriptions."""
    found = {place.topic for place in shard.offsets.of_group(group_id)}
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        found.update(name for member in group.members.values() for name in member.topic_names)
    elif group is not None:
        for member in group.members.values():
            found.update(_subscribed(group, member.subscription(group.protocol)))
    return found


def readers_of(shard: Shard, topic: str, topic_id: UUID | None = None) -> list[str]:
    """Return the ids of the groups that read or have read a topic. Share groups without members know its id only."""
    return [
        group_id
        for group_id in shard.group_ids()
        if topic in topics_of(shard, group_id) or _shares(shard.groups.get(group_id), topic_id)
    ]


def _shares(group: Group | None, topic_id: UUID | None) -> bool:
    return isinstance(group, ShareGroup) and any(each == topic_id for each, _ in group.shared)


def details_of(shard: Shard, group_id: str, name_of: NameOf) -> GroupDetails:
    """Return everything about one group; GroupIdNotFound when it does not exist."""
    summary = summary_of(shard, group_id)
    if summary is None:
        raise GroupIdNotFound(f"group {group_id} does not exist")
    group, offsets = shard.groups.get(group_id), dict(shard.offsets.of_group(group_id))
    unstable = frozenset(each for each in offsets if shard.offsets.is_unstable(group_id, *each))
    if isinstance(group, ConsumerGroup):
        members = tuple(_consumers(group, name_of))
        return GroupDetails(summary, group.epoch, group.target_epoch, None, members, offsets, unstable)
    if group is None:
        return GroupDetails(summary, 0, 0, None, (), offsets, unstable)
    members = tuple(_classic(group))
    return GroupDetails(summary, group.generation, group.generation, group.leader, members, offsets, unstable)


def _assignor(group: Group) -> str:
    if isinstance(group, ShareGroup):
        return ASSIGNOR
    if isinstance(group, ConsumerGroup):
        return choose_assignor(about.server_assignor for about in group.members.values()) if group.members else ""
    return group.protocol or ""


def _classic(group: ClassicGroup) -> Iterable[MemberDetails]:
    for member in group.members.values():
        assigned = _assignment(group, member.assignment)
        yield MemberDetails(
            member.member_id,
            ClassicGroup.kind,
            member.client_id,
            member.client_host,
            member.instance_id,
            None,
            group.generation,
            _subscribed(group, member.subscription(group.protocol)),
            None,
            assigned,
            assigned,
        )


def _subscribed(group: ClassicGroup, blob: bytes) -> tuple[str, ...]:
    if group.protocol_type != CONSUMER_PROTOCOL:
        return ()  # members that are not consumers use their own format
    subscription = read_subscription(blob)
    return () if subscription is None else tuple(sorted(set(subscription.topics)))


def _assignment(group: ClassicGroup, blob: bytes) -> Assigned:
    if group.protocol_type != CONSUMER_PROTOCOL:
        return {}
    try:
        return read_assignment(blob)
    except ValueError:
        return {}


def _consumers(group: ConsumerGroup, name_of: NameOf) -> Iterable[MemberDetails]:
    for member_id, about in group.members.items():
        current = group.current.get(member_id, NEW_MEMBER)
        yield MemberDetails(
            member_id,
            group.kind if about.classic is None else ClassicGroup.kind,
            about.client_id,
            about.client_host,
            about.instance_id,
            about.rack_id,
            current.epoch,
            tuple(sorted(about.topic_names)),
            about.topic_regex,
            _named(current.assigned, name_of),
            _named(group.targets.get(member_id, NO_PARTITIONS), name_of),
        )


def _named(partitions: Partitions, name_of: NameOf) -> Assigned:
    found: dict[str, list[int]] = {}
    for topic_id, index in partitions:
        name = name_of(topic_id)
        if name is not None:
            found.setdefault(name, []).append(index)
    return {name: sorted(found[name]) for name in sorted(found)}
