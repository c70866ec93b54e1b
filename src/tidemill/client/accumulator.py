"""The undelivered records of a producer: the partition of each record, and when a batch is sent.

Pure: time is passed in as milliseconds, and a ticket stands for the caller that waits for a record. The rules:

- The hash of a key decides the partition, by default CRC-32 as in librdkafka. Records without a key take turns.
- A batch is sent when it is full, when its first record has waited `linger_ms`, when the whole buffer holds
  `buffer_records`, or on a flush.
- Records of a partition arrive in order. Only one batch of a partition is on its way at a time. A retry sends the same
  batch with the same sequence numbers, so that the broker stores it once.
- A record fails when it was not delivered within `delivery_timeout_ms`. It is then unknown whether the broker has it.
  So the sequence of its partition is broken, and the partition continues under a new producer id.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidemill.records.hashing import CONSISTENT_RANDOM, PARTITIONERS

RECORD_OVERHEAD_BYTES = 32
SEQUENCES = 2**31
"""Sequence numbers restart at 0 after the largest."""


class BatchLimits(NamedTuple):
    """When batches are sent, and how large they are."""

    linger_ms: int = 100
    buffer_records: int = 1_000
    call_records: int = 100
    batch_bytes: int = 900_000
    delivery_timeout_ms: int = 120_000


class ProducerState(NamedTuple):
    """A producer's identity at the broker."""

    producer_id: int
    producer_epoch: int


class BufferedRecord(NamedTuple):
    """A record in the buffer."""

    record: Any
    size: int
    ticket: Any
    since_ms: int


@dataclass(eq=False, slots=True)
class Batch:
    """Records of one partition that are sent together."""

    partition: int
    entries: list[BufferedRecord]
    identity: ProducerState | None = None
    first_sequence: int = -1
    attempts: int = 0
    not_before_ms: int = 0

    @property
    def since_ms(self) -> int:
        """When its first record was added."""
        return self.entries[0].since_ms


@dataclass(eq=False, slots=True)
class _PartitionBuffer:
    """One partition: the waiting records, the batch to retry, and whether a batch is on its way."""

    waiting: deque[BufferedRecord] = field(default_factory=deque)
    again: Batch | None = None
    in_flight: bool = False
    identity: ProducerState | None = None
    next_sequence: int = 0
    size: int = 0


