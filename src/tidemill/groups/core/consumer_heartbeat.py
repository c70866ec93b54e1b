"""ConsumerGroupHeartbeat: how a member of a consumer group joins, follows the target assignment, and leaves.

One heartbeat decides everything that is due: the member's new subscription, the group's next epoch, a new target
assignment, and the member's own next step towards it. Most heartbeats decide nothing and write nothing.

A member is told its partitions when they change, and again until it says that it has them: an answer may be lost, and
clients (librdkafka) send the same heartbeat once more when that happens, without a word about it.

Fencing: a member speaks with the epoch it was last told. A higher one is an impostor's; a lower one is refused,
except the one before, from a member that still owns no more than what it is assigned: its last answer was lost.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.groups.core.assignors import SERVER_ASSIGNORS, choose_assignor
from tidemill.groups.core.catalog import TopicCatalog
from tidemill.groups.core.consumer_group import ConsumerGroup, MemberState, digest_topics, reconcile
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
LEAVE_FOR_A_WHILE_EPOCH = -2  # a static member that will be back

NEW_MEMBER = CurrentValue(0, 0, MemberState.STABLE, NO_PARTITIONS, NO_PARTITIONS)


class HeartbeatRequest(NamedTuple):
    """What a member says; None (and -1) mean "as before"."""

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

    @property
    def is_full(self) -> bool:
        """Whether the member says all about itself, as one does that has lost an answer."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


class HeartbeatAnswer(NamedTuple):
    """The member's epoch, and its partitions where it must learn of them."""

    member_id: str
    member_epoch: int
    heartbeat_ms: int
    assigned: Partitions | None = None


class Beat(NamedTuple):
    """A decided heartbeat: the answer is given after the step is done."""

    step: GroupStep
    answer: HeartbeatAnswer


def check_request(request: HeartbeatRequest) -> None:
    """Refuse what contradicts the protocol."""
    joins = request.member_epoch == JOIN_EPOCH
    if request.member_epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise InvalidRequest("the member epoch is below -2")
    if not request.member_id:
        raise InvalidRequest("the member id is empty")
    if request.instance_id == "" or request.rack_id == "":
        raise InvalidRequest("an instance id or rack id must not be empty")
    if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
        raise InvalidRequest("only a member with an instance id leaves for a while")
    if joins and request.rebalance_timeout_ms == -1:
        raise InvalidRequest("a member that joins must give its rebalance timeout")
    if joins and (request.owned is None or request.owned):
        raise InvalidRequest("a member that joins owns nothing, and must say so")
    if joins and request.topic_names is None and request.topic_regex is None:
        raise InvalidRequest("a member that joins must subscribe to something")
    if request.server_assignor is not None and request.server_assignor not in SERVER_ASSIGNORS:
        known = ", ".join(SERVER_ASSIGNORS)
        raise UnsupportedAssignor(f"{request.server_assignor} is not one of {known}")


def decision_size(group: ConsumerGroup | None, request: HeartbeatRequest, catalog: TopicCatalog) -> int:
    """About how many names, members and partitions a heartbeat goes through: many only where it may assign anew."""
    own = len(request.topic_names or ()) + len(request.owned or ())
    if group is None:
        return own + catalog.partitions
    says = request.topic_names is not None or request.topic_regex is not None or request.server_assignor is not None
    due = group.epoch > group.target_epoch or group.catalog_version != catalog.version
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
    epoch = _next_epoch(group, members, before, after, catalog, entries)
    target_epoch, target = group.target_epoch, group.targets.get(former or request.member_id, NO_PARTITIONS)
    if epoch > group.target_epoch:
        target_epoch = epoch
        target = _new_target(group, members, former, request.member_id, catalog, epoch, entries)
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
        group.touch(request.member_id, now_ms)
        group.watch_revocation(request.member_id, now_ms)

    news = request.member_epoch != following.epoch or following.assigned != current.assigned
    owned = group.owned.get(request.member_id) if request.owned is None else request.owned
    tells = request.is_full or news or (owned is not None and owned != following.assigned)
    return Beat(
        GroupStep(tuple(entries), then),
        HeartbeatAnswer(
            request.member_id,
            following.epoch,
            group.limits.consumer_heartbeat_ms,
            following.assigned if tells else None,
        ),
    )


