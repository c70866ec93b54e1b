"""A classic group: members that agree on a generation, its leader and an assignment.

    Empty --join--> PreparingRebalance --all joined or timeout--> CompletingRebalance --leader's sync--> Stable
      ^                 |      ^                                       |                                  |
      +-- no members ---+      +------- join, leave, lost member ------+----------------------------------+

Rules:
- Every request that changes the group names its generation and member. An outdated one is rejected.
- A join is parked until the generation is complete, a sync until the leader has sent the assignments. Answers go to
  `outbox`; the caller delivers them after the step's entries are durable.
- Only two things are journaled: the assignments of a generation (its end), and that the group is empty. They change the
  group only through `replay`. So a failed append changes nothing, and a restart finds the same group.
- A generation without assignments is not journaled, so its number may be used again after a crash. Members that joined
  it before have no assignment and are rejected, as in Kafka.
- Time is passed in as `now_ms`. `wake_ms` is never later than the next deadline; `tick` recomputes it.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from enum import StrEnum

from tidemill.groups.core.entries import GroupEntry, GroupKey, GroupValue
from tidemill.groups.core.limits import GroupLimits
from tidemill.groups.core.member import GroupMember, choose_protocol
from tidemill.groups.core.messages import Answer, GroupStep, JoinAnswer, JoinRequest, Protocols, SyncAnswer, Ticket
from tidemill.groups.core.subscriptions import read_subscription
from tidemill.model.errors import (
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)

NEVER_MS = 1 << 62
REBALANCES_KEPT = 64
"""How many times of rebalances a group remembers."""
EMPTY_RETRY_MS = 1_000
CONSUMER_PROTOCOL = "consumer"


class ClassicState(StrEnum):
    """The states of a classic group, in Kafka's spelling."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup:
    """One group. `classic_membership.py` implements the requests of its members."""

    kind = "classic"

    def __init__(self, group_id: str, limits: GroupLimits, now_ms: int) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = ClassicState.EMPTY
        self.state_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, GroupMember] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, int] = {}  # ids given out but not yet joined with, and when they expire
        self.outbox: list[tuple[Ticket, Answer]] = []
        self.wake_ms = NEVER_MS
        self.rebalanced_ms: deque[int] = deque(maxlen=REBALANCES_KEPT)  # since this coordinator took over
        self._supported: Counter[str] = Counter()
        self._joined = 0
        self._entries: list[GroupEntry] = []
        self._was_empty = False
        self._join_deadline_ms = NEVER_MS
        self._initial_left_ms = 0
        self._member_added = False
        self._sync_deadline_ms = NEVER_MS
        self._unsynced: set[str] = set()

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members and self.state in {ClassicState.EMPTY, ClassicState.PREPARING}

    @property
    def is_unused(self) -> bool:
        """Whether the group was never journaled and has no members."""
        return self.is_empty and self.generation == 0 and not self.pending

    def find(self, member_id: str, instance_id: str | None) -> GroupMember:
        """Return the member that sent the request. An instance id belongs to the member that took it last."""
        if instance_id is not None:
            owner = self.static.get(instance_id)
            if owner is None:
                raise UnknownMemberId
            if owner != member_id:
                raise FencedInstanceId
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId
        return member

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols is compatible with the others."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        everyone = len(self.members)
        return protocol_type == self.protocol_type and any(self._supported[name] == everyone for name, _ in protocols)

    def reads(self) -> Callable[[str], bool]:
        """Return a predicate: whether a member subscribes to a topic.

        Members that are not consumers may read any topic.
        """
        if self.protocol_type != CONSUMER_PROTOCOL:
            has_members = bool(self.members)
            return lambda _topic: has_members
        topics: set[str] = set()
        for member in self.members.values():
            subscription = read_subscription(member.subscription(self.protocol))
            if subscription is None:
                return lambda _topic: True
            topics.update(subscription.topics)
        return topics.__contains__

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Extend the member's session; raise RebalanceInProgress during a rebalance, so that the member rejoins."""
        if self.state is ClassicState.EMPTY:
            raise UnknownMemberId
        member = self.find(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGeneration
        self.touch(member, now_ms)
        if self.state is ClassicState.PREPARING:
            raise RebalanceInProgress

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool) -> None:
        """Check that this member may commit offsets.

        A group without members also accepts commits without a member id.
        """
        if generation < 0 and self.state is ClassicState.EMPTY:
            return
        if generation < 0 and in_transaction and not member_id and instance_id is None:
            return  # producers before KIP-447 do not name a member
        if not member_id and generation < 0:
            raise UnknownMemberId
        self.find(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGeneration
        if self.state is ClassicState.COMPLETING and not in_transaction:
            raise RebalanceInProgress

    # -- members ------------------------------------------------------------------------------------------------------

    def add(self, member: GroupMember) -> None:
        """Add a member; it takes part from the next generation on."""
        self.members[member.member_id] = member
        self.pending.pop(member.member_id, None)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self._supported.update({name for name, _ in member.protocols})

    def discard(self, member: GroupMember, error: KafkaError) -> None:
        """Remove a member; its waiting requests are answered with `error`."""
        self.answer_join(member, error)
        self.answer_sync(member, error)
        self.members.pop(member.member_id, None)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        self._unsynced.discard(member.member_id)
        self._supported.subtract({name for name, _ in member.protocols})
        if self.leader == member.member_id:
            self.leader = None

    def update(self, member: GroupMember, request: JoinRequest) -> None:
        """Replace the member's details with those of a later join."""
        self._supported.subtract({name for name, _ in member.protocols})
        member.update(request)
        self._supported.update({name for name, _ in member.protocols})

    def adopt(self, member: GroupMember, protocols: Protocols) -> None:
        """Restore all protocols of a member, because the journal stores only the chosen one."""
        self._supported.subtract({name for name, _ in member.protocols})
        member.protocols = protocols
        self._supported.update({name for name, _ in member.protocols})

    def rename(self, member: GroupMember, member_id: str) -> None:
        """Give a static member the id of its new incarnation; the old one is fenced."""
        self.answer_join(member, FencedInstanceId())
        self.answer_sync(member, FencedInstanceId())
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        if member.member_id in self._unsynced:
            self._unsynced.remove(member.member_id)
            self._unsynced.add(member_id)
        member.member_id = member_id
        self.members[member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member_id

    def touch(self, member: GroupMember, now_ms: int) -> None:
        """Restart the member's session."""
        member.deadline_ms = now_ms + member.session_timeout_ms
        self.arm(member.deadline_ms)

    def arm(self, deadline_ms: int) -> None:
        """Make sure that `tick` runs at `deadline_ms` or earlier."""
        self.wake_ms = min(self.wake_ms, deadline_ms)

    # -- waiting and answering ----------------------------------------------------------------------------------------

    def park_join(self, member: GroupMember, ticket: Ticket) -> None:
        """Let the member wait for the next generation; an older join of it fails."""
        self.answer_join(member, RebalanceInProgress())
        member.join_ticket = ticket
        self._joined += 1

    def answer_join(self, member: GroupMember, answer: JoinAnswer | KafkaError) -> None:
        """Answer the member's join, if one waits."""
        if member.join_ticket is not None:
            self.outbox.append((member.join_ticket, answer))
            member.join_ticket = None
            self._joined -= 1

    def answer_sync(self, member: GroupMember, answer: SyncAnswer | KafkaError) -> None:
        """Answer the member's sync, if one waits."""
        if member.sync_ticket is not None:
            self.outbox.append((member.sync_ticket, answer))
            member.sync_ticket = None

    def synced(self, member: GroupMember) -> None:
        """Record that the member has asked for its assignment."""
        self._unsynced.discard(member.member_id)

    def sync_answer(self, member: GroupMember) -> SyncAnswer:
        """Return the member's assignment in this generation."""
        return SyncAnswer(self.protocol_type, self.protocol, member.assignment)

    def join_answer(self, member: GroupMember) -> JoinAnswer:
        """Return the member's result of this generation; the leader also gets the subscriptions of all members."""
        leads = member.member_id == self.leader
        return JoinAnswer(
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            tuple(other.as_joined(self.protocol) for other in self.members.values()) if leads else (),
        )

    def step(self, then: Callable[[], None] | None = None) -> GroupStep:
        """Return a step with the entries that have gathered since the last step."""
        entries, self._entries = tuple(self._entries), []
        return GroupStep(entries, then)

    # -- the rebalance ------------------------------------------------------------------------------------------------

    def rebalance(self, now_ms: int) -> None:
        """Start a new generation after a change of members, or check whether the running rebalance is complete."""
        if self.state is not ClassicState.PREPARING:
            self._prepare(now_ms)
        self.complete_if_joined(now_ms)

    def member_joined_first(self) -> None:
        """Restart the initial delay, because a new member joined."""
        self._member_added = True

    def complete_if_joined(self, now_ms: int) -> None:
        """Complete the generation when all members have joined; the first one of an empty group waits for its delay."""
        everyone = self._joined == len(self.members) and not self.pending
        if self.state is ClassicState.PREPARING and everyone and not self._was_empty:
            self._complete(now_ms)

    def _prepare(self, now_ms: int) -> None:
        if self.state is ClassicState.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                self.answer_sync(member, RebalanceInProgress())
        self._unsynced.clear()
        self._sync_deadline_ms = NEVER_MS
        self._was_empty = self.state is ClassicState.EMPTY
        self._enter(ClassicState.PREPARING, now_ms)
        wait_ms = self._rebalance_timeout_ms()
        if self._was_empty:
            delay_ms = self.limits.initial_rebalance_delay_ms
            self._initial_left_ms = max(wait_ms - delay_ms, 0)
            self._member_added = False
            wait_ms = delay_ms
            self._was_empty = delay_ms > 0
        self._join_deadline_ms = now_ms + wait_ms
        self.arm(self._join_deadline_ms)

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _on_join_timeout(self, now_ms: int) -> None:
        if self._was_empty and self._member_added and self._initial_left_ms > 0:
            delay_ms = min(self.limits.initial_rebalance_delay_ms, self._initial_left_ms)
            self._initial_left_ms -= delay_ms
            self._member_added = False
            self._join_deadline_ms = now_ms + delay_ms
            return
        self._complete(now_ms)

    def _complete(self, now_ms: int) -> None:
        for member in [m for m in self.members.values() if m.join_ticket is None and m.instance_id is None]:
            self.discard(member, UnknownMemberId())
        if not self.members:
            self._join_deadline_ms = now_ms + EMPTY_RETRY_MS  # retried if the journal rejects the entry
            self.arm(self._join_deadline_ms)
            self._entries.append(GroupEntry(GroupKey(self.group_id), self._empty_value(now_ms)))
            return
        if not self._elect():
            # Only static members are left and none has rejoined: wait until their sessions end.
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms()
            self.arm(self._join_deadline_ms)
            return
        self._next_generation(now_ms)

    def _elect(self) -> bool:
        """Keep the leader if it has joined, else elect the first member that has; return whether there is one."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join_ticket is None:
            leader = next((member for member in self.members.values() if member.join_ticket is not None), None)
        if leader is None:
            return False
        self.leader = leader.member_id
        return True

    def _next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol = choose_protocol(member.protocols for member in self.members.values())
        self._was_empty = False
        self._enter(ClassicState.COMPLETING, now_ms)
        self._unsynced = {member.member_id for member in self.members.values() if member.join_ticket is not None}
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms()
        self.arm(self._sync_deadline_ms)
        for member in self.members.values():
            if member.join_ticket is not None:
                member.is_new = False
                self.touch(member, now_ms)
                self.answer_join(member, self.join_answer(member))

    def _enter(self, state: ClassicState, now_ms: int) -> None:
        self.state = state
        self.state_ms = now_ms

    # -- the journal --------------------------------------------------------------------------------------------------

    def value(self, now_ms: int, assignments: Mapping[str, bytes] | None = None) -> GroupValue:
        """Return the group as the journal stores it, with these assignments or the current ones."""
        members = tuple(
            member.snapshot(self.protocol, None if assignments is None else assignments.get(member.member_id, b""))
            for member in self.members.values()
        )
        return GroupValue(self.protocol_type or "", self.generation, self.protocol, self.leader, now_ms, members)

    def _empty_value(self, now_ms: int) -> GroupValue:
        return GroupValue(self.protocol_type or "", self.generation + 1, None, None, now_ms, ())

    def replay(self, value: GroupValue) -> None:
        """Apply a journaled value. Known members keep the fields that exist only in memory."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self._replay_members(value)
        self.leader = value.leader
        self._enter(ClassicState.STABLE if value.members else ClassicState.EMPTY, value.state_ms)
        self._was_empty = False

    def _replay_members(self, value: GroupValue) -> None:
        kept = {snapshot.member_id for snapshot in value.members}
        for member in [member for member in self.members.values() if member.member_id not in kept]:
            self.discard(member, FencedInstanceId())
        for snapshot in value.members:
            known = self.members.get(snapshot.member_id)
            if known is not None and known.snapshot(value.protocol, snapshot.assignment) == snapshot:
                known.assignment = snapshot.assignment
                continue
            if known is not None:  # an older journal entry, read at start
                self.discard(known, UnknownMemberId())
            self.add(GroupMember.of_snapshot(snapshot, value.protocol or ""))

    def loaded(self, now_ms: int) -> None:
        """Give every member a whole session after the journal was read."""
        for member in self.members.values():
            self.touch(member, now_ms)

    # -- time ---------------------------------------------------------------------------------------------------------

    def shift(self, by_ms: int) -> None:
        """Move all deadlines after the clock was set, so that every remaining time stays the same."""
        for member in self.members.values():
            member.deadline_ms += by_ms
        self.pending = {member_id: until_ms + by_ms for member_id, until_ms in self.pending.items()}
        self._join_deadline_ms = shifted(self._join_deadline_ms, by_ms)
        self._sync_deadline_ms = shifted(self._sync_deadline_ms, by_ms)
        self.wake_ms = shifted(self.wake_ms, by_ms)

    def tick(self, now_ms: int) -> GroupStep:
        """Act on every deadline that has passed, and find the next one."""
        self._expire_pending(now_ms)
        self._expire_members(now_ms)
        if self.state is ClassicState.PREPARING and now_ms >= self._join_deadline_ms:
            self._on_join_timeout(now_ms)
        if now_ms >= self._sync_deadline_ms:
            self._expire_unsynced(now_ms)
        self.wake_ms = self._next_deadline_ms()
        return self.step()

    def _expire_pending(self, now_ms: int) -> None:
        for member_id in [member_id for member_id, until_ms in self.pending.items() if now_ms >= until_ms]:
            del self.pending[member_id]
            self.complete_if_joined(now_ms)

    def _expire_members(self, now_ms: int) -> None:
        for member in list(self.members.values()):
            if now_ms >= member.deadline_ms and member.can_expire and member.member_id in self.members:
                self.discard(member, UnknownMemberId())
                self.rebalance(now_ms)

    def _expire_unsynced(self, now_ms: int) -> None:
        self._sync_deadline_ms = NEVER_MS
        late = [self.members[member_id] for member_id in sorted(self._unsynced) if member_id in self.members]
        for member in late:
            self.discard(member, UnknownMemberId())
        if late:
            self.rebalance(now_ms)

    def _next_deadline_ms(self) -> int:
        deadlines = [member.deadline_ms for member in self.members.values() if member.can_expire]
        deadlines.extend(self.pending.values())
        deadlines.append(self._join_deadline_ms if self.state is ClassicState.PREPARING else NEVER_MS)
        deadlines.append(self._sync_deadline_ms)
        return min(deadlines)


def shifted(deadline_ms: int, by_ms: int) -> int:
    """Return a deadline after the clock was set; `NEVER_MS` stays `NEVER_MS`."""
    return deadline_ms if deadline_ms == NEVER_MS else deadline_ms + by_ms
