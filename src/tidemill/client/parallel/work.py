"""Decides which record is handled next.

Records wait in *key queues*, and a queue hands out one record at a time, in order. The ordering defines the queues: one
per key of a partition ("key"), one per partition ("partition"), or one per record ("unordered"). Queues with a record
and no worker are ready. Partitions take turns, so that a busy partition does not starve the others. A failed record
returns to the head of its queue, and that queue alone waits until the retry is due.

Pure: no lock and no clock. Only `WorkQueue` calls it, under its lock.
"""

import heapq
from collections import deque
from collections.abc import Hashable
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidemill.model.topics import TopicPartition


class Ordering(Enum):
    """Which records stay in order while others are handled in parallel."""

    KEY = "key"
    PARTITION = "partition"
    UNORDERED = "unordered"


class Queued(Protocol):
    """The fields that a record needs."""

    @property
    def place(self) -> TopicPartition:
        """The partition of the record."""

    @property
    def offset(self) -> int:
        """The offset in the partition."""

    @property
    def key(self) -> bytes | None:
        """The key, which keeps records in order."""


R = TypeVar("R", bound=Queued)


class _KeyQueue(Generic[R]):
    __slots__ = ("busy", "name", "place", "records", "running")

    def __init__(self, place: TopicPartition, name: Hashable) -> None:
        self.place = place
        self.name = name
        self.records: deque[R] = deque()
        # Not ready: one of its records is being handled, or waits for its retry.
        self.busy = False
        self.running = False


class _DelayedQueue(NamedTuple):
    due_ms: int
    order: int
    name: Hashable


class Work(Generic[R]):
    """All records that are waiting, being handled, or delayed before a retry."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._queues: dict[Hashable, _KeyQueue[R]] = {}
        self._ready: dict[TopicPartition, deque[_KeyQueue[R]]] = {}
        self._turns: deque[TopicPartition] = deque()
        self._delayed: list[_DelayedQueue] = []
        self._leaving: set[TopicPartition] = set()
        self._retries = 0
        self.waiting = 0
        self.in_flight = 0

    def add(self, record: R) -> None:
        """Add a received record."""
        name = self._name(record)
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _KeyQueue(record.place, name)
        queue.records.append(record)
        self.waiting += 1
        if len(queue.records) == 1 and not queue.busy:
            self._make_ready(queue)

    def take(self) -> R | None:
        """The next record to handle. None when every queue is empty, busy or delayed."""
        while self._turns:
            place = self._turns[0]
            line = self._ready.get(place)
            if not line:
                self._turns.popleft()
                self._ready.pop(place, None)
                continue
            self._turns.rotate(-1)
            queue = line.popleft()
            queue.busy = queue.running = True
            self.waiting -= 1
            self.in_flight += 1
            return queue.records.popleft()
        return None

    def finished(self, record: R) -> None:
        """Complete a record: handled, skipped or written as a dead letter."""
        queue = self._release(record)
        queue.busy = False
        if queue.records:
            self._make_ready(queue)
        else:
            del self._queues[queue.name]

    def retry(self, record: R, due_ms: int) -> None:
        """Put a failed record back, to be tried at `due_ms`, before all records behind it in its queue."""
        queue = self._release(record)
        queue.records.appendleft(record)
        self.waiting += 1
        self._retries += 1
        heapq.heappush(self._delayed, _DelayedQueue(due_ms, self._retries, queue.name))

    def wake(self, now_ms: int) -> None:
        """Make the queues ready whose retry is due."""
        while self._delayed and self._delayed[0].due_ms <= now_ms:
            queue = self._queues.get(heapq.heappop(self._delayed).name)
            if queue is not None and queue.records:
                queue.busy = False
                self._make_ready(queue)

    def next_due_ms(self) -> int | None:
        """When the next retry is due."""
        return self._delayed[0].due_ms if self._delayed else None

    def idle(self, place: TopicPartition) -> int:
        """Stop handing out records of a partition that is being revoked. Returns how many of them are being handled."""
        self._leaving.add(place)
        self._remove_ready(place)
        return sum(queue.running for queue in self._queues.values() if queue.place == place)

    def drop(self, place: TopicPartition) -> None:
        """Remove a lost partition. The results of its running handlers must not be reported here."""
        for name in [name for name, queue in self._queues.items() if queue.place == place]:
            queue = self._queues.pop(name)
            self.waiting -= len(queue.records)
            self.in_flight -= queue.running
        self._leaving.discard(place)
        self._remove_ready(place)
        self._delayed = [delayed for delayed in self._delayed if delayed.name in self._queues]
        heapq.heapify(self._delayed)

    def _release(self, record: R) -> _KeyQueue[R]:
        self.in_flight -= 1
        queue = self._queues[self._name(record)]
        queue.running = False
        return queue

    def _name(self, record: R) -> Hashable:
        if self._ordering is Ordering.KEY and record.key is not None:
            return record.place, record.key
        if self._ordering is Ordering.PARTITION:
            return record.place
        # A record without a key has no order to keep and gets its own queue.
        return record.place, record.offset

    def _remove_ready(self, place: TopicPartition) -> None:
        if self._ready.pop(place, None) is not None:
            self._turns.remove(place)

    def _make_ready(self, queue: _KeyQueue[R]) -> None:
        if queue.place in self._leaving:
            return
        line = self._ready.get(queue.place)
        if line is None:
            line = self._ready[queue.place] = deque()
            self._turns.append(queue.place)
        line.append(queue)