def leave(group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> Beat:
    """A member goes: for good, or, being static, for as long as its session."""
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
    """LeaveGroup on a consumer group: an operator takes members out."""
    results = []
    gone: dict[str, None] = {}
    for leaver in leavers:
        owner = leaver.member_id if leaver.instance_id is None else group.static.get(leaver.instance_id, "")
        error: KafkaError | None = None
        if owner not in group.members:
            error = UnknownMemberId()
        elif leaver.member_id and leaver.member_id != owner:
            error = FencedInstanceId()
        else:
            gone[owner] = None
        results.append(Left(leaver, error))
    return GroupStep(group.removal(list(gone))), results


def _static_member(group: ConsumerGroup, request: HeartbeatRequest) -> str:
    member_id = group.static.get(request.instance_id or "")
    if member_id is None:
        raise UnknownMemberId
    if member_id != request.member_id:
        raise FencedInstanceId
    return member_id


def _former_self(group: ConsumerGroup, request: HeartbeatRequest) -> str | None:
    """The id under which a static member that joins was here before, if it was another."""
    if request.instance_id is None:
        return None
    if request.member_epoch != JOIN_EPOCH:
        _static_member(group, request)
        return None
    former = group.static.get(request.instance_id)
    if former is None or former == request.member_id:
        return None
    both_new = request.classic is None and group.members[former].classic is None  # classic ones do not say goodbye
    if both_new and group.current[former].epoch != LEAVE_FOR_A_WHILE_EPOCH:
        raise UnreleasedInstanceId(f"{request.instance_id} is still in use by {former}")
    return former


def _current(group: ConsumerGroup, request: HeartbeatRequest, former: str | None) -> CurrentValue:
    """The member's state before this heartbeat; refuses whoever is behind."""
    if former is not None:
        return NEW_MEMBER._replace(assigned=group.current[former].assigned)
    current = group.current.get(request.member_id)
    if request.member_epoch == JOIN_EPOCH:
        if current is None and len(group.members) >= group.limits.consumer_members_max:
            raise GroupMaxSizeReached(f"the group has {group.limits.consumer_members_max} members")
        return current or NEW_MEMBER
    if current is None:
        raise UnknownMemberId
    if request.member_epoch == current.epoch:
        return current
    is_last = request.member_epoch == current.previous_epoch
    if not is_last or request.owned is None or not request.owned <= current.assigned:
        raise FencedMemberEpoch(f"the member's epoch is {current.epoch}, not {request.member_epoch}")
    return current


def _check_pattern(group: ConsumerGroup, request: HeartbeatRequest) -> None:
    if request.topic_regex:
        if len(request.topic_regex) > group.limits.pattern_length_max:
            raise InvalidRegularExpression(f"a pattern has at most {group.limits.pattern_length_max} characters")
        group.pattern(request.topic_regex)


def _described(before: MemberValue | None, request: HeartbeatRequest) -> MemberValue:
    """What is known of the member now: news over what it said before."""
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
    """The new incarnation of a static member takes over its former self's target."""
    target = group.targets.get(former, NO_PARTITIONS)
    return [*group.member_tombstones(former), GroupEntry(TargetKey(group.group_id, member_id), TargetValue(target))]


def _next_epoch(
    group: ConsumerGroup,
    members: dict[str, MemberValue],
    before: MemberValue | None,
    after: MemberValue,
    catalog: TopicCatalog,
    entries: list[GroupEntry],
) -> int:
    """The group's epoch: one more when a member came, a subscription changed, or a subscribed topic did."""
    changed = before is None or _wishes(before) != _wishes(after)
    if not changed and catalog.version == group.catalog_version:
        return group.epoch
    topics = frozenset(topic for member in members.values() for topic in group.topics_of(member, catalog))
    topics_hash = digest_topics(topics, catalog)
    if not changed and topics_hash == group.topics_hash:
        return group.epoch
    entries.append(GroupEntry(ConsumerGroupKey(group.group_id), ConsumerGroupValue(group.epoch + 1, topics_hash)))
    return group.epoch + 1


def _wishes(member: MemberValue) -> tuple[object, ...]:
    return member.topic_names, member.topic_regex, member.server_assignor


def _new_target(
    group: ConsumerGroup,
    members: dict[str, MemberValue],
    former: str | None,
    member_id: str,
    catalog: TopicCatalog,
    epoch: int,
    entries: list[GroupEntry],
) -> Partitions:
    """Assign anew; entries only for members whose target changes. Gives this member's."""
    previous = dict(group.targets)
    if former is not None:
        previous[member_id] = previous.pop(former, NO_PARTITIONS)
    subscriptions = {each: group.topics_of(value, catalog) for each, value in members.items()}
    counts = {topic: catalog.by_id[topic].partitions for topics in subscriptions.values() for topic in topics}
    name = choose_assignor(value.server_assignor for value in members.values())
    targets = SERVER_ASSIGNORS[name](subscriptions, counts, previous)
    entries.extend(
        GroupEntry(TargetKey(group.group_id, each), TargetValue(share))
        for each, share in targets.items()
        if share != group.targets.get(each)
    )
    entries.append(GroupEntry(TargetEpochKey(group.group_id), TargetEpochValue(epoch)))
    share: Partitions = targets[member_id]
    return share
