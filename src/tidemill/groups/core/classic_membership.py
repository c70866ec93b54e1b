"""How members come to a classic group, take their assignment, and go: JoinGroup, SyncGroup, LeaveGroup.

Rules:
- Newer clients join twice (KIP-394): the first join only gives out an id, so that a client that gives up before the
  answer leaves no member behind. The id is kept for a session.
- A static member (KIP-345) is known by its instance id. When it comes back to a stable group and the protocol stays, it
  takes over the assignment of its former self without a rebalance.
- A member that joins again is never dropped: cooperative rebalancing (KIP-429) is two quick generations in a row.
"""

from collections.abc import Mapping, Sequence

from tidemill.groups.core.classic_group import ClassicGroup, ClassicState
from tidemill.groups.core.entries import GroupEntry, GroupKey
from tidemill.groups.core.member import GroupMember, choose_protocol
from tidemill.groups.core.messages import GroupStep, JoinAnswer, JoinRequest, Leaver, Left, SyncRequest, Ticket
from tidemill.model.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)


def join(group: ClassicGroup, request: JoinRequest, ticket: Ticket, new_id: str, now_ms: int) -> GroupStep:
    """JoinGroup: the answer comes when the generation is complete, or at once where nothing has to be waited for.

    `new_id` becomes the member's id where the request has none.
    """
    _check_size(group, request.member_id)
    if not group.supports(request.protocol_type, request.protocols):
        raise InconsistentGroupProtocol
    if request.member_id:
        return _join_again(group, request, ticket, now_ms)
    if request.instance_id is not None and request.instance_id in group.static:
        return _take_over(group, request, ticket, new_id, now_ms)
    if request.instance_id is None and request.takes_member_id_first:
        group.pending[new_id] = now_ms + request.session_timeout_ms
        group.arm(group.pending[new_id])
        group.outbox.append((ticket, JoinAnswer(new_id, error=MemberIdRequired())))
        return group.step()
    return _join_first(group, new_id, request, ticket, now_ms)


def _check_size(group: ClassicGroup, member_id: str) -> None:
    most = group.limits.members_max
    known = member_id in group.members or member_id in group.pending
    if not known and len(group.members) + len(group.pending) >= most:
        raise GroupMaxSizeReached(f"the group has {most} members")


def _join_first(group: ClassicGroup, member_id: str, request: JoinRequest, ticket: Ticket, now_ms: int) -> GroupStep:
    member = GroupMember.of_request(member_id, request)
    member.is_new = True
    member.deadline_ms = now_ms + group.limits.new_member_timeout_ms
    group.arm(member.deadline_ms)
    if not group.members:
        group.protocol_type = request.protocol_type
    group.add(member)
    group.park_join(member, ticket)
    group.member_joined_first()
    group.rebalance(now_ms)
    return group.step()


def _join_again(group: ClassicGroup, request: JoinRequest, ticket: Ticket, now_ms: int) -> GroupStep:
    if request.member_id in group.pending and request.instance_id is None:
        return _join_first(group, request.member_id, request, ticket, now_ms)
    member = group.find(request.member_id, request.instance_id)
    same = member.protocols == request.protocols
    is_leader = member.member_id == group.leader
    settled = group.state is ClassicState.COMPLETING or (group.state is ClassicState.STABLE and not is_leader)
    if same and settled:
        # A repeated join whose answer was lost, or a follower that changes nothing: its place is still right.
        group.touch(member, now_ms)
        group.outbox.append((ticket, group.join_answer(member)))
        return group.step()
    _park_again(group, member, request, ticket, now_ms)
    return group.step()


def _park_again(group: ClassicGroup, member: GroupMember, request: JoinRequest, ticket: Ticket, now_ms: int) -> None:
    group.update(member, request)
    group.touch(member, now_ms)
    group.park_join(member, ticket)
    group.rebalance(now_ms)


def _take_over(group: ClassicGroup, request: JoinRequest, ticket: Ticket, new_id: str, now_ms: int) -> GroupStep:
    """A static member is back under a new id."""
    member = group.members[group.static[request.instance_id or ""]]
    others = [other.protocols for other in group.members.values() if other is not member]
    if group.state is ClassicState.STABLE and choose_protocol([*others, request.protocols]) == group.protocol:
        return _take_over_quietly(group, member, request, ticket, new_id, now_ms)
    group.rename(member, new_id)
    _park_again(group, member, request, ticket, now_ms)
    return group.step()


