"""How far a consumer has come in its partitions: what it has fetched, handed out, handled and committed.

Pure: time comes in as milliseconds. The rules:

- A record is handled when the next one is asked for, or when the consumer says so; only what is handled is committed.
- A commit is due after a number of handled records, or some time after the first of them.
- A partition that is taken away gives back its records that were not handed out. It is kept until the one in hand is
  handled and what was handled is committed, so that the next owner does not get them a second time. After that nothing
  is ever committed for it: an offset would go back.
- Whatever happened under a membership that is over counts no more: its records come again.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidemill.model.topics import TopicPartition


class FetchedRecord(NamedTuple):
    """A record on its way to the one who handles it."""

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
        """The partitions that are the consumer's for now."""
        return set(self._fetch)

    @property
    def buffered(self) -> int:
        """Records that wait for somebody to ask for them."""
        return len(self._buffer)

    @property
    def leaving(self) -> bool:
        """Whether partitions have to be released."""
        return bool(self._leaving)

    @property
    def overdue(self) -> bool:
        """Whether so much was handled that a commit does not wait for its time."""
        return self._handled_count >= self._commit_records

    def held_ms(self, now_ms: int) -> int:
        """How long the record in hand has been there."""
        return 0 if self._in_hand is None else now_ms - self._in_hand_since_ms

    def positions(self) -> dict[TopicPartition, int]:
        """Where to read on, the partitions that gave records last at the end; what is released is not there."""
        return dict(self._fetch)

    def follow(self, assigned: Mapping[TopicPartition, int]) -> None:
        """The consumer has these partitions now; those that are new begin at the offset that is given."""
        self._leaving = set(self._fetch) - set(assigned)
        for one in reversed(self._buffer):
            if one.place in self._leaving:
                self._fetch[one.place] = one.offset  # should it come back before it is released
        self._buffer = deque(one for one in self._buffer if one.place not in self._leaving)
        for place, offset in assigned.items():
            self._fetch.setdefault(place, offset)

    def release(self) -> None:
        """What was handled is committed: let go of what was taken away, but for the partition of the record in hand."""
        kept = {self._in_hand.place} if self._in_hand is not None else set()
        for place in self._leaving - kept:
            del self._fetch[place]
            self._handled.pop(place, None)
        self._leaving &= kept

    def lose(self) -> bool:
        """The membership is over: nothing that is here counts any more; whether there was something."""
        dropped = bool(self._handled) or self._in_hand is not None
        self._fetch.clear()
        self._leaving.clear()
        self._buffer.clear()
        self._in_hand = None
        self._forget_handled()
        return dropped

    def arrived(self, place: TopicPartition, records: Iterable[tuple[int, Any]], next_offset: int) -> None:
        """Records of a partition have come; it is read on from `next_offset`."""
        if place not in self._fetch or place in self._leaving:
            return
        self._buffer.extend(FetchedRecord(place, offset, record) for offset, record in records)
        del self._fetch[place]  # to the end of the order: the others have their turn
        self._fetch[place] = next_offset

    def take(self, now_ms: int) -> Any | None:
        """Hand out the next record, if there is one; the one before it is handled."""
        self.finish(now_ms)
        if not self._buffer:
            return None
        self._in_hand, self._in_hand_since_ms = self._buffer.popleft(), now_ms
        return self._in_hand.record

    def finish(self, now_ms: int) -> None:
        """The record in hand is handled."""
        done, self._in_hand = self._in_hand, None
        if done is None:
            return
        self._handled[done.place] = done.offset + 1
        self._handled_count += 1
        if self._handled_since_ms is None:
            self._handled_since_ms = now_ms

    def due_ms(self, now_ms: int) -> int | None:
        """When the next commit is due; None while nothing was handled."""
        if self._handled_since_ms is None:
            return None
        if self.overdue:
            return now_ms
        return max(now_ms, self._handled_since_ms + self._commit_interval_ms)

    def to_commit(self) -> dict[TopicPartition, int]:
        """What was handled and not committed; from now on it counts as committed unless it is given back."""
        offsets = dict(self._handled)
        self._forget_handled()
        return offsets

    def give_back(self, offsets: Mapping[TopicPartition, int], now_ms: int) -> None:
        """These could not be committed: they are due again, unless more was handled meanwhile."""
        for place, offset in offsets.items():
            if place in self._fetch:
                self._handled.setdefault(place, offset)
        if self._handled and self._handled_since_ms is None:
            self._handled_since_ms = now_ms

    def _forget_handled(self) -> None:
        self._handled = {}
        self._handled_count = 0
        self._handled_since_ms = None
