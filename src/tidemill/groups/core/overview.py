"""All groups, members and committed offsets of a broker, for SQL, tables and dashboards."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from tidemill.groups.core.assignors import choose_assignor
from tidemill.groups.core.classic_group import CONSUMER_PROTOCOL, ClassicGroup, ClassicState
from tidemill.groups.core.consumer_group import NEW_MEMBER, ConsumerGroup
from tidemill.groups.core.entries import MemberValue
from tidemill.groups.core.member import GroupMember
from tidemill.groups.core.offsets import UNKNOWN_COMMITTER, OffsetCommitter
from tidemill.groups.core.shard import Group, Shard
from tidemill.groups.core.share_group import ASSIGNOR, ShareGroup
from tidemill.groups.core.subscriptions import read_assignment, read_subscription
from tidemill.model.offset_notes import is_note
from tidemill.model.topics import TopicPartition

RECENT_MS = 600_000
"""Rebalances within this time count as recent."""
NEVER = -1
NameOf = Callable[[UUID], str | None]
"""Maps a topic id to the name, if the topic exists."""


class SeenMember(NamedTuple):
    """A member and its assignment."""

    group_id: str
    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    client_id: str
    client_host: str
    assignment: Mapping[str, list[int]]
    leads: bool
    heard_ms: int
    state: str
    metadata: str = ""
    """What the member subscribes to, as JSON."""


class SeenGroup(NamedTuple):
    """A group, with the times of its state and its last rebalance (-1: unknown)."""

    group_id: str
    kind: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: int
    state_ms: int = NEVER
    rebalanced_ms: int = NEVER
    recent_rebalances: int = 0


class SeenOffset(NamedTuple):
    """An offset that a group has committed."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    committer: OffsetCommitter = UNKNOWN_COMMITTER


class CommittedOffset(NamedTuple):
    """An offset that a group has committed, without its details."""

    group_id: str
    place: TopicPartition
    offset: int


class GroupSize(NamedTuple):
    """The state of a group and the number of its members. Every rebalance increases the generation."""

    group_id: str
    state: str
    members: int
    generation: int


class Overview(NamedTuple):
    """All groups of a broker."""

    members: list[SeenMember]
    offsets: list[SeenOffset]
    groups: Sequence[SeenGroup] = ()


def members_of(shard: Shard, name_of: NameOf) -> Iterator[SeenMember]:
    """Yield every member of every group, in the order in which they joined."""
    for group in shard.groups.values():
        if isinstance(group, ClassicGroup):
            yield from _classic(group)
        else:
            yield from _consumers(group, name_of)


def groups_of(shard: Shard, now_ms: int) -> Iterator[SeenGroup]:
    """Yield every group; one that only has offsets is empty."""
    for group_id in shard.group_ids():
        group = shard.groups.get(group_id)
        if group is None:
            yield SeenGroup(group_id, ClassicGroup.kind, ClassicState.EMPTY, 0, "", "", "", 0)
        else:
            yield _group(group, now_ms)


def _group(group: Group, now_ms: int) -> SeenGroup:
    rebalanced_ms = group.rebalanced_ms[-1] if group.rebalanced_ms else NEVER
    if isinstance(group, ConsumerGroup):
        # It notes only the time at which it became empty; otherwise its last rebalance began its state.
        protocol, leader, state_ms = _assignor(group), "", max(group.state_ms, rebalanced_ms)
    else:
        protocol, leader, state_ms = group.protocol or "", group.leader or "", group.state_ms
    return SeenGroup(
        group.group_id,
        group.kind,
        group.state,
        group.generation,
        group.protocol_type or "",
        protocol,
        leader,
        len(group.members),
        state_ms or NEVER,
        rebalanced_ms,
        sum(now_ms - at_ms < RECENT_MS for at_ms in group.rebalanced_ms),
    )


def _assignor(group: ConsumerGroup) -> str:
    if isinstance(group, ShareGroup):
        return ASSIGNOR
    return choose_assignor(about.server_assignor for about in group.members.values()) if group.members else ""


