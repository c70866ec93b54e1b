"""The descriptions of groups for DescribeGroups and ConsumerGroupDescribe."""

from typing import NamedTuple

from tidemill.groups.core.assignors import choose_assignor
from tidemill.groups.core.classic_group import ClassicGroup, ClassicState
from tidemill.groups.core.consumer_group import NEW_MEMBER, ConsumerGroup
from tidemill.groups.core.entries import NO_PARTITIONS, MemberValue, Partitions
from tidemill.groups.core.shard import Shard
from tidemill.groups.core.share_group import ASSIGNOR, ShareGroup
from tidemill.model.errors import GroupIdNotFound


class DescribedMember(NamedTuple):
    """A member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A classic group."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class DescribedConsumer(NamedTuple):
    """A member of a consumer group."""

    member_id: str
    epoch: int
    about: MemberValue
    assigned: Partitions
    target: Partitions


class DescribedConsumerGroup(NamedTuple):
    """A consumer group."""

    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]


def describe(shard: Shard, group_id: str) -> DescribedGroup:
    """Describe a classic group. A group that only has offsets is empty."""
    group = shard.groups.get(group_id)
    if group is None and shard.exists(group_id):
        return DescribedGroup(group_id, ClassicState.EMPTY)
    if not isinstance(group, ClassicGroup):
        raise GroupIdNotFound(f"classic group {group_id} does not exist")
    stable = group.state is ClassicState.STABLE  # only then do protocol and assignments belong together
    members = tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.subscription(group.protocol) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.members.values()
    )
    protocol = (group.protocol or "") if stable else ""
    return DescribedGroup(group_id, group.state, group.protocol_type or "", protocol, members)


def describe_consumers(shard: Shard, group_id: str) -> DescribedConsumerGroup:
    """Describe a consumer group. Clients that get "not found" ask for a classic group next."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup) or isinstance(group, ShareGroup):
        raise GroupIdNotFound(f"consumer group {group_id} does not exist")
    assignor = choose_assignor(about.server_assignor for about in group.members.values())
    return _described(group, assignor)


def describe_share(shard: Shard, group_id: str) -> DescribedConsumerGroup:
    """Describe a share group."""
    return _described(shard.known_share(group_id), ASSIGNOR)


def _described(group: ConsumerGroup, assignor: str) -> DescribedConsumerGroup:
    members = []
    for member_id, about in group.members.items():
        current = group.current.get(member_id, NEW_MEMBER)
        target = group.targets.get(member_id, NO_PARTITIONS)
        members.append(DescribedConsumer(member_id, current.epoch, about, current.assigned, target))
    return DescribedConsumerGroup(
        group.group_id, group.state, group.epoch, group.target_epoch, assignor, tuple(members)
    )