class Accumulator:
    """The buffer of one producer of one topic."""

    def __init__(
        self,
        limits: BatchLimits,
        *,
        idempotent: bool = True,
        hash_key: Callable[[bytes], int] = PARTITIONERS[CONSISTENT_RANDOM],
    ) -> None:
        self._limits = limits
        self._hash_key = hash_key
        self._idempotent = idempotent
        self._lanes: list[_PartitionBuffer] = []
        self._turn = 0
        self._waiting = 0
        self._flush_before_ms = -1

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic, as far as known."""
        return len(self._lanes)

    @property
    def undelivered(self) -> int:
        """The records that wait or are to be retried, without those on their way."""
        return self._waiting + sum(len(lane.again.entries) for lane in self._lanes if lane.again is not None)

    def grow(self, partitions: int) -> None:
        """Set the number of partitions; it never shrinks."""
        self._lanes.extend(_PartitionBuffer() for _ in range(partitions - len(self._lanes)))

    def place(self, key: bytes | None, partition: int | None = None) -> int:
        """Return the partition of a record: the one it names, its key's, or the next in turn."""
        if partition is not None:
            if not 0 <= partition < len(self._lanes):
                raise IndexError(f"partition {partition} does not exist; the topic has {len(self._lanes)} partitions")
            return partition
        if key is not None:
            return self._hash_key(key) % len(self._lanes)
        self._turn = (self._turn + 1) % len(self._lanes)
        return self._turn

    def add(self, partition: int, record: Any, size: int, ticket: Any, now_ms: int) -> None:
        """Append a record to its partition."""
        lane = self._lanes[partition]
        lane.waiting.append(BufferedRecord(record, size + RECORD_OVERHEAD_BYTES, ticket, now_ms))
        lane.size += size + RECORD_OVERHEAD_BYTES
        self._waiting += 1

    def flush(self, now_ms: int) -> None:
        """Send everything added so far as soon as possible."""
        self._flush_before_ms = now_ms

    def lacking(self) -> list[int]:
        """Return the partitions that have records to send and no identity."""
        if not self._idempotent:
            return []
        return [at for at, lane in enumerate(self._lanes) if lane.waiting and lane.identity is None]

    def identify(self, partitions: Iterable[int], identity: ProducerState) -> None:
        """Set a new identity for partitions; none of them has had it before."""
        for at in partitions:
            self._lanes[at].identity, self._lanes[at].next_sequence = identity, 0

    def take(self, now_ms: int) -> list[Batch]:
        """Return every batch to send now. Each is returned through `done`, `again` or `broken`."""
        hurried = self._waiting >= self._limits.buffer_records
        taken = []
        for at, lane in enumerate(self._lanes):
            batch = None if lane.in_flight else self._next(at, lane, now_ms, hurried=hurried)
            if batch is not None:
                lane.in_flight = True
                batch.attempts += 1
                taken.append(batch)
        return taken

    def done(self, batch: Batch) -> None:
        """Mark the batch as stored."""
        self._lanes[batch.partition].in_flight = False

    def again(self, batch: Batch, not_before_ms: int) -> None:
        """Schedule the batch for a retry, before all later records."""
        lane = self._lanes[batch.partition]
        lane.in_flight = False
        batch.not_before_ms = not_before_ms
        lane.again = batch

    def broken(self, batch: Batch) -> None:
        """Give up the batch: later records of its partition need another identity."""
        lane = self._lanes[batch.partition]
        lane.in_flight = False
        lane.identity = None

    def expired(self, now_ms: int) -> list[BufferedRecord]:
        """Remove and return the records that timed out, except those on their way, whose call reports them."""
        before_ms = now_ms - self._limits.delivery_timeout_ms
        late: list[BufferedRecord] = []
        for lane in self._lanes:
            if lane.again is not None and lane.again.since_ms <= before_ms:
                late += lane.again.entries
                lane.again, lane.identity = None, None
            while lane.waiting and lane.waiting[0].since_ms <= before_ms and lane.again is None:
                late.append(self._pop(lane))
        return late

    def next_ms(self, now_ms: int) -> int | None:
        """Return when to check again, if nothing else happens before."""
        times = [at for lane in self._lanes for at in self._times(lane)]
        return max(now_ms, min(times)) if times else None

    def drain(self) -> list[BufferedRecord]:
        """Remove and return everything that was not delivered."""
        left = []
        for lane in self._lanes:
            if lane.again is not None:
                left += lane.again.entries
                lane.again = None
            while lane.waiting:
                left.append(self._pop(lane))
        return left

    def _next(self, at: int, lane: _PartitionBuffer, now_ms: int, *, hurried: bool) -> Batch | None:
        if lane.again is not None:
            batch = lane.again
            if batch.not_before_ms > now_ms:
                return None
            lane.again = None
            return batch
        if not lane.waiting or (self._idempotent and lane.identity is None):
            return None
        if not hurried and not self._leaves(lane, now_ms):
            return None
        return self._cut(at, lane)

    def _leaves(self, lane: _PartitionBuffer, now_ms: int) -> bool:
        limits, since_ms = self._limits, lane.waiting[0].since_ms
        is_full = len(lane.waiting) >= limits.call_records or lane.size >= limits.batch_bytes
        return is_full or since_ms <= self._flush_before_ms or now_ms - since_ms >= limits.linger_ms

    def _cut(self, at: int, lane: _PartitionBuffer) -> Batch:
        """Build a batch of the first records of the partition, with the next sequence numbers."""
        entries = [self._pop(lane)]
        size = entries[0].size
        while lane.waiting and len(entries) < self._limits.call_records:
            size += lane.waiting[0].size
            if size > self._limits.batch_bytes:
                break
            entries.append(self._pop(lane))
        batch = Batch(at, entries)
        if lane.identity is not None:
            batch.identity, batch.first_sequence = lane.identity, lane.next_sequence
            lane.next_sequence = (lane.next_sequence + len(entries)) % SEQUENCES
        return batch

    def _pop(self, lane: _PartitionBuffer) -> BufferedRecord:
        entry = lane.waiting.popleft()
        lane.size -= entry.size
        self._waiting -= 1
        return entry

    def _times(self, lane: _PartitionBuffer) -> Iterable[int]:
        if lane.again is not None:
            ends_ms = lane.again.since_ms + self._limits.delivery_timeout_ms
            yield min(lane.again.not_before_ms, ends_ms)
        elif lane.waiting and not lane.in_flight:
            yield lane.waiting[0].since_ms + self._limits.linger_ms


def calls(batches: Sequence[Batch], leader_of: Callable[[int], Any], records_max: int) -> list[tuple[Any, list[Batch]]]:
    """Group the batches into calls: those of one leader together, up to a number of records."""
    found: list[tuple[Any, list[Batch]]] = []
    open_calls: dict[Any, tuple[list[Batch], int]] = {}
    for batch in batches:
        leader = leader_of(batch.partition)
        together, count = open_calls.get(leader, ([], records_max))
        if count + len(batch.entries) > records_max:
            together, count = [], 0
            found.append((leader, together))
        together.append(batch)
        open_calls[leader] = together, count + len(batch.entries)
    return found
