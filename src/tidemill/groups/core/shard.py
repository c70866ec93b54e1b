"""The groups of one journal partition: which exist, of which kind, and the operations on whole groups.

A group exists while it has members, a stored state, or offsets. It has one kind at a time (classic or consumer).
`convert_kind` and `downgrade` change the kind; the offsets stay. `replay` is the only place where journal entries
change the state, for live traffic and at start alike.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from tidemill.groups.core import protocol_migration
from tidemill.groups.core.catalog import TopicCatalog
from tidemill.groups.core.classic_group import CONSUMER_PROTOCOL, ClassicGroup, ClassicState
from tidemill.groups.core.consumer_group import ConsumerGroup
from tidemill.groups.core.entries import (
    SHARE_KEYS,
    ConsumerGroupKey,
    ConsumerKey,
    GroupEntry,
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    StagedKey,
    Value,
)
from tidemill.groups.core.limits import GroupLimits
from tidemill.groups.core.messages import GroupStep
from tidemill.groups.core.offsets import Offsets
from tidemill.groups.core.share_group import ShareGroup
from tidemill.model.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    NonEmptyGroup,
    UnknownMemberId,
    UnstableOffsetCommit,
    UnsupportedVersion,
)
from tidemill.model.topics import TopicPartition

Group: TypeAlias = ClassicGroup | ConsumerGroup


class ListedGroup(NamedTuple):
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


class FetchedOffset(NamedTuple):
    """A committed offset, or -1 for "never committed", or the error."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: KafkaError | None = None


def group_filter(states: Iterable[str], kinds: Iterable[str]) -> Callable[[ListedGroup], bool]:
    """Return the filter of ListGroups: an empty filter passes everything, and case does not matter."""
    wanted_states = {state.lower() for state in states}
    wanted_kinds = {kind.lower() for kind in kinds}
    return lambda group: (
        (not wanted_states or group.state.lower() in wanted_states) and (not wanted_kinds or group.kind in wanted_kinds)
    )


