"""ConsumerGroupHeartbeat: how a member of a consumer group joins, follows the target assignment, and leaves.

One heartbeat decides everything that is due: the member's new subscription, the group's next epoch, a new target
assignment, and the member's next step towards it. Most heartbeats decide nothing and write nothing.

The answer contains the member's partitions when they change, and until the member reports that it owns them. An answer
may be lost, and clients (librdkafka) then repeat the same heartbeat without any sign of the loss.

Fencing: a member sends the epoch that it last received. A higher epoch is rejected, because the broker never sent it. A
lower epoch is rejected, too, with one exception: the previous epoch is accepted from a member that owns no more than
its assignment, because its last answer was lost.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from tidemill.groups.core.assignors import SERVER_ASSIGNORS, choose_assignor
from tidemill.groups.core.catalog import TopicCatalog
from tidemill.groups.core.consumer_group import (
    NEW_MEMBER,
    ConsumerGroup,
    MemberState,
    TopicView,
    digest_topics,
    reconcile,
)
from tidemill.groups.core.entries import (
    NO_PARTITIONS,
    ClassicMember,
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentKey,
    CurrentValue,
    GroupEntry,
    MemberKey,
    MemberValue,
    Partitions,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
)
from tidemill.groups.core.messages import GroupStep, Leaver, Left
from tidemill.model.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2  # a static member that will return


class HeartbeatRequest(NamedTuple):
    """The fields of a heartbeat; None (and -1) mean "unchanged"."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    classic: ClassicMember | None = None
    view: TopicView | None = None

    @property
    def is_full(self) -> bool:
        """Whether the member sends all its fields, as it does after a lost answer."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


class HeartbeatAnswer(NamedTuple):
    """The member's epoch, and its partitions when they have changed."""

    member_id: str
    member_epoch: int
    heartbeat_ms: int
    assigned: Partitions | None = None


class Beat(NamedTuple):
    """A decided heartbeat. The answer is sent after the step is done."""

    step: GroupStep
    answer: HeartbeatAnswer


def check_request(request: HeartbeatRequest) -> None:
    """Reject a request that contradicts the protocol."""
    joins = request.member_epoch == JOIN_EPOCH
    if request.member_epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise InvalidRequest(f"member epoch is {request.member_epoch}; it must be -2 or more")
    if not request.member_id:
        raise InvalidRequest("the member id is empty")
    if request.instance_id == "" or request.rack_id == "":
        raise InvalidRequest("an instance id or rack id must not be empty")
    if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
        raise InvalidRequest("member epoch -2 needs an instance id: only a static member leaves temporarily")
    if joins and request.rebalance_timeout_ms == -1:
        raise InvalidRequest("a member that joins must send its rebalance timeout")
    if joins and (request.owned is None or request.owned):
        raise InvalidRequest("a member that joins must send an empty list of owned partitions")
    if joins and request.topic_names is None and request.topic_regex is None:
        raise InvalidRequest("a member that joins must subscribe to a topic or a pattern")
    if request.server_assignor is not None and request.server_assignor not in SERVER_ASSIGNORS:
        known = ", ".join(SERVER_ASSIGNORS)
        raise UnsupportedAssignor(f"assignor {request.server_assignor} does not exist; use one of {known}")


def decision_size(group: ConsumerGroup | None, request: HeartbeatRequest, catalog: TopicCatalog) -> int:
    """Return about how many names, members and partitions a heartbeat visits: many only where it may reassign."""
    own = len(request.topic_names or ()) + len(request.owned or ())
    if group is None:
        return own + catalog.partitions
    says = request.topic_names is not None or request.topic_regex is not None or request.server_assignor is not None
    due = (
        group.epoch > group.target_epoch or group.catalog_version != catalog.version or _has_new_rights(group, request)
    )
    if not says and not due and request.member_epoch != JOIN_EPOCH:
        return own
    return own + len(group.members) + group.named_topics + catalog.partitions


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, catalog: TopicCatalog, now_ms: int) -> Beat:
    """Decide one heartbeat of a member that joins or stays."""
    former = _former_self(group, request)
    before = group.members.get(former or request.member_id)
    current = _current(group, request, former)
    _check_pattern(group, request)
    after = _described(before, request)
    members = group.members
    if after != before or former is not None:
        members = {each: value for each, value in members.items() if each != former}
        members[request.member_id] = after
    entries = _replacing(group, request.member_id, former) if former is not None else []
    if members is not group.members:
        entries.append(GroupEntry(MemberKey(group.group_id, request.member_id), after))
    epoch = _next_epoch(group, members, before, request, catalog, entries)
    target_epoch, target = group.target_epoch, group.targets.get(former or request.member_id, NO_PARTITIONS)
    if epoch > group.target_epoch:
        target_epoch = epoch
        target = _new_target(group, members, former, request, catalog, epoch, entries)
    blocked = frozenset(
        each for each in target if group.owners.get(each, request.member_id) not in {request.member_id, former}
    )
    following = reconcile(current, target, target_epoch, request.owned, blocked)
    if following != group.current.get(request.member_id):
        entries.append(GroupEntry(CurrentKey(group.group_id, request.member_id), following))

    def then() -> None:
        group.catalog_version = catalog.version
        if request.owned is not None:
            group.owned[request.member_id] = request.owned
        if request.view is not None:
            group.views[request.member_id] = request.view
        group.touch(request.member_id, now_ms)
        group.watch_revocation(request.member_id, now_ms)

    news = request.member_epoch != following.epoch or following.assigned != current.assigned
    owned = group.owned.get(request.member_id) if request.owned is None else request.owned
    sends_assignment = request.is_full or news or (owned is not None and owned != following.assigned)
    return Beat(
        GroupStep(tuple(entries), then),
        HeartbeatAnswer(
            request.member_id,
            following.epoch,
            group.limits.consumer_heartbeat_ms,
            following.assigned if sends_assignment else None,
        ),
    )


