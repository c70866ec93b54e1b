"""A share group of KIP-932: its members share partitions, so nothing has to be given up before it is assigned.

It is a consumer group whose members follow the target at once. Its journal keys are Kafka's for share groups. The
group also knows which partitions its share state was created for (`shared`): members get only those.
"""

from heapq import heapify, heapreplace
from uuid import UUID

from tidemill.groups.core.assignors import Counts, Shares, Subscriptions, assign_uniform
from tidemill.groups.core.catalog import TopicCatalog
from tidemill.groups.core.consumer_group import NEW_MEMBER, ConsumerGroup, MemberState, digest_topics
from tidemill.groups.core.consumer_heartbeat import JOIN_EPOCH, Beat, HeartbeatAnswer
from tidemill.groups.core.entries import (
    NO_PARTITIONS,
    ConsumerGroupValue,
    ConsumerKey,
    CurrentValue,
    GroupEntry,
    MemberValue,
    Partitions,
    ShareCurrentKey,
    SharedTopicsKey,
    SharedTopicsValue,
    ShareGroupKey,
    ShareMemberKey,
    ShareTargetEpochKey,
    ShareTargetKey,
    TargetEpochValue,
    TargetValue,
    Value,
)
from tidemill.groups.core.messages import GroupStep
from tidemill.model.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
)

ASSIGNOR = "simple"
SHARE_PROTOCOL = "share"


