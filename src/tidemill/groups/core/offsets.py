"""The offsets that groups have committed, and those that transactions have staged for them.

Rules:
- An offset is the last value in the journal. No offset is ever guessed: one that was never committed is absent.
- A staged offset is invisible until its transaction ends. A commit turns it into the group's offset, an abort deletes
  it. Both happen in one journal batch, so a crash leaves all of it or nothing. A repeated end has no effect.
- Of two commits of one partition, the later one counts. The time of a staged commit is the time of staging. So the end
  of a transaction does not overwrite a newer commit.
- Offsets of a group expire when it has had no members for the retention. In a group that never had members, the time of
  the commit counts.
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


class OffsetCommitter(NamedTuple):
    """The client that committed an offset. Its member id is empty if it was no member of the group."""

    member_id: str = ""
    generation: int = -1
    client_id: str = ""
    client_host: str = ""


UNKNOWN_COMMITTER = OffsetCommitter()
"""The journal does not store committers, so those of commits before a start or take-over are unknown."""


class _NotedCommitter(NamedTuple):
    """The offset of a commit, its time and its committer."""

    offset: int
    commit_ms: int
    committer: OffsetCommitter


class Offsets:
    """The offsets of many groups."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, OffsetValue]] = {}
        self._staged: dict[int, dict[StagedKey, OffsetValue]] = {}
        self._unstable: dict[OffsetKey, set[int]] = {}
        self._replayed = 0
        self._staged_at: dict[StagedKey, int] = {}
        self._committed_at: dict[OffsetKey, int] = {}  # includes staged offsets
        self._committers: dict[OffsetKey, _NotedCommitter] = {}

    def groups(self) -> Iterable[str]:
        """Return the groups that have offsets."""
        return self._by_group.keys()

    def of_group(self, group: str) -> Mapping[TopicPartition, OffsetValue]:
        """Return everything that the group has committed."""
        return self._by_group.get(group, {})

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may change this offset."""
        return bool(self._unstable.get(OffsetKey(group, topic, partition)))

    def has_staged(self, group: str) -> bool:
        """Whether an open transaction holds offsets of this group."""
        return any(key.group == group for key in self._unstable)

    def note_committer(self, entries: Iterable[GroupEntry], committer: OffsetCommitter) -> None:
        """Remember who committed or staged these offsets, after they were journaled."""
        for key, value in entries:
            if isinstance(value, OffsetValue) and isinstance(key, OffsetKey | StagedKey):
                target = OffsetKey(key.group, key.topic, key.partition)
                self._committers[target] = _NotedCommitter(value.offset, value.commit_ms, committer)

    def committer_of(self, group: str, partition: TopicPartition, value: OffsetValue) -> OffsetCommitter:
        """Return who committed this value. A staged value that never took effect has another offset or time."""
        noted = self._committers.get(OffsetKey(group, *partition))
        if noted is None or (noted.offset, noted.commit_ms) != (value.offset, value.commit_ms):
            return UNKNOWN_COMMITTER
        return noted.committer

    # -- decisions: each returns journal entries ----------------------------------------------------------------------

    def commit(self, group: str, commits: Sequence[OffsetCommit], now_ms: int) -> tuple[GroupEntry, ...]:
        """Return the entries of an immediate commit."""
        return tuple(GroupEntry(OffsetKey(group, item.topic, item.partition), _value(item, now_ms)) for item in commits)

    def stage(
        self, group: str, producer_id: int, commits: Sequence[OffsetCommit], now_ms: int
    ) -> tuple[GroupEntry, ...]:
        """Return the entries of a commit that takes effect with the producer's transaction."""
        return tuple(
            GroupEntry(StagedKey(producer_id, group, item.topic, item.partition), _value(item, now_ms))
            for item in commits
        )

    def end_transaction(self, producer_id: int, *, commit: bool) -> tuple[GroupEntry, ...]:
        """Return the entries that apply or discard the producer's staged offsets."""
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
        """Return the entries that delete everything the group has committed or staged."""
        return self.forget(group, self.of_group(group)) + tuple(
            GroupEntry(key, None) for staged in self._staged.values() for key in staged if key.group == group
        )

    def forget(self, group: str, partitions: Iterable[TopicPartition]) -> tuple[GroupEntry, ...]:
        """Return the entries that delete some offsets of a group; absent offsets need no entry."""
        known = self.of_group(group)
        return tuple(GroupEntry(OffsetKey(group, *each), None) for each in partitions if each in known)

    def forget_topic(self, topic: str) -> tuple[GroupEntry, ...]:
        """Return the entries that delete every offset of a topic, committed or staged."""
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
        """Return the offsets that were unused for the retention; `since_ms` is when the group last had members."""

        def is_old(each: TopicPartition, value: OffsetValue) -> bool:
            until_ms = max(value.commit_ms, since_ms) + retention_ms if value.expire_ms < 0 else value.expire_ms
            return now_ms >= until_ms and not is_read(each.topic) and not self.is_unstable(group, *each)

        return self.forget(group, [each for each, value in self.of_group(group).items() if is_old(each, value)])

    # -- replay -------------------------------------------------------------------------------------------------------

    def replay(self, key: OffsetKey | StagedKey, value: OffsetValue | None) -> None:
        """Apply a journal entry."""
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
        self._committers.pop(key, None)
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
        if not producers and TopicPartition(target.topic, target.partition) not in self.of_group(target.group):
            self._committers.pop(target, None)
        if not producers:
            del self._unstable[target]
            self._committed_at.pop(target, None)

    def _settle(self, target: OffsetKey, value: OffsetValue | None, staged_at: int) -> None:
        """Apply the end of a transaction: the offset gets the time at which it was staged."""
        known = self.of_group(target.group).get(TopicPartition(target.topic, target.partition))
        if value is not None and known == value:
            self._committed_at[target] = staged_at


def _value(item: OffsetCommit, now_ms: int) -> OffsetValue:
    return OffsetValue(item.offset, item.leader_epoch, item.metadata, now_ms)