def committer_among(shard: Shard, group_id: str, named: OffsetCommitter) -> OffsetCommitter:
    """Return the client of a commit: the member that it names, with the client id and host of its join."""
    group = shard.groups.get(group_id)
    member = None if group is None else group.members.get(named.member_id)
    return named if member is None else named._replace(client_id=member.client_id, client_host=member.client_host)


def offsets_of(shard: Shard) -> Iterator[SeenOffset]:
    """Yield every committed offset."""
    for group_id in shard.offsets.groups():
        for place, value in shard.offsets.of_group(group_id).items():
            yield SeenOffset(
                group_id,
                *place,
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_ms,
                shard.offsets.committer_of(group_id, place, value),
            )


def committed_of(shard: Shard) -> Iterator[CommittedOffset]:
    """Yield every committed position, without its details. The shard may change between two of them."""
    for group_id in list(shard.offsets.groups()):
        yield from positions_of(shard, group_id)


def positions_of(shard: Shard, group_id: str) -> list[CommittedOffset]:
    """The committed offsets of one group that are positions; notes are left out."""
    return [
        CommittedOffset(group_id, place, value.offset)
        for place, value in shard.offsets.of_group(group_id).items()
        if not is_note(group_id, value.metadata)
    ]


def sizes_of(shard: Shard) -> Iterator[GroupSize]:
    """Yield the state of every group; one that only has offsets is empty. The shard may change between two of them."""
    for group_id in list(shard.group_ids()):
        group = shard.groups.get(group_id)
        if group is None:
            yield GroupSize(group_id, ClassicState.EMPTY, 0, 0)
        else:
            yield GroupSize(group_id, group.state, len(group.members), group.generation)


def _classic(group: ClassicGroup) -> Iterator[SeenMember]:
    for member in group.members.values():
        yield SeenMember(
            group.group_id,
            member.member_id,
            group.generation,
            group.protocol_type or "",
            group.protocol or "",
            member.client_id,
            member.client_host,
            _assignment(member.assignment) if group.protocol_type == CONSUMER_PROTOCOL else {},
            group.leader == member.member_id,
            member.deadline_ms - member.session_timeout_ms,
            group.state,
            _classic_metadata(member, group),
        )


def _classic_metadata(member: GroupMember, group: ClassicGroup) -> str:
    blob = member.subscription(group.protocol)
    subscription = read_subscription(blob) if group.protocol_type == CONSUMER_PROTOCOL else None
    if subscription is not None:
        return _as_text(topics=subscription.topics, instance_id=member.instance_id)
    return _as_text(protocol=b64encode(blob).decode(), instance_id=member.instance_id)


def _consumer_metadata(about: MemberValue) -> str:
    return _as_text(
        topics=about.topic_names, pattern=about.topic_regex, instance_id=about.instance_id, rack_id=about.rack_id
    )


def _as_text(**fields: Sequence[str] | None) -> str:
    return json.dumps({name: value for name, value in fields.items() if value}, ensure_ascii=False)


def _assignment(blob: bytes) -> Mapping[str, list[int]]:
    try:
        return read_assignment(blob)
    except ValueError:
        return {}  # members that are not consumers use their own format


def _consumers(group: ConsumerGroup, name_of: NameOf) -> Iterator[SeenMember]:
    assignor = _assignor(group)
    for member_id, about in group.members.items():
        current = group.current.get(member_id, NEW_MEMBER)
        timeout_ms = about.classic.session_timeout_ms if about.classic else group.session_ms
        assigned: dict[str, list[int]] = {}
        for topic_id, index in sorted(current.assigned, key=str):
            assigned.setdefault(name_of(topic_id) or str(topic_id), []).append(index)
        yield SeenMember(
            group.group_id,
            member_id,
            current.epoch,
            group.protocol_type,
            assignor,
            about.client_id,
            about.client_host,
            {topic: sorted(indexes) for topic, indexes in assigned.items()},
            False,
            group.deadlines.get(member_id, timeout_ms) - timeout_ms,
            group.state,
            _consumer_metadata(about),
        )
