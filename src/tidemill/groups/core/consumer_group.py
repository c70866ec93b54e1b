"""A consumer group of KIP-848: the broker assigns, and members follow one heartbeat at a time.

A group has three kinds of epochs:
- The group epoch grows with every change that needs a new assignment (members, subscriptions, topics).
- The target assignment is computed for a group epoch. It lists the partitions that each member gets in the end.
- A member's epoch becomes the target's epoch once the member has given up all partitions that the target takes from it.

A partition belongs to one member at a time. The new owner gets it only after a heartbeat of the old one no longer lists
it (`owners` holds both assigned partitions and those still being revoked).

State changes only by `replay`; `consumer_heartbeat.py` decides the entries. Only deadlines, and the partitions that
members last reported, exist in memory alone.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from tidemill.groups.core.catalog import TopicCatalog
from tidemill.groups.core.classic_group import CONSUMER_PROTOCOL, NEVER_MS, REBALANCES_KEPT, shifted
from tidemill.groups.core.entries import (
    NO_PARTITIONS,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerKey,
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


class MemberState(IntEnum):
    """The progress of a member towards the target (Kafka's numbers)."""

    STABLE = 0
    REVOKING = 1  # it must give up partitions before its epoch changes
    WAITING = 2  # other members have not yet given up some of its partitions


NEW_MEMBER = CurrentValue(0, 0, MemberState.STABLE, NO_PARTITIONS, NO_PARTITIONS)
"""A member before its first step, which has no entry of its own."""


@dataclass(slots=True)
class Revocation:
    """The time by which a member must have given up its partitions."""

    epoch: int
    deadline_ms: int


class TopicView(NamedTuple):
    """The topics that the client of a member may describe: its patterns select no others."""

    key: object
    """Equal as long as the rights of the client are the same."""
    allows: Callable[[str], bool]


class ConsumerGroup:
    """One group."""

    kind = "consumer"
    protocol_type = CONSUMER_PROTOCOL
    group_key = ConsumerGroupKey
    member_key = MemberKey
    target_epoch_key = TargetEpochKey
    target_key = TargetKey
    current_key = CurrentKey

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
        self.views: dict[str, TopicView] = {}
        """The views of members since the start, where rights are checked. They are not journaled."""
        self.deadlines: dict[str, int] = {}
        self.revocations: dict[str, Revocation] = {}
        self.catalog_version = -1  # the catalog version that `topics_hash` was last compared with
        self.outbox: list[tuple[Ticket, Answer]] = []
        self.wake_ms = NEVER_MS
        self.state_ms = 0
        self.rebalanced_ms: deque[int] = deque(maxlen=REBALANCES_KEPT)  # since this coordinator took over
        self.named_topics = 0
        """How many topic names the members subscribe to, counted once per member."""
        self._patterns: dict[str, TopicPattern] = {}

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """The epoch, under the name that it has in a classic group."""
        return self.epoch

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def is_unused(self) -> bool:
        """Whether the group was never journaled and has no members."""
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
        """Check that this member may commit or fetch offsets: only with its current epoch."""
        if epoch < 0 and (not self.members or (in_transaction and not member_id)):
            return
        current = self.current.get(member_id)
        if current is None:
            raise UnknownMemberId
        if current.epoch != epoch and self.members[member_id].classic is not None:
            raise IllegalGeneration(f"generation {epoch} is not current; the member's generation is {current.epoch}")
        if current.epoch != epoch:
            raise StaleMemberEpoch(f"epoch {epoch} is not current; the member's epoch is {current.epoch}")

    def speaks_classic(self, member_id: str) -> bool:
        """Whether this member uses the classic protocol (see `protocol_migration.py`)."""
        member = self.members.get(member_id)
        return member is not None and member.classic is not None

    def reads(self) -> Callable[[str], bool]:
        """Return a predicate: whether a member subscribes to a topic, by name or by pattern."""
        names = {name for member in self.members.values() for name in member.topic_names}
        patterns = [self.pattern(each) for each in {member.topic_regex for member in self.members.values()} if each]
        return cache(lambda topic: topic in names or any(pattern.matches(topic) for pattern in patterns))

    def topics_of(self, member: MemberValue, catalog: TopicCatalog, view: TopicView | None = None) -> frozenset[UUID]:
        """Return the existing topics that a member subscribes to; by a pattern only those that its client may see."""
        names = [name for name in member.topic_names if name in catalog.by_name]
        if member.topic_regex:
            pattern = self.pattern(member.topic_regex)
            matching = (name for name in catalog.by_name if name not in INTERNAL and pattern.matches(name))
            names.extend(name for name in matching if view is None or view.allows(name))
        return frozenset(catalog.by_name[name].topic_id for name in names)

    def pattern(self, source: str) -> TopicPattern:
        """Return the compiled pattern. Raises InvalidRegularExpression."""
        pattern = self._patterns.get(source)
        if pattern is None:
            pattern = self._patterns[source] = TopicPattern(source)
        return pattern

    @property
    def session_ms(self) -> int:
        """The session timeout of members that do not use the classic protocol."""
        return self.limits.consumer_session_timeout_ms

    # -- time ---------------------------------------------------------------------------------------------------------

    def touch(self, member_id: str, now_ms: int) -> None:
        """Restart the member's session."""
        classic = self.members[member_id].classic
        session_ms = self.session_ms if classic is None else classic.session_timeout_ms
        self.deadlines[member_id] = now_ms + session_ms
        self.arm(self.deadlines[member_id])

    def watch_revocation(self, member_id: str, now_ms: int) -> None:
        """Start the rebalance timeout of a member that must revoke partitions."""
        current = self.current.get(member_id)
        if current is None or current.state != MemberState.REVOKING:
            self.revocations.pop(member_id, None)
            return
        self.start_rebalance_timeout(member_id, current.epoch, now_ms)

    def start_rebalance_timeout(self, member_id: str, epoch: int, now_ms: int) -> None:
        """Give the member its rebalance timeout to leave this epoch."""
        known = self.revocations.get(member_id)
        if known is None or known.epoch != epoch:
            deadline_ms = now_ms + max(self.members[member_id].rebalance_timeout_ms, 0)
            self.revocations[member_id] = Revocation(epoch, deadline_ms)
            self.arm(deadline_ms)

    def arm(self, deadline_ms: int) -> None:
        """Make sure that `tick` runs at `deadline_ms` or earlier."""
        self.wake_ms = min(self.wake_ms, deadline_ms)

    def shift(self, by_ms: int) -> None:
        """Move all deadlines after the clock was set, so that every remaining time stays the same."""
        self.deadlines = {member_id: until_ms + by_ms for member_id, until_ms in self.deadlines.items()}
        for revocation in self.revocations.values():
            revocation.deadline_ms += by_ms
        self.wake_ms = shifted(self.wake_ms, by_ms)

    def tick(self, now_ms: int) -> GroupStep:
        """Fence the members whose session ended, or that did not give up their partitions in time."""
        expired = {member_id for member_id, until_ms in self.deadlines.items() if now_ms >= until_ms}
        expired.update(member_id for member_id, each in self.revocations.items() if now_ms >= each.deadline_ms)

        def then() -> None:
            if expired and not self.members:
                self.state_ms = now_ms
            self.wake_ms = min(
                (*self.deadlines.values(), *(each.deadline_ms for each in self.revocations.values())), default=NEVER_MS
            )

        return GroupStep(self.removal(sorted(expired)), then)

    def loaded(self, now_ms: int) -> None:
        """Give every member a whole session after the journal was read."""
        self.state_ms = now_ms
        for member_id in self.members:
            self.touch(member_id, now_ms)
            self.watch_revocation(member_id, now_ms)

    # -- entries ------------------------------------------------------------------------------------------------------

    def removal(self, member_ids: list[str]) -> tuple[GroupEntry, ...]:
        """Return the entries that remove members; the next heartbeat assigns their partitions."""
        entries = [entry for member_id in member_ids for entry in self.member_tombstones(member_id)]
        if entries:
            value = ConsumerGroupValue(self.epoch + 1, self.topics_hash)
            entries.append(GroupEntry(self.group_key(self.group_id), value))
        return tuple(entries)

    def member_tombstones(self, member_id: str) -> list[GroupEntry]:
        """Return the entries that delete everything stored about one member."""
        return [
            GroupEntry(self.current_key(self.group_id, member_id), None),
            GroupEntry(self.target_key(self.group_id, member_id), None),
            GroupEntry(self.member_key(self.group_id, member_id), None),
        ]

    def tombstones(self) -> tuple[GroupEntry, ...]:
        """Return the entries that delete everything stored about the group, the group itself last."""
        entries = [entry for member_id in self.members for entry in self.member_tombstones(member_id)]
        entries.append(GroupEntry(self.target_epoch_key(self.group_id), None))
        entries.append(GroupEntry(self.group_key(self.group_id), None))
        return tuple(entries)

    def replay(self, key: ConsumerKey, value: Value | None) -> None:
        """Apply a journal entry."""
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
            self.views.pop(member_id, None)
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
    """Return a number that changes when one of the topics is created, deleted or grows.

    Never 0, which means "unknown".
    """
    digest = blake2b(digest_size=8)
    for topic_id in sorted(topic_ids):
        digest.update(topic_id.bytes)
        digest.update(catalog.by_id[topic_id].partitions.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) or 1


def reconcile(
    current: CurrentValue, target: Partitions, target_epoch: int, owned: Partitions | None, blocked: Partitions
) -> CurrentValue:
    """Return the member's next state on its way to the target.

    `owned` lists the partitions that the member reports (None: unchanged). `blocked` lists those that others still
    hold.
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