def leave(group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> Beat:
    """Remove a member: permanently, or, if it is static, until its session ends."""
    member_id = request.member_id
    if request.instance_id is not None:
        member_id = _static_member(group, request)
    if member_id not in group.members:
        raise UnknownMemberId
    answer = HeartbeatAnswer(request.member_id, request.member_epoch, 0)
    if request.member_epoch == LEAVE_EPOCH:

        def then() -> None:
            if not group.members:
                group.state_ms = now_ms

        return Beat(GroupStep(group.removal([member_id]), then), answer)
    current = group.current.get(member_id, NEW_MEMBER)
    away = CurrentValue(
        LEAVE_FOR_A_WHILE_EPOCH, current.epoch, MemberState.STABLE, current.assigned | current.revoking, NO_PARTITIONS
    )

    def watch() -> None:
        group.revocations.pop(member_id, None)

    return Beat(GroupStep((GroupEntry(CurrentKey(group.group_id, member_id), away),), watch), answer)


def remove(group: ConsumerGroup, leavers: Sequence[Leaver]) -> tuple[GroupStep, list[Left]]:
    """Handle LeaveGroup on a consumer group: an operator removes members."""
    results = []
    leaving: dict[str, None] = {}
    for leaver in leavers:
        owner = leaver.member_id if leaver.instance_id is None else group.static.get(leaver.instance_id, "")
        error: KafkaError | None = None
        if owner not in group.members:
            error = UnknownMemberId()
        elif leaver.member_id and leaver.member_id != owner:
            error = FencedInstanceId()
        else:
            leaving[owner] = None
        results.append(Left(leaver, error))
    return GroupStep(group.removal(list(leaving))), results


def _static_member(group: ConsumerGroup, request: HeartbeatRequest) -> str:
    member_id = group.static.get(request.instance_id or "")
    if member_id is None:
        raise UnknownMemberId
    if member_id != request.member_id:
        raise FencedInstanceId
    return member_id


def _former_self(group: ConsumerGroup, request: HeartbeatRequest) -> str | None:
    """Return the former id of a static member that joins, if it was a different one."""
    if request.instance_id is None:
        return None
    if request.member_epoch != JOIN_EPOCH:
        _static_member(group, request)
        return None
    former = group.static.get(request.instance_id)
    if former is None or former == request.member_id:
        return None
    both_new = (
        request.classic is None and group.members[former].classic is None
    )  # classic ones do not say that they leave
    if both_new and group.current[former].epoch != LEAVE_FOR_A_WHILE_EPOCH:
        raise UnreleasedInstanceId(
            f"instance id {request.instance_id} is in use by member {former}; wait until it leaves"
        )
    return former


def _current(group: ConsumerGroup, request: HeartbeatRequest, former: str | None) -> CurrentValue:
    """Return the member's state before this heartbeat; reject an outdated epoch."""
    if former is not None:
        return NEW_MEMBER._replace(assigned=group.current[former].assigned)
    current = group.current.get(request.member_id)
    if request.member_epoch == JOIN_EPOCH:
        if current is None and len(group.members) >= group.limits.consumer_members_max:
            raise GroupMaxSizeReached(f"the group has {group.limits.consumer_members_max} members, its limit")
        return current or NEW_MEMBER
    if current is None:
        raise UnknownMemberId
    if request.member_epoch == current.epoch:
        return current
    is_last = request.member_epoch == current.previous_epoch
    if not is_last or request.owned is None or not request.owned <= current.assigned:
        raise FencedMemberEpoch(f"epoch {request.member_epoch} is fenced; the member's epoch is {current.epoch}")
    return current


def _check_pattern(group: ConsumerGroup, request: HeartbeatRequest) -> None:
    if request.topic_regex:
        if len(request.topic_regex) > group.limits.pattern_length_max:
            raise InvalidRegularExpression(
                f"the pattern is too long; the limit is {group.limits.pattern_length_max} characters"
            )
        group.pattern(request.topic_regex)


def _described(before: MemberValue | None, request: HeartbeatRequest) -> MemberValue:
    """Return the member's details: the fields of this request over the previous ones."""
    known = before or MemberValue(None, None, "", "", (), None, -1, None)
    names = request.topic_names
    return MemberValue(
        request.instance_id or known.instance_id,
        request.rack_id or known.rack_id,
        request.client_id,
        request.client_host,
        known.topic_names if names is None else tuple(sorted(set(names))),
        known.topic_regex if request.topic_regex is None else request.topic_regex or None,
        known.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        request.server_assignor or known.server_assignor,
        request.classic,
    )


def _replacing(group: ConsumerGroup, member_id: str, former: str) -> list[GroupEntry]:
    """Return the entries by which the new incarnation of a static member takes over the former one's target."""
    target = group.targets.get(former, NO_PARTITIONS)
    return [*group.member_tombstones(former), GroupEntry(TargetKey(group.group_id, member_id), TargetValue(target))]


def _next_epoch(
    group: ConsumerGroup,
    members: dict[str, MemberValue],
    before: MemberValue | None,
    request: HeartbeatRequest,
    catalog: TopicCatalog,
    entries: list[GroupEntry],
) -> int:
    """Return the group's epoch: one more after a new member or a change of a subscription or a subscribed topic."""
    changed = before is None or _wishes(before) != _wishes(members[request.member_id])
    has_new_rights = _has_new_rights(group, request)
    if not changed and not has_new_rights and catalog.version == group.catalog_version:
        return group.epoch
    subscriptions = _subscriptions(group, members, request, catalog)
    topics_hash = digest_topics(frozenset[UUID]().union(*subscriptions.values()), catalog)
    # Rights on a topic that other members see, too, do not change the topics of the group.
    assigned = frozenset(topic for topic, _ in group.targets.get(request.member_id, NO_PARTITIONS))
    changed |= has_new_rights and not assigned <= subscriptions[request.member_id]
    if not changed and topics_hash == group.topics_hash:
        return group.epoch
    entries.append(GroupEntry(ConsumerGroupKey(group.group_id), ConsumerGroupValue(group.epoch + 1, topics_hash)))
    return group.epoch + 1


def _has_new_rights(group: ConsumerGroup, request: HeartbeatRequest) -> bool:
    """Whether a member with a pattern may describe other topics than at its last heartbeat here."""
    member = group.members.get(request.member_id)
    if request.view is None or member is None or not member.topic_regex:
        return False
    known = group.views.get(request.member_id)
    return known is None or known.key != request.view.key


def _subscriptions(
    group: ConsumerGroup, members: dict[str, MemberValue], request: HeartbeatRequest, catalog: TopicCatalog
) -> dict[str, frozenset[UUID]]:
    """Return the topics of each member."""
    views = group.views if request.view is None else {**group.views, request.member_id: request.view}
    found: dict[str, frozenset[UUID]] = {}
    for each, member in members.items():
        view = views.get(each)
        if view is None and request.view is not None and member.topic_regex:
            # A new coordinator learns the rights of a member with its next heartbeat: the member keeps what it has.
            kept = frozenset(topic for topic, _ in group.targets.get(each, NO_PARTITIONS) if topic in catalog.by_id)
            found[each] = kept | group.topics_of(member._replace(topic_regex=None), catalog)
        else:
            found[each] = group.topics_of(member, catalog, view)
    return found


def _wishes(member: MemberValue) -> tuple[object, ...]:
    return member.topic_names, member.topic_regex, member.server_assignor


def _new_target(
    group: ConsumerGroup,
    members: dict[str, MemberValue],
    former: str | None,
    request: HeartbeatRequest,
    catalog: TopicCatalog,
    epoch: int,
    entries: list[GroupEntry],
) -> Partitions:
    """Compute a new target assignment and return this member's part. Only members whose target changes get entries."""
    previous = dict(group.targets)
    if former is not None:
        previous[request.member_id] = previous.pop(former, NO_PARTITIONS)
    subscriptions = _subscriptions(group, members, request, catalog)
    counts = {topic: catalog.by_id[topic].partitions for topics in subscriptions.values() for topic in topics}
    name = choose_assignor(value.server_assignor for value in members.values())
    targets = SERVER_ASSIGNORS[name](subscriptions, counts, previous)
    entries.extend(
        GroupEntry(TargetKey(group.group_id, each), TargetValue(share))
        for each, share in targets.items()
        if share != group.targets.get(each)
    )
    entries.append(GroupEntry(TargetEpochKey(group.group_id), TargetEpochValue(epoch)))
    share: Partitions = targets[request.member_id]
    return share