def _take_over_quietly(
    group: ClassicGroup, member: GroupMember, request: JoinRequest, ticket: Ticket, new_id: str, now_ms: int
) -> GroupStep:
    """No rebalance: the journal learns of the new id, then the member gets its former self's place.

    A leader must not assign anew. Newer versions are told so (`skip_assignment`); older ones are given the former
    leader's id, so that they take themselves for a follower.
    """
    old_id, old_leader = member.member_id, group.leader
    was_leader = old_leader == old_id
    successor = GroupMember.of_request(new_id, request)
    members = tuple(
        successor.snapshot(group.protocol, member.assignment) if other is member else other.snapshot(group.protocol)
        for other in group.members.values()
    )
    value = group.value(now_ms)._replace(members=members, leader=new_id if was_leader else old_leader)

    def then() -> None:
        heir = group.members[new_id]
        group.update(heir, request)
        group.touch(heir, now_ms)
        answer = group.join_answer(heir)
        if was_leader and request.skips_assignment:
            answer = answer._replace(skip_assignment=True)
        elif was_leader:
            answer = answer._replace(leader=old_id, members=())
        group.outbox.append((ticket, answer))

    return GroupStep((GroupEntry(GroupKey(group.group_id), value),), then)


def sync(group: ClassicGroup, request: SyncRequest, ticket: Ticket, now_ms: int) -> GroupStep:
    """SyncGroup: the leader's assignments end the rebalance, everyone else waits for them."""
    member = group.find(request.member_id, request.instance_id)
    if request.generation != group.generation:
        raise IllegalGeneration
    _check_protocol(group, request)
    if group.state is ClassicState.PREPARING:
        raise RebalanceInProgress
    if group.state is ClassicState.STABLE:
        group.synced(member)
        group.touch(member, now_ms)
        group.outbox.append((ticket, group.sync_answer(member)))
        return group.step()
    if member.member_id != group.leader:
        group.synced(member)
        group.answer_sync(member, RebalanceInProgress())
        member.sync_ticket = ticket
        return group.step()
    return _assign(group, member, request.assignments, ticket, now_ms)


def _check_protocol(group: ClassicGroup, request: SyncRequest) -> None:
    wrong_type = request.protocol_type is not None and request.protocol_type != group.protocol_type
    if wrong_type or (request.protocol is not None and request.protocol != group.protocol):
        raise InconsistentGroupProtocol


def _assign(
    group: ClassicGroup, leader: GroupMember, assignments: Mapping[str, bytes], ticket: Ticket, now_ms: int
) -> GroupStep:
    def then() -> None:
        group.synced(leader)
        group.touch(leader, now_ms)
        group.outbox.append((ticket, group.sync_answer(leader)))
        for member in group.members.values():
            if member.sync_ticket is not None:
                group.touch(member, now_ms)
                group.answer_sync(member, group.sync_answer(member))

    return GroupStep((GroupEntry(GroupKey(group.group_id), group.value(now_ms, assignments)),), then)


def leave(group: ClassicGroup, leavers: Sequence[Leaver], now_ms: int) -> tuple[GroupStep, list[Left]]:
    """LeaveGroup: each member on its own; the others begin a new generation."""
    results = []
    for leaver in leavers:
        try:
            _leave(group, leaver, now_ms)
        except KafkaError as error:
            results.append(Left(leaver, error))
        else:
            results.append(Left(leaver))
    return group.step(), results


def _leave(group: ClassicGroup, leaver: Leaver, now_ms: int) -> None:
    if leaver.instance_id is None and leaver.member_id in group.pending:
        del group.pending[leaver.member_id]
        group.complete_if_joined(now_ms)
        return
    if leaver.instance_id is not None and not leaver.member_id:
        member = group.members.get(group.static.get(leaver.instance_id, ""))
        if member is None:
            raise UnknownMemberId
    else:
        member = group.find(leaver.member_id, leaver.instance_id)
    group.discard(member, FencedInstanceId() if member.instance_id else UnknownMemberId())
    group.rebalance(now_ms)
