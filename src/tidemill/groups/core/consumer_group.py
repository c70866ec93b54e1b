"""A consumer group of KIP-848: the broker assigns, members follow one heartbeat at a time.

Three epochs chase each other:
- the group's epoch grows with everything that asks for a new assignment (members, subscriptions, topics);
- the target assignment is made for a group epoch, and says what everyone shall have in the end;
- a member's epoch is the target's epoch once the member has given up all that the target takes from it.

A partition belongs to one member at a time: the new owner gets it only after the old one's heartbeat stopped listing it
(`owners` holds both what is assigned and what is still being revoked).

State changes only by `replay`; `heartbeats.py` decides the entries. What lives in memory alone are deadlines, and what
members said last that they have.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from hashlib import blake2b
from typing import TypeAlias
from uuid import UUID

from tidemill.groups.core.catalog import TopicCatalog
from tidemill.groups.core.classic_group import CONSUMER_PROTOCOL, NEVER_MS, shifted
from tidemill.groups.core.entries import (
    NO_PARTITIONS,
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
    Value,
)
from tidemill.groups.core.limits import GroupLimits
from tidemill.groups.core.messages import Answer, GroupStep, Ticket
from tidemill.groups.core.patterns import TopicPattern
from tidemill.model.errors import IllegalGeneration, StaleMemberEpoch, UnknownMemberId
from tidemill.model.topics import INTERNAL

ConsumerKey: TypeAlias = ConsumerGroupKey | MemberKey | TargetEpochKey | TargetKey | CurrentKey


class MemberState(IntEnum):
    """Where a member is on its way to the target (Kafka's numbers)."""

    STABLE = 0
    REVOKING = 1  # it must give partitions up before its epoch moves
    WAITING = 2  # some of its partitions are not yet given up by others


@dataclass(slots=True)
class Revocation:
    """A member must have given up its partitions by then."""

    epoch: int
    deadline_ms: int


class ConsumerGroup:
    """One group."""

    kind = "consumer"
    protocol_type = CONSUMER_PROTOCOL

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.limits = limits
        self.epoch = 0
        self.topics_hash = 0
        self.target_epoch = 0
        self.members: dict[str, MemberValue] = {}
        self.current: dict[str, CurrentValue] = {}
        self.targets: dict[str, Partitions] = {}
        self.owners: dict[tuple[UUID, int], str] = {}
        self.static: dict[str, str] = {}
        self.owned: dict[str, Partitions] = {}
        self.deadlines: dict[str, int] = {}
        self.revocations: dict[str, Revocation] = {}
        self.catalog_version = -1  # of the topics that `topics_hash` was last compared with
        self.outbox: list[tuple[Ticket, Answer]] = []
        self.wake_ms = NEVER_MS
        self.state_ms = 0
        self.named_topics = 0
        """The topics that members name, each as often as it is named."""
        self._patterns: dict[str, TopicPattern] = {}

    # -- what others ask ----------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    @property
    def is_unused(self) -> bool:
        """Whether it only ever lived in memory."""
        return not self.members and self.epoch == 0

    @property
    def state(self) -> str:
        """The group's state, in Kafka's spelling."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        settled = all(
            member.state == MemberState.STABLE and member.epoch == self.target_epoch for member in self.current.values()
        )
        return "Stable" if settled and len(self.current) == len(self.members) else "Reconciling"

    def check_epoch(self, member_id: str, epoch: int, *, in_transaction: bool = False) -> None:
        """Whether this member may commit or fetch offsets: only with the epoch it has now."""
        if epoch < 0 and (not self.members or (in_transaction and not member_id)):
            return
        current = self.current.get(member_id)
        if current is None:
            raise UnknownMemberId
        if current.epoch != epoch and self.members[member_id].classic is not None:
            raise IllegalGeneration(f"the member's generation is {current.epoch}, not {epoch}")
        if current.epoch != epoch:
            raise StaleMemberEpoch(f"the member's epoch is {current.epoch}, not {epoch}")

    def speaks_classic(self, member_id: str) -> bool:
        """Whether this member uses the classic protocol (see `mixed.py`)."""
        member = self.members.get(member_id)
        return member is not None and member.classic is not None

    def reads(self) -> Callable[[str], bool]:
        """Whether a member subscribes to a topic, by name or by pattern."""
        names = {name for member in self.members.values() for name in member.topic_names}
        patterns = [self.pattern(each) for each in {member.topic_regex for member in self.members.values()} if each]
        return cache(lambda topic: topic in names or any(pattern.matches(topic) for pattern in patterns))

    def topics_of(self, member: MemberValue, catalog: TopicCatalog) -> frozenset[UUID]:
        """The topics that a member reads and that exist."""
        names = [name for name in member.topic_names if name in catalog.by_name]
        if member.topic_regex:
            pattern = self.pattern(member.topic_regex)
            names.extend(name for name in catalog.by_name if name not in INTERNAL and pattern.matches(name))
        return frozenset(catalog.by_name[name].topic_id for name in names)

    def pattern(self, source: str) -> TopicPattern:
        """The compiled pattern; raises InvalidRegularExpression."""
        pattern = self._patterns.get(source)
        if pattern is None:
            pattern = self._patterns[source] = TopicPattern(source)
        return pattern

    # -- time ---------------------------------------------------------------------------------------------------------

    def touch(self, member_id: str, now_ms: int) -> None:
        """The member was heard of."""
        classic = self.members[member_id].classic
        session_ms = self.limits.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        self.deadlines[member_id] = now_ms + session_ms
        self.arm(self.deadlines[member_id])

    def watch_revocation(self, member_id: str, now_ms: int) -> None:
        """Give a member that must revoke its rebalance timeout to do so."""
        current = self.current.get(member_id)
        if current is None or current.state != MemberState.REVOKING:
            self.revocations.pop(member_id, None)
            return
        self.hurry(member_id, current.epoch, now_ms)

    def hurry(self, member_id: str, epoch: int, now_ms: int) -> None:
        """The member has its rebalance timeout to move on from this epoch."""
        known = self.revocations.get(member_id)
        if known is None or known.epoch != epoch:
            deadline_ms = now_ms + max(self.members[member_id].rebalance_timeout_ms, 0)
            self.revocations[member_id] = Revocation(epoch, deadline_ms)
            self.arm(deadline_ms)

    def arm(self, deadline_ms: int) -> None:
        """Make sure that `tick` comes not later than this."""
        self.wake_ms = min(self.wake_ms, deadline_ms)

    def shift(self, by_ms: int) -> None:
        """The clock was set: everybody still has as long as before."""
        self.deadlines = {member_id: until_ms + by_ms for member_id, until_ms in self.deadlines.items()}
        for revocation in self.revocations.values():
            revocation.deadline_ms += by_ms
        self.wake_ms = shifted(self.wake_ms, by_ms)

    def tick(self, now_ms: int) -> GroupStep:
        """Fence the members that were not heard of, or that did not give up their partitions in time."""
        gone = {member_id for member_id, until_ms in self.deadlines.items() if now_ms >= until_ms}
        gone.update(member_id for member_id, each in self.revocations.items() if now_ms >= each.deadline_ms)

        def then() -> None:
            if gone and not self.members:
                self.state_ms = now_ms
            self.wake_ms = min(
                (*self.deadlines.values(), *(each.deadline_ms for each in self.revocations.values())), default=NEVER_MS
            )

        return GroupStep(self.removal(sorted(gone)), then)

    def loaded(self, now_ms: int) -> None:
        """The journal is read: every member gets a whole session to be heard of."""
        self.state_ms = now_ms
        for member_id in self.members:
            self.touch(member_id, now_ms)
            self.watch_revocation(member_id, now_ms)

    # -- entries ------------------------------------------------------------------------------------------------------

    def removal(self, member_ids: list[str]) -> tuple[GroupEntry, ...]:
        """Members go; the rest is assigned anew at the next heartbeat."""
        entries = [entry for member_id in member_ids for entry in self.member_tombstones(member_id)]
        if entries:
            value = ConsumerGroupValue(self.epoch + 1, self.topics_hash)
            entries.append(GroupEntry(ConsumerGroupKey(self.group_id), value))
        return tuple(entries)

    def member_tombstones(self, member_id: str) -> list[GroupEntry]:
        """Everything that is remembered of one member."""
        return [
            GroupEntry(CurrentKey(self.group_id, member_id), None),
            GroupEntry(TargetKey(self.group_id, member_id), None),
            GroupEntry(MemberKey(self.group_id, member_id), None),
        ]

    def tombstones(self) -> tuple[GroupEntry, ...]:
        """Everything that is remembered of the group, the group itself last."""
        entries = [entry for member_id in self.members for entry in self.member_tombstones(member_id)]
        entries.append(GroupEntry(TargetEpochKey(self.group_id), None))
        entries.append(GroupEntry(ConsumerGroupKey(self.group_id), None))
        return tuple(entries)

    def replay(self, key: ConsumerKey, value: Value | None) -> None:
        """Be as the journal says."""
        match key, value:
            case ConsumerGroupKey(), ConsumerGroupValue(epoch, topics_hash):
                self.epoch, self.topics_hash = epoch, topics_hash
            case TargetEpochKey(), TargetEpochValue(epoch):
                self.target_epoch = epoch
            case MemberKey(_, member_id), MemberValue() | None:
                self._replay_member(member_id, value)
            case TargetKey(_, member_id), TargetValue(partitions):
                self.targets[member_id] = partitions
            case TargetKey(_, member_id), None:
                self.targets.pop(member_id, None)
            case CurrentKey(_, member_id), CurrentValue() | None:
                self._replay_current(member_id, value)

    def _replay_member(self, member_id: str, value: MemberValue | None) -> None:
        old = self.members.pop(member_id, None)
        self.named_topics += len(value.topic_names) if value is not None else 0
        self.named_topics -= len(old.topic_names) if old is not None else 0
        if old is not None and old.instance_id is not None and self.static.get(old.instance_id) == member_id:
            del self.static[old.instance_id]
        if value is None:
            self.owned.pop(member_id, None)
            self.deadlines.pop(member_id, None)
            self.revocations.pop(member_id, None)
            return
        self.members[member_id] = value
        if value.instance_id is not None:
            self.static[value.instance_id] = member_id

    def _replay_current(self, member_id: str, value: CurrentValue | None) -> None:
        old = self.current.pop(member_id, None)
        if old is not None:
            for partition in old.assigned | old.revoking:
                if self.owners.get(partition) == member_id:
                    del self.owners[partition]
        if value is not None:
            self.current[member_id] = value
            self.owners.update(dict.fromkeys(value.assigned | value.revoking, member_id))


def digest_topics(topic_ids: frozenset[UUID], catalog: TopicCatalog) -> int:
    """A number that changes when one of the topics is made, deleted or grows. Never 0, which means "not known"."""
    digest = blake2b(digest_size=8)
    for topic_id in sorted(topic_ids):
        digest.update(topic_id.bytes)
        digest.update(catalog.by_id[topic_id].partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) or 1


def reconcile(
    current: CurrentValue, target: Partitions, target_epoch: int, owned: Partitions | None, blocked: Partitions
) -> CurrentValue:
    """The member's next state on its way to the target.

    `owned` is what the member says it has (None: as before); `blocked` is what others have not given up yet.
    """
    if current.state == MemberState.STABLE and current.epoch == target_epoch:
        return current
    if current.state == MemberState.REVOKING and (owned is None or owned & current.revoking):
        return current
    kept = current.assigned & target
    revoking = current.assigned - target
    if revoking and (owned is None or owned & revoking):
        return current._replace(state=MemberState.REVOKING, assigned=kept, revoking=revoking)
    missing = target & blocked
    previous = current.epoch if current.epoch != target_epoch else current.previous_epoch
    state = MemberState.WAITING if missing else MemberState.STABLE
    return CurrentValue(target_epoch, previous, state, target - missing, NO_PARTITIONS)
