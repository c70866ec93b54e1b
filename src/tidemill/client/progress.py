"""The progress of a consumer in its partitions: fetched, delivered, handled and committed records.

Pure: time is passed in as milliseconds. The rules:

- A record is handled when the application asks for the next one, or says so. Only handled records are committed.
- A commit is due after a number of handled records, or some time after the first of them.
- A revoked partition drops its records that were not delivered. It is kept until the current record is handled and all
  handled records are committed, so that the next owner does not get them again. After that, nothing is committed for
  it: the offset would move back.
- Records of an ended membership no longer count: they are delivered again.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidemill.model.topics import TopicPartition


class FetchedRecord(NamedTuple):
    """A record on its way to the application."""

    place: TopicPartition
    offset: int
    record: Any


class ConsumerProgress:
    """The partitions of one consumer."""

    def __init__(self, *, commit_records: int = 100, commit_interval_ms: int = 500) -> None:
        self._commit_records = commit_records
        self._commit_interval_ms = commit_interval_ms
        self._fetch: dict[TopicPartition, int] = {}
        self._leaving: set[TopicPartition] = set()
        self._buffer: deque[FetchedRecord] = deque()
        self._in_hand: FetchedRecord | None = None
        self._in_hand_since_ms = 0
        self._handled: dict[TopicPartition, int] = {}
        self._handled_count = 0
        self._handled_since_ms: int | None = None

    @property
    def assigned(self) -> set[TopicPartition]:
        """The partitions that are assigned now."""
        return set(self._fetch)

    @property
    def buffered(self) -> int:
        """The number of records that wait for the application."""
        return len(self._buffer)

    @property
    def leaving(self) -> bool:
        """Whether revoked partitions must be released."""
        return bool(self._leaving)

    @property
    def overdue(self) -> bool:
        """Whether enough records were handled for a commit before its time."""
        return self._handled_count >= self._commit_records

    def held_ms(self, now_ms: int) -> int:
        """Return how long the application has had the current record."""
        return 0 if self._in_hand is None else now_ms - self._in_hand_since_ms

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions to read from, recently read partitions last; without revoked partitions."""
        return dict(self._fetch)

    def follow(self, assigned: Mapping[TopicPartition, int]) -> None:
        """Follow a new assignment; added partitions start at the given offset."""
        self._leaving = set(self._fetch) - set(assigned)
        for one in reversed(self._buffer):
            if one.place in self._leaving:
                self._fetch[one.place] = one.offset  # for the case that it is assigned again before its release
        self._buffer = deque(one for one in self._buffer if one.place not in self._leaving)
        for place, offset in assigned.items():
            self._fetch.setdefault(place, offset)

    def release(self) -> None:
        """Release revoked partitions after the commit, except the one of the current record."""
        kept = {self._in_hand.place} if self._in_hand is not None else set()
        for place in self._leaving - kept:
            del self._fetch[place]
            self._handled.pop(place, None)
        self._leaving &= kept

    def lose(self) -> bool:
        """Drop everything after the membership has ended; return whether there was something."""
        dropped = bool(self._handled) or self._in_hand is not None
        self._fetch.clear()
        self._leaving.clear()
        self._buffer.clear()
        self._in_hand = None
        self._forget_handled()
        return dropped

    def arrived(self, place: TopicPartition, records: Iterable[tuple[int, Any]], next_offset: int) -> None:
        """Add fetched records of a partition; the next fetch reads from `next_offset`."""
        if place not in self._fetch or place in self._leaving:
            return
        self._buffer.extend(FetchedRecord(place, offset, record) for offset, record in records)
        del self._fetch[place]  # move to the end of the order, so that the others get their turn
        self._fetch[place] = next_offset

    def take(self, now_ms: int) -> Any | None:
        """Deliver the next record, if there is one; the one before it counts as handled."""
        self.finish(now_ms)
        if not self._buffer:
            return None
        self._in_hand, self._in_hand_since_ms = self._buffer.popleft(), now_ms
        return self._in_hand.record

    def finish(self, now_ms: int) -> None:
        """Mark the current record as handled."""
        done, self._in_hand = self._in_hand, None
        if done is None:
            return
        self._handled[done.place] = done.offset + 1
        self._handled_count += 1
        if self._handled_since_ms is None:
            self._handled_since_ms = now_ms

    def due_ms(self, now_ms: int) -> int | None:
        """Return when the next commit is due; None while nothing was handled."""
        if self._handled_since_ms is None:
            return None
        if self.overdue:
            return now_ms
        return max(now_ms, self._handled_since_ms + self._commit_interval_ms)

    def to_commit(self) -> dict[TopicPartition, int]:
        """Return the handled offsets to commit. They count as committed unless `give_back` is called."""
        offsets = dict(self._handled)
        self._forget_handled()
        return offsets

    def give_back(self, offsets: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Schedule offsets again after a failed commit, unless more was handled meanwhile."""
        for place, offset in offsets.items():
            if place in self._fetch:
                self._handled.setdefault(place, offset)
        if self._handled and self._handled_since_ms is None:
            self._handled_since_ms = now_ms

    def _forget_handled(self) -> None:
        self._handled = {}
        self._handled_count = 0
        self._handled_since_ms = None