class Shard:
    """All groups of one partition."""

    def __init__(self, limits: GroupLimits, limits_of: Callable[[str], GroupLimits] | None = None) -> None:
        self.limits = limits
        self.limits_of = limits_of or (lambda _group_id: limits)
        """The limits of one group, which may have settings of its own."""
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    # -- lookup -------------------------------------------------------------------------------------------------------

    def exists(self, group_id: str) -> bool:
        """Whether any state of the group exists."""
        return group_id in self.groups or bool(self.offsets.of_group(group_id))

    def known_classic(self, group_id: str) -> ClassicGroup:
        """Return the classic group, for requests that only its members send."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise UnknownMemberId
        return group

    def classic(self, group_id: str, now_ms: int) -> ClassicGroup:
        """Return the classic group, created if needed. Call `convert_kind` first."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = ClassicGroup(group_id, self.limits, now_ms)
        return group

    def consumer(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group, created if needed. Call `convert_kind` first."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            group = self.groups[group_id] = ConsumerGroup(group_id, self.limits_of(group_id))
        return group

    def share(self, group_id: str) -> ShareGroup:
        """Return the share group, created if needed. GroupIdNotFound when the id belongs to another kind of group."""
        group = self.groups.get(group_id)
        if group is None and not self.offsets.of_group(group_id):
            group = self.groups[group_id] = ShareGroup(group_id, self.limits_of(group_id))
        return self._as_share_group(group_id, group)

    def known_share(self, group_id: str) -> ShareGroup:
        """Return the share group. Raises GroupIdNotFound."""
        return self._as_share_group(group_id, self.groups.get(group_id))

    def _as_share_group(self, group_id: str, group: Group | None) -> ShareGroup:
        if not isinstance(group, ShareGroup):
            raise GroupIdNotFound(f"share group {group_id} does not exist")
        return group

    def convert_kind(self, group_id: str, catalog: TopicCatalog, now_ms: int, *, for_consumers: bool) -> GroupStep:
        """Prepare the group for a member of the other kind.

        A group without members is deleted, but its offsets stay. A classic group with members is upgraded. A consumer
        group with members accepts classic ones without a change.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ShareGroup):
            raise (GroupIdNotFound if for_consumers else InconsistentGroupProtocol)(f"{group_id} is a share group")
        if group is None or isinstance(group, ConsumerGroup) == for_consumers:
            return GroupStep()
        if group.is_empty:
            return GroupStep(self._forget_state(group_id))
        if isinstance(group, ConsumerGroup):
            return GroupStep()
        return GroupStep(protocol_migration.upgrade(group, catalog), lambda: self.consumer(group_id).loaded(now_ms))

    def downgrade(self, group_id: str, catalog: TopicCatalog, now_ms: int) -> GroupStep:
        """Turn a consumer group that has only classic members left into a classic group."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or not protocol_migration.is_due_for_downgrade(group):
            return GroupStep()
        protocols = protocol_migration.protocols_of(group)
        return GroupStep(
            protocol_migration.downgrade(group, catalog, now_ms),
            lambda: protocol_migration.resume(self.classic(group_id, now_ms), protocols, now_ms),
        )

    def drop_unused(self, group_id: str) -> None:
        """Drop a group that was never journaled and has no members."""
        group = self.groups.get(group_id)
        if group is not None and group.is_unused and not group.outbox:
            del self.groups[group_id]

    # -- offsets ------------------------------------------------------------------------------------------------------

    def check_commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        *,
        names_epochs: bool = True,
        in_transaction: bool = False,
    ) -> None:
        """Check that this member may commit; `names_epochs`: the request's version supports member epochs."""
        group = self.groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise IllegalGeneration(f"group {group_id} does not exist")
        elif isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, generation, in_transaction=in_transaction)
        elif not names_epochs and generation >= 0 and not group.speaks_classic(member_id):
            raise UnsupportedVersion("a member of a consumer group must commit with OffsetCommit version 9 or later")
        else:
            group.check_epoch(member_id, generation, in_transaction=in_transaction)

    def fetch(self, group_id: str, partitions: Iterable[TopicPartition] | None, *, stable: bool) -> list[FetchedOffset]:
        """Return committed offsets. An unknown group has none, which is not an error. None asks for all."""
        known = self.offsets.of_group(group_id)
        wanted = sorted(known) if partitions is None else partitions
        return [self._fetch(group_id, each, known.get(each), stable=stable) for each in wanted]

    def _fetch(self, group_id: str, each: TopicPartition, value: OffsetValue | None, *, stable: bool) -> FetchedOffset:
        if stable and self.offsets.is_unstable(group_id, *each):
            return FetchedOffset(*each, error=UnstableOffsetCommit())
        if value is None:
            return FetchedOffset(*each)
        return FetchedOffset(*each, value.offset, value.leader_epoch, value.metadata)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Check the epoch of a consumer group member that sends its id."""
        group = self.groups.get(group_id)
        if member_id is not None and member_epoch >= 0:
            if isinstance(group, ConsumerGroup):
                group.check_epoch(member_id, member_epoch)
            elif group is None:
                raise UnknownMemberId

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[GroupStep, dict[TopicPartition, KafkaError | None]]:
        """Handle OffsetDelete: delete offsets of topics that no member of the group reads."""
        if not self.exists(group_id):
            raise GroupIdNotFound(f"group {group_id} does not exist")
        group = self.groups.get(group_id)
        if group is not None and group.members and group.protocol_type != CONSUMER_PROTOCOL:
            raise NonEmptyGroup(f"group {group_id} has members that are not consumers; stop them first")
        is_read = _is_read(group)
        results: dict[TopicPartition, KafkaError | None] = {
            each: GroupSubscribedToTopic() if is_read(each.topic) else None for each in partitions
        }
        free = [each for each, error in results.items() if error is None]
        return GroupStep(self.offsets.forget(group_id, free)), results

    # -- whole groups -------------------------------------------------------------------------------------------------

    def group_ids(self) -> list[str]:
        """Return the ids of all groups."""
        return list(dict.fromkeys((*self.groups, *self.offsets.groups())))

    def listed(self, group_id: str) -> ListedGroup | None:
        """Return the list entry of a group; None when it does not exist."""
        group = self.groups.get(group_id)
        if group is not None:
            return ListedGroup(group_id, group.protocol_type or "", group.state, group.kind)
        return ListedGroup(group_id, "", ClassicState.EMPTY, ClassicGroup.kind) if self.exists(group_id) else None

    def delete(self, group_id: str) -> GroupStep:
        """Handle DeleteGroups: delete a group without members, and its offsets."""
        group = self.groups.get(group_id)
        if not self.exists(group_id):
            raise GroupIdNotFound(f"group {group_id} does not exist")
        if group is not None and not group.is_empty:
            raise NonEmptyGroup(f"group {group_id} has members; stop them first")
        if self.offsets.has_staged(group_id):
            raise NonEmptyGroup(f"an open transaction holds offsets of group {group_id}; wait for its end")
        return GroupStep(self.offsets.forget_group(group_id) + self._forget_state(group_id))

    def expire(self, group_id: str, now_ms: int) -> GroupStep:
        """Delete offsets past their retention, and the group when nothing is left of it; share groups stay."""
        group = self.groups.get(group_id)
        if isinstance(group, ShareGroup):
            return GroupStep()
        if group is not None and group.members and group.state != ClassicState.STABLE:
            return GroupStep()  # readers of a topic may be about to join
        since_ms = group.state_ms if group is not None and group.is_empty and group.protocol_type else 0
        old = self.offsets.expired(
            group_id,
            since_ms=since_ms,
            retention_ms=self.limits.offsets_retention_ms,
            now_ms=now_ms,
            is_read=_is_read(group),
        )
        nothing_left = len(old) == len(self.offsets.of_group(group_id)) and not self.offsets.has_staged(group_id)
        if group is not None and group.is_empty and nothing_left:
            old += self._forget_state(group_id)
        return GroupStep(old)

    def _forget_state(self, group_id: str) -> tuple[GroupEntry, ...]:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.tombstones()
        return () if group is None else (GroupEntry(GroupKey(group_id), None),)

    # -- the journal --------------------------------------------------------------------------------------------------

    def replay(self, entry: GroupEntry) -> None:
        """Apply a journal entry."""
        key, value = entry
        if isinstance(key, OffsetKey | StagedKey):
            self.offsets.replay(key, value if isinstance(value, OffsetValue) else None)
        elif isinstance(key, GroupKey):
            self._replay_classic(key.group, value if isinstance(value, GroupValue) else None)
        elif value is None and not isinstance(self.groups.get(key.group), ConsumerGroup):
            return
        else:
            self._replay_members(key, value)

    def _replay_members(self, key: ConsumerKey, value: Value | None) -> None:
        self._group_of_key(key).replay(key, value)
        if isinstance(key, ConsumerGroupKey) and value is None:
            del self.groups[key.group]

    def _group_of_key(self, key: ConsumerKey) -> ConsumerGroup:
        group = self.groups.get(key.group)
        if not isinstance(key, SHARE_KEYS):
            return self.consumer(key.group)
        if not isinstance(group, ShareGroup):
            group = self.groups[key.group] = ShareGroup(key.group, self.limits_of(key.group))
        return group

    def _replay_classic(self, group_id: str, value: GroupValue | None) -> None:
        if value is not None:
            self.classic(group_id, value.state_ms).replay(value)
        elif isinstance(self.groups.get(group_id), ClassicGroup):
            del self.groups[group_id]

    def loaded(self, now_ms: int) -> None:
        """Give every member a whole session after the journal was read."""
        for group in self.groups.values():
            group.loaded(now_ms)


def _is_read(group: Group | None) -> Callable[[str], bool]:
    """Return a predicate: whether a member of the group reads a topic. It is built once for many topics."""
    return group.reads() if group is not None else lambda _topic: False
