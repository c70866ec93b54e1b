"""The offsets that groups have committed, and those that transactions have staged for them.

Rules:
- An offset is what the journal says last; nothing here is ever guessed: what was never committed is absent.
- A staged offset is invisible until its transaction ends: a commit turns it into the group's offset, an abort forgets
  it; both in one journal batch, so that a crash leaves all of it or nothing. A repeated end finds nothing to do.
- Of two commits of one partition the one that was made later counts; a staged one was made when it was staged. So the
  end of a transaction does not bring back what somebody has committed over since.
- An offset outlives its group's last member by the retention; of a group that never had members, its own commit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tidemill.groups.core.entries import GroupEntry, OffsetKey, OffsetValue, StagedKey
from tidemill.model.topics import TopicPartition


class OffsetCommit(NamedTuple):
    """One partition of a commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Offsets:
    """The offsets of many groups."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, OffsetValue]] = {}
        self._staged: dict[int, dict[StagedKey, OffsetValue]] = {}
        self._unstable: dict[OffsetKey, set[int]] = {}
        self._replayed = 0
        self._staged_at: dict[StagedKey, int] = {}
        self._committed_at: dict[OffsetKey, int] = {}  # of those that are staged, too

    def groups(self) -> Iterable[str]:
        """The groups that have offsets."""
        return self._by_group.keys()

    def of_group(self, group: str) -> Mapping[TopicPartition, OffsetValue]:
        """Everything the group has committed."""
        return self._by_group.get(group, {})

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether a transaction that is still open may change this offset."""
        return bool(self._unstable.get(OffsetKey(group, topic, partition)))

    def has_staged(self, group: str) -> bool:
        """Whether an open transaction holds offsets of this group."""
        return any(key.group == group for key in self._unstable)

    # -- decisions: each gives the entries that make it so ------------------------------------------------------------

    def commit(self, group: str, commits: Sequence[OffsetCommit], now_ms: int) -> tuple[GroupEntry, ...]:
        """Commit at once."""
        return tuple(GroupEntry(OffsetKey(group, item.topic, item.partition), _value(item, now_ms)) for item in commits)

    def stage(
        self, group: str, producer_id: int, commits: Sequence[OffsetCommit], now_ms: int
    ) -> tuple[GroupEntry, ...]:
        """Commit when the producer's transaction does."""
        return tuple(
            GroupEntry(StagedKey(producer_id, group, item.topic, item.partition), _value(item, now_ms))
            for item in commits
        )

    def end_transaction(self, producer_id: int, *, commit: bool) -> tuple[GroupEntry, ...]:
        """Apply or forget what the producer has staged."""
        staged = self._staged.get(producer_id, {})
        forgotten = tuple(GroupEntry(key, None) for key in staged)
        if not commit:
            return forgotten
        targets = {key: OffsetKey(key.group, key.topic, key.partition) for key in staged}
        applied = tuple(
            GroupEntry(target, staged[key])
            for key, target in targets.items()
            if self._committed_at.get(target, 0) < self._staged_at[key]
        )
        return applied + forgotten

    def forget_group(self, group: str) -> tuple[GroupEntry, ...]:
        """Everything that the group has committed or that is staged for it."""
        return self.forget(group, self.of_group(group)) + tuple(
            GroupEntry(key, None) for staged in self._staged.values() for key in staged if key.group == group
        )

    def forget(self, group: str, partitions: Iterable[TopicPartition]) -> tuple[GroupEntry, ...]:
        """Some offsets of a group; those it does not have need no entry."""
        known = self.of_group(group)
        return tuple(GroupEntry(OffsetKey(group, *each), None) for each in partitions if each in known)

    def forget_topic(self, topic: str) -> tuple[GroupEntry, ...]:
        """Every offset of a topic, committed or staged."""
        committed = tuple(
            entry
            for group, offsets in self._by_group.items()
            for entry in self.forget(group, [each for each in offsets if each.topic == topic])
        )
        return committed + tuple(
            GroupEntry(key, None) for staged in self._staged.values() for key in staged if key.topic == topic
        )

    def expired(
        self, group: str, *, since_ms: int, retention_ms: int, now_ms: int, is_read: Callable[[str], bool]
    ) -> tuple[GroupEntry, ...]:
        """The offsets that nobody has used for the retention; `since_ms` is when the group last had members."""

        def is_old(each: TopicPartition, value: OffsetValue) -> bool:
            until_ms = max(value.commit_ms, since_ms) + retention_ms if value.expire_ms < 0 else value.expire_ms
            return now_ms >= until_ms and not is_read(each.topic) and not self.is_unstable(group, *each)

        return self.forget(group, [each for each, value in self.of_group(group).items() if is_old(each, value)])

    # -- what the journal says ----------------------------------------------------------------------------------------

    def replay(self, key: OffsetKey | StagedKey, value: OffsetValue | None) -> None:
        """Be as the journal says."""
        self._replayed += 1
        if isinstance(key, StagedKey):
            self._replay_staged(key, value)
            return
        offsets = self._by_group.setdefault(key.group, {})
        each = TopicPartition(key.topic, key.partition)
        if value is not None:
            offsets[each] = value
            if key in self._unstable:
                self._committed_at[key] = self._replayed
            return
        self._committed_at.pop(key, None)
        offsets.pop(each, None)
        if not offsets:
            del self._by_group[key.group]

    def _replay_staged(self, key: StagedKey, value: OffsetValue | None) -> None:
        staged = self._staged.setdefault(key.producer_id, {})
        target = OffsetKey(key.group, key.topic, key.partition)
        producers = self._unstable.setdefault(target, set())
        if value is None:
            self._settle(target, staged.pop(key, None), self._staged_at.pop(key, 0))
            producers.discard(key.producer_id)
        else:
            staged[key] = value
            self._staged_at[key] = self._replayed
            producers.add(key.producer_id)
        if not staged:
            del self._staged[key.producer_id]
        if not producers:
            del self._unstable[target]
            self._committed_at.pop(target, None)

    def _settle(self, target: OffsetKey, value: OffsetValue | None, staged_at: int) -> None:
        """A transaction has ended: an offset that it brought was made when it was staged."""
        known = self.of_group(target.group).get(TopicPartition(target.topic, target.partition))
        if value is not None and known == value:
            self._committed_at[target] = staged_at


def _value(item: OffsetCommit, now_ms: int) -> OffsetValue:
    return OffsetValue(item.offset, item.leader_epoch, item.metadata, now_ms)
