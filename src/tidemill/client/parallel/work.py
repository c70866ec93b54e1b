"""Which record is worked on next.

Records wait in *lanes*; a lane hands out one record at a time, in order. What a lane is makes the ordering: a key of
a partition ("key"), a partition ("partition"), or a record by itself ("unordered"). Lanes that have a record and no
worker wait in line within their partition, and partitions take turns, so that a busy partition does not starve the
others. A record that failed goes back to the head of its lane, which sleeps until the retry is due; nobody else waits
for it.

Pure: no lock, no clock. The consumer's one loop owns it, workers never touch it.
"""

import heapq
from collections import deque
from collections.abc import Hashable
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidemill.model.topics import TopicPartition


class Ordering(Enum):
    """What stays in order while records are handled side by side."""

    KEY = "key"
    PARTITION = "partition"
    UNORDERED = "unordered"


class Queued(Protocol):
    """What a record must tell."""

    @property
    def place(self) -> TopicPartition:
        """Where it came from."""

    @property
    def offset(self) -> int:
        """Its number there."""

    @property
    def key(self) -> bytes | None:
        """What keeps it in order with others."""


R = TypeVar("R", bound=Queued)


class _KeyQueue(Generic[R]):
    __slots__ = ("busy", "name", "place", "records", "running")

    def __init__(self, place: TopicPartition, name: Hashable) -> None:
        self.place = place
        self.name = name
        self.records: deque[R] = deque()
        # Not in line: a record of it is being handled, or sleeps before its retry.
        self.busy = False
        self.running = False


class _Sleeper(NamedTuple):
    due_ms: int
    order: int
    name: Hashable


class Work(Generic[R]):
    """Everything that is waiting, being handled, or sleeping before a retry."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._lanes: dict[Hashable, _KeyQueue[R]] = {}
        self._ready: dict[TopicPartition, deque[_KeyQueue[R]]] = {}
        self._turns: deque[TopicPartition] = deque()
        self._sleepers: list[_Sleeper] = []
        self._leaving: set[TopicPartition] = set()
        self._naps = 0
        self.waiting = 0
        self.in_flight = 0

    def add(self, record: R) -> None:
        """A record that arrived."""
        name = self._name(record)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _KeyQueue(record.place, name)
        lane.records.append(record)
        self.waiting += 1
        if len(lane.records) == 1 and not lane.busy:
            self._line_up(lane)

    def take(self) -> R | None:
        """The next record to handle, or None when every lane is empty, busy or asleep."""
        while self._turns:
            place = self._turns[0]
            line = self._ready.get(place)
            if not line:
                self._turns.popleft()
                self._ready.pop(place, None)
                continue
            self._turns.rotate(-1)
            lane = line.popleft()
            lane.busy = lane.running = True
            self.waiting -= 1
            self.in_flight += 1
            return lane.records.popleft()
        return None

    def finished(self, record: R) -> None:
        """The record is done with: handled, skipped or buried."""
        lane = self._release(record)
        lane.busy = False
        if lane.records:
            self._line_up(lane)
        else:
            del self._lanes[lane.name]

    def retry(self, record: R, due_ms: int) -> None:
        """The record failed and is tried again at `due_ms`, before anything behind it in its lane."""
        lane = self._release(record)
        lane.records.appendleft(record)
        self.waiting += 1
        self._naps += 1
        heapq.heappush(self._sleepers, _Sleeper(due_ms, self._naps, lane.name))

    def wake(self, now_ms: int) -> None:
        """Lanes whose retry is due get in line again."""
        while self._sleepers and self._sleepers[0].due_ms <= now_ms:
            lane = self._lanes.get(heapq.heappop(self._sleepers).name)
            if lane is not None and lane.records:
                lane.busy = False
                self._line_up(lane)

    def next_due_ms(self) -> int | None:
        """When the next sleeper wakes."""
        return self._sleepers[0].due_ms if self._sleepers else None

    def idle(self, place: TopicPartition) -> int:
        """Hand out nothing more of a partition that is about to go; answers with how many of it are being handled."""
        self._leaving.add(place)
        self._leave_line(place)
        return sum(lane.running for lane in self._lanes.values() if lane.place == place)

    def drop(self, place: TopicPartition) -> None:
        """Forget a partition that was lost. What is being handled of it must not be reported when it returns."""
        for name in [name for name, lane in self._lanes.items() if lane.place == place]:
            lane = self._lanes.pop(name)
            self.waiting -= len(lane.records)
            self.in_flight -= lane.running
        self._leaving.discard(place)
        self._leave_line(place)
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper.name in self._lanes]
        heapq.heapify(self._sleepers)

    def _release(self, record: R) -> _KeyQueue[R]:
        self.in_flight -= 1
        lane = self._lanes[self._name(record)]
        lane.running = False
        return lane

    def _name(self, record: R) -> Hashable:
        if self._ordering is Ordering.KEY and record.key is not None:
            return record.place, record.key
        if self._ordering is Ordering.PARTITION:
            return record.place
        # Without a key there is no order to keep: the record is a lane of its own.
        return record.place, record.offset

    def _leave_line(self, place: TopicPartition) -> None:
        if self._ready.pop(place, None) is not None:
            self._turns.remove(place)

    def _line_up(self, lane: _KeyQueue[R]) -> None:
        if lane.place in self._leaving:
            return
        line = self._ready.get(lane.place)
        if line is None:
            line = self._ready[lane.place] = deque()
            self._turns.append(lane.place)
        line.append(lane)