class ShareHeartbeat:
    """The fields of a heartbeat; None means "unchanged"."""

    __slots__ = ("client_host", "client_id", "group_id", "member_epoch", "member_id", "rack_id", "topic_names")

    def __init__(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        *,
        rack_id: str | None = None,
        topic_names: tuple[str, ...] | None = None,
        client_id: str = "",
        client_host: str = "",
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.rack_id = rack_id
        self.topic_names = topic_names
        self.client_id = client_id
        self.client_host = client_host

    def check(self) -> None:
        """Reject a request that contradicts the protocol."""
        if not self.group_id or not self.member_id:
            raise InvalidRequest("the group id or the member id is empty")
        if self.member_epoch < -1:
            raise InvalidRequest(f"member epoch is {self.member_epoch}; it must be -1 or more")
        if self.rack_id == "":
            raise InvalidRequest("a rack id must not be empty")
        if self.member_epoch == JOIN_EPOCH and not self.topic_names:
            raise InvalidRequest("a member that joins must subscribe to a topic")


class ShareGroup(ConsumerGroup):
    """One share group."""

    kind = "share"
    protocol_type = SHARE_PROTOCOL
    group_key = ShareGroupKey
    member_key = ShareMemberKey
    target_epoch_key = ShareTargetEpochKey
    target_key = ShareTargetKey
    current_key = ShareCurrentKey

    shared: Partitions = NO_PARTITIONS
    """The partitions whose share state was created."""
    lacks_state = False
    """Whether share state could not be created for a subscribed partition, so that it must be tried again."""

    @property
    def is_unused(self) -> bool:
        """Whether the group was never journaled and has no members."""
        return super().is_unused and not self.shared

    @property
    def state(self) -> str:
        """Kafka has two states of share groups that clients see."""
        return "Stable" if self.members else "Empty"

    @property
    def session_ms(self) -> int:
        """The session timeout of members."""
        return self.limits.share_session_timeout_ms

    def check_epoch(self, member_id: str, epoch: int, *, in_transaction: bool = False) -> None:
        """Share groups have no offsets that clients commit or fetch."""
        _ = member_id, epoch, in_transaction
        raise GroupIdNotFound(f"group {self.group_id} is a share group")

    def wanted(self, catalog: TopicCatalog, also: tuple[str, ...] = ()) -> Partitions:
        """The partitions of all subscribed topics that have no share state yet."""
        names = {name for member in self.members.values() for name in member.topic_names}.union(also)
        topics = [catalog.by_name[name] for name in names if name in catalog.by_name]
        every = frozenset((topic.topic_id, index) for topic in topics for index in range(topic.partitions))
        return every - self.shared

    def sharing(self, partitions: Partitions) -> GroupStep:
        """The step that notes which partitions have share state, all of them."""
        return GroupStep((GroupEntry(SharedTopicsKey(self.group_id), SharedTopicsValue(partitions)),))

    def tombstones(self) -> tuple[GroupEntry, ...]:
        """Return the entries that delete everything stored about the group, the group itself last."""
        return (GroupEntry(SharedTopicsKey(self.group_id), None), *super().tombstones())

    def replay(self, key: ConsumerKey, value: Value | None) -> None:
        """Apply a journal entry."""
        if isinstance(key, SharedTopicsKey):
            self.shared = value.partitions if isinstance(value, SharedTopicsValue) else NO_PARTITIONS
            self.catalog_version = -1
        else:
            super().replay(key, value)

    def _replay_current(self, member_id: str, value: CurrentValue | None) -> None:
        """No member owns a partition alone."""
        self.current.pop(member_id, None)
        if value is not None:
            self.current[member_id] = value


def assign_shares(
    subscriptions: Subscriptions[UUID], counts: Counts[UUID], previous: dict[str, Partitions]
) -> Shares[UUID]:
    """Every partition has a member, and every member a partition: where members outnumber them, they share."""
    shares = assign_uniform(subscriptions, counts, previous)
    load: dict[tuple[UUID, int], int] = {}
    for share in shares.values():
        for each in share:
            load[each] = load.get(each, 0) + 1
    heaps: dict[frozenset[UUID], list[tuple[int, tuple[UUID, int]]]] = {}
    for member in sorted(member for member, share in shares.items() if not share):
        topics = frozenset(topic for topic in subscriptions[member] if counts.get(topic))
        if not topics:
            continue
        if topics not in heaps:
            heaps[topics] = [(load.get((t, index), 0), (t, index)) for t in topics for index in range(counts[t])]
            heapify(heaps[topics])
        count, place = heaps[topics][0]
        heapreplace(heaps[topics], (count + 1, place))
        shares[member] = frozenset({place})
    return shares


def heartbeat(group: ShareGroup, request: ShareHeartbeat, catalog: TopicCatalog, now_ms: int) -> Beat:
    """Decide one heartbeat of a member that joins or stays."""
    current = _current(group, request)
    before = group.members.get(request.member_id)
    after = _described(before, request)
    members = {**group.members, request.member_id: after} if after != before else group.members
    entries: list[GroupEntry] = []
    if after != before:
        entries.append(GroupEntry(ShareMemberKey(group.group_id, request.member_id), after))
    changed = before is None or before.topic_names != after.topic_names
    epoch = _next_epoch(group, members, catalog, entries, changed=changed)
    target, target_epoch = group.targets.get(request.member_id, NO_PARTITIONS), group.target_epoch
    if epoch > group.target_epoch:
        target_epoch = epoch
        target = _new_target(group, members, catalog, epoch, request.member_id, entries)
    following = current
    if current.epoch != target_epoch or current.assigned != target:
        following = CurrentValue(target_epoch, current.epoch, MemberState.STABLE, target, NO_PARTITIONS)
    if following != group.current.get(request.member_id):
        entries.append(GroupEntry(ShareCurrentKey(group.group_id, request.member_id), following))

    def then() -> None:
        group.catalog_version = catalog.version
        group.touch(request.member_id, now_ms)

    news = request.topic_names is not None or request.member_epoch != following.epoch
    answer = HeartbeatAnswer(
        request.member_id,
        following.epoch,
        group.limits.share_heartbeat_ms,
        following.assigned if news or following.assigned != current.assigned else None,
    )
    return Beat(GroupStep(tuple(entries), then), answer)


def leave(group: ShareGroup, request: ShareHeartbeat, now_ms: int) -> Beat:
    """Remove a member."""
    if request.member_id not in group.members:
        raise UnknownMemberId

    def then() -> None:
        if not group.members:
            group.state_ms = now_ms

    return Beat(GroupStep(group.removal([request.member_id]), then), HeartbeatAnswer(request.member_id, -1, 0))


def _current(group: ShareGroup, request: ShareHeartbeat) -> CurrentValue:
    current = group.current.get(request.member_id)
    if request.member_epoch == JOIN_EPOCH:
        if current is None and len(group.members) >= group.limits.share_members_max:
            raise GroupMaxSizeReached(f"the group has {group.limits.share_members_max} members, its limit")
        return current or NEW_MEMBER
    if current is None:
        raise UnknownMemberId
    if request.member_epoch not in {current.epoch, current.previous_epoch}:
        raise FencedMemberEpoch(f"epoch {request.member_epoch} is fenced; the member's epoch is {current.epoch}")
    return current


def _described(before: MemberValue | None, request: ShareHeartbeat) -> MemberValue:
    names = request.topic_names
    known = () if before is None else before.topic_names
    rack = request.rack_id or (None if before is None else before.rack_id)
    topics = known if names is None else tuple(sorted(set(names)))
    return MemberValue(None, rack, request.client_id, request.client_host, topics, None, -1, None)


def _subscriptions(
    group: ShareGroup, members: dict[str, MemberValue], catalog: TopicCatalog
) -> dict[str, frozenset[UUID]]:
    return {each: group.topics_of(member, catalog) for each, member in members.items()}


def _next_epoch(
    group: ShareGroup,
    members: dict[str, MemberValue],
    catalog: TopicCatalog,
    entries: list[GroupEntry],
    *,
    changed: bool,
) -> int:
    """The group's epoch: one more after a new member, another subscription, or a change of a subscribed topic."""
    if not changed and catalog.version == group.catalog_version:
        return group.epoch
    topics = frozenset[UUID]().union(*_subscriptions(group, members, catalog).values())
    shared = sum(topic in topics for topic, _ in group.shared)
    topics_hash = digest_topics(topics, catalog) ^ shared
    if not changed and topics_hash == group.topics_hash:
        return group.epoch
    entries.append(GroupEntry(ShareGroupKey(group.group_id), ConsumerGroupValue(group.epoch + 1, topics_hash)))
    return group.epoch + 1


def _new_target(
    group: ShareGroup,
    members: dict[str, MemberValue],
    catalog: TopicCatalog,
    epoch: int,
    member_id: str,
    entries: list[GroupEntry],
) -> Partitions:
    subscriptions = _subscriptions(group, members, catalog)
    counts = {topic: catalog.by_id[topic].partitions for topics in subscriptions.values() for topic in topics}
    targets = assign_shares(subscriptions, counts, group.targets)
    for each, share in targets.items():
        ready = share & group.shared
        if ready != group.targets.get(each):
            entries.append(GroupEntry(ShareTargetKey(group.group_id, each), TargetValue(ready)))
    entries.append(GroupEntry(ShareTargetEpochKey(group.group_id), TargetEpochValue(epoch)))
    return targets[member_id] & group.shared
