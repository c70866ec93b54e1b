"""Members of the classic protocol in a consumer group: how a running group is upgraded and downgraded.

The first member of the new protocol that comes to a classic group of consumers turns it into a consumer group; when
the last one of them has gone, it is turned back. In between, classic members are members like all others to the
broker, which assigns for them too; only their words are different:
- a join is a heartbeat that says what the member subscribes to and still owns; its generation is the member's epoch,
  and since the broker assigns, nobody is told to be the leader;
- a sync gives the member its partitions in the form that an assignor of the client would have;
- a heartbeat tells the member to join again when there is something new for it, and gives it its rebalance timeout.
"""

from collections.abc import Iterable, Mapping

from tidemill.groups.core import consumer_heartbeat
from tidemill.groups.core.catalog import TopicCatalog
from tidemill.groups.core.classic_group import CONSUMER_PROTOCOL, ClassicGroup
from tidemill.groups.core.consumer_group import ConsumerGroup, MemberState, digest_topics
from tidemill.groups.core.consumer_heartbeat import HeartbeatRequest
from tidemill.groups.core.entries import (
    NO_PARTITIONS,
    ClassicMember,
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentKey,
    CurrentValue,
    GroupEntry,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberSnapshot,
    MemberValue,
    Partitions,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
)
from tidemill.groups.core.member import GroupMember, choose_protocol
from tidemill.groups.core.messages import GroupStep, JoinAnswer, JoinRequest, Protocols, SyncAnswer, SyncRequest
from tidemill.groups.core.subscriptions import (
    ConsumerSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from tidemill.model.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from tidemill.model.topics import TopicPartition


def upgrade(classic: ClassicGroup, catalog: TopicCatalog) -> tuple[GroupEntry, ...]:
    """The entries that turn a classic group with members into a consumer group in which everyone keeps its partitions.

    Requests that wait are answered with "join again".
    """
    if classic.protocol_type != CONSUMER_PROTOCOL:
        raise GroupIdNotFound(f"the members of {classic.group_id} are not consumers")
    group, epoch = classic.group_id, max(classic.generation, 1)
    entries, taken = [GroupEntry(GroupKey(group), None)], NO_PARTITIONS
    topics: set[str] = set()
    for member_id, member in classic.members.items():
        about = _about(classic, member)
        topics.update(about.topic_names)
        assigned = _assigned(member, catalog) - taken
        taken |= assigned
        entries += [
            GroupEntry(MemberKey(group, member_id), about),
            GroupEntry(TargetKey(group, member_id), TargetValue(assigned)),
            GroupEntry(
                CurrentKey(group, member_id), CurrentValue(epoch, epoch, MemberState.STABLE, assigned, NO_PARTITIONS)
            ),
        ]
        classic.answer_join(member, RebalanceInProgress())
        classic.answer_sync(member, RebalanceInProgress())
    known = frozenset(catalog.by_name[name].topic_id for name in topics if name in catalog.by_name)
    value = ConsumerGroupValue(epoch, digest_topics(known, catalog))
    entries += [GroupEntry(TargetEpochKey(group), TargetEpochValue(epoch)), GroupEntry(ConsumerGroupKey(group), value)]
    return tuple(entries)


def _about(classic: ClassicGroup, member: GroupMember) -> MemberValue:
    protocol = classic.protocol or (member.protocols[0][0] if member.protocols else None)
    subscription = read_subscription(member.subscription(protocol))
    if subscription is None:
        raise GroupIdNotFound(f"a member of {classic.group_id} does not subscribe as consumers do")
    return MemberValue(
        member.instance_id,
        None,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicMember(member.session_timeout_ms, member.protocols),
    )


def _assigned(member: GroupMember, catalog: TopicCatalog) -> Partitions:
    try:
        by_name = read_assignment(member.assignment)
    except ValueError:
        return NO_PARTITIONS
    return _ids((TopicPartition(topic, index) for topic, indexes in by_name.items() for index in indexes), catalog)


def _ids(partitions: Iterable[TopicPartition], catalog: TopicCatalog) -> Partitions:
    known = catalog.by_name
    return frozenset((known[topic].topic_id, index) for topic, index in partitions if topic in known)


def _names(partitions: Partitions, catalog: TopicCatalog) -> Iterable[TopicPartition]:
    known = catalog.by_id
    return (TopicPartition(known[topic_id].name, index) for topic_id, index in partitions if topic_id in known)


def join(
    group: ConsumerGroup, request: JoinRequest, new_id: str, catalog: TopicCatalog, now_ms: int
) -> tuple[GroupStep, JoinAnswer]:
    """JoinGroup of a consumer group."""
    subscription = _subscription(request)
    if not request.member_id and request.instance_id is None and request.takes_member_id_first:
        return GroupStep(), JoinAnswer(new_id, error=MemberIdRequired())
    if request.member_id and request.instance_id is not None:
        _check_instance(group, request.member_id, request.instance_id)
    beat = consumer_heartbeat.heartbeat(
        group,
        HeartbeatRequest(
            request.group_id,
            request.member_id or new_id,
            consumer_heartbeat.JOIN_EPOCH,
            request.client_id,
            request.client_host,
            request.instance_id,
            None,
            request.rebalance_timeout_ms,
            tuple(subscription.topics),
            None,
            None,
            _ids(subscription.owned, catalog),
            ClassicMember(request.session_timeout_ms, request.protocols),
        ),
        catalog,
        now_ms,
    )
    answer = JoinAnswer(
        beat.answer.member_id, beat.answer.member_epoch, CONSUMER_PROTOCOL, request.protocols[0][0], leader=""
    )
    return beat.step, answer


def _subscription(request: JoinRequest) -> ConsumerSubscription:
    subscription = read_subscription(request.protocols[0][1]) if request.protocols else None
    if request.protocol_type != CONSUMER_PROTOCOL or subscription is None:
        raise InconsistentGroupProtocol(f"{request.group_id} is a group of consumers")
    return subscription


def _check_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> None:
    owner = group.static.get(instance_id)
    if owner is None:
        raise UnknownMemberId
    if owner != member_id:
        raise FencedInstanceId


def _find(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> CurrentValue:
    """The classic member that speaks, if it may."""
    if instance_id is not None:
        _check_instance(group, member_id, instance_id)
    member, current = group.members.get(member_id), group.current.get(member_id)
    if member is None or current is None or member.classic is None:
        raise UnknownMemberId
    if current.epoch != generation:
        raise IllegalGeneration
    return current


def sync(group: ConsumerGroup, request: SyncRequest, catalog: TopicCatalog, now_ms: int) -> SyncAnswer:
    """SyncGroup: the partitions that the member may have now."""
    current = _find(group, request.member_id, request.instance_id, request.generation)
    classic = group.members[request.member_id].classic
    protocol = classic.protocols[0][0] if classic is not None else None
    wrong_type = request.protocol_type not in {None, CONSUMER_PROTOCOL}
    if wrong_type or (request.protocol is not None and request.protocol != protocol):
        raise InconsistentGroupProtocol
    if group.epoch > current.epoch and current.state != MemberState.REVOKING:
        group.hurry(request.member_id, current.epoch, now_ms)
        raise RebalanceInProgress
    group.touch(request.member_id, now_ms)
    return SyncAnswer(CONSUMER_PROTOCOL, protocol, write_assignment(_names(current.assigned, catalog)))


def beat(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
    """Heartbeat: keeps the member alive, and sends it to join again when there is something for it."""
    current = _find(group, member_id, instance_id, generation)
    group.touch(member_id, now_ms)
    missing = group.targets.get(member_id, NO_PARTITIONS) - current.assigned
    free = any(partition not in group.owners for partition in missing)
    if (
        current.epoch < group.epoch
        or current.state == MemberState.REVOKING
        or (current.state == MemberState.WAITING and free)
    ):
        group.hurry(member_id, current.epoch, now_ms)
        raise RebalanceInProgress


def is_due_for_downgrade(group: ConsumerGroup) -> bool:
    """Whether only classic members are left, who have a protocol in common."""
    protocols = protocols_of(group)
    everyone = bool(protocols) and len(protocols) == len(group.members)
    return everyone and choose_protocol(protocols.values()) is not None


def downgrade(group: ConsumerGroup, catalog: TopicCatalog, now_ms: int) -> tuple[GroupEntry, ...]:
    """The entries that turn it back into a classic group; its members rebalance after that."""
    classics = {each: member.classic for each, member in group.members.items() if member.classic is not None}
    protocol = choose_protocol(classic.protocols for classic in classics.values())
    members = []
    for member_id, classic in classics.items():
        about, current = group.members[member_id], group.current[member_id]
        members.append(
            MemberSnapshot(
                member_id,
                about.instance_id,
                about.client_id,
                about.client_host,
                about.rebalance_timeout_ms,
                classic.session_timeout_ms,
                dict(classic.protocols).get(protocol or "", b""),
                write_assignment(_names(current.assigned | current.revoking, catalog)),
            )
        )
    leader = members[0].member_id
    value = GroupValue(CONSUMER_PROTOCOL, group.epoch, protocol, leader, now_ms, tuple(members))
    return (*group.tombstones(), GroupEntry(GroupKey(group.group_id), value))


def resume(classic: ClassicGroup, protocols: Mapping[str, Protocols], now_ms: int) -> None:
    """The group is classic again: its members are known in full, and told to find a leader."""
    for member_id, member in classic.members.items():
        classic.adopt(member, protocols[member_id])
    classic.loaded(now_ms)
    classic.rebalance(now_ms)


def protocols_of(group: ConsumerGroup) -> dict[str, Protocols]:
    """The classic protocols of each member that has some."""
    members = group.members.items()
    return {member_id: member.classic.protocols for member_id, member in members if member.classic is not None}
