"""All members and all committed offsets of a broker, for SQL, tables and dashboards."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from tidemill.groups.core.assignors import choose_assignor
from tidemill.groups.core.classic_group import CONSUMER_PROTOCOL, ClassicGroup, ClassicState
from tidemill.groups.core.consumer_group import NEW_MEMBER, ConsumerGroup
from tidemill.groups.core.shard import Shard
from tidemill.groups.core.subscriptions import read_assignment
from tidemill.model.topics import TopicPartition

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


class SeenOffset(NamedTuple):
    """An offset that a group has committed."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int


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


def members_of(shard: Shard, name_of: NameOf) -> Iterator[SeenMember]:
    """Yield every member of every group, in the order in which they joined."""
    for group in shard.groups.values():
        if isinstance(group, ClassicGroup):
            yield from _classic(group)
        else:
            yield from _consumers(group, name_of)


def offsets_of(shard: Shard) -> Iterator[SeenOffset]:
    """Yield every committed offset."""
    for group_id in shard.offsets.groups():
        for (topic, partition), value in shard.offsets.of_group(group_id).items():
            yield SeenOffset(
                group_id, topic, partition, value.offset, value.leader_epoch, value.metadata, value.commit_ms
            )


def committed_of(shard: Shard) -> Iterator[CommittedOffset]:
    """Yield every committed offset without its details. The shard may change between two of them."""
    for group_id in list(shard.offsets.groups()):
        for place, value in list(shard.offsets.of_group(group_id).items()):
            yield CommittedOffset(group_id, place, value.offset)


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
        )


def _assignment(blob: bytes) -> Mapping[str, list[int]]:
    try:
        return read_assignment(blob)
    except ValueError:
        return {}  # members that are not consumers use their own format


def _consumers(group: ConsumerGroup, name_of: NameOf) -> Iterator[SeenMember]:
    assignor = choose_assignor(about.server_assignor for about in group.members.values())
    for member_id, about in group.members.items():
        current = group.current.get(member_id, NEW_MEMBER)
        timeout_ms = about.classic.session_timeout_ms if about.classic else group.limits.consumer_session_timeout_ms
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
        )
