"""What a producer has still to deliver: which record goes to which partition, and when a batch leaves.

Pure: time comes in as milliseconds, whoever waits for a record is a ticket that is handed back with it. The rules:

- A key decides the partition by its hash, CRC-32 as in librdkafka unless told otherwise; records without take turns.
- A batch leaves when it is full, when its first record has waited `linger_ms`, when the whole buffer holds
  `buffer_records`, or when somebody flushes.
- Records of a partition arrive in their order: one batch of a partition is on its way at a time, and a batch that is
  sent again is the same batch with the same sequence numbers, so that the broker stores it once.
- A record that was not delivered within `delivery_timeout_ms` has failed. Whether the broker has it is then unknown, so
  the sequence of its partition is broken, and the partition goes on under a new producer id.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidemill.records.hashing import CONSISTENT_RANDOM, PARTITIONERS

RECORD_OVERHEAD_BYTES = 32
SEQUENCES = 2**31
"""Sequence numbers begin again at 0 behind the largest."""


class BatchLimits(NamedTuple):
    """When batches leave, and how large they are."""

    linger_ms: int = 100
    buffer_records: int = 1_000
    call_records: int = 100
    batch_bytes: int = 900_000
    delivery_timeout_ms: int = 120_000


class ProducerState(NamedTuple):
    """A producer as the broker knows it."""

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
    """Records of one partition that travel together."""

    partition: int
    entries: list[BufferedRecord]
    identity: ProducerState | None = None
    first_sequence: int = -1
    attempts: int = 0
    not_before_ms: int = 0

    @property
    def since_ms(self) -> int:
        """When its first record came."""
        return self.entries[0].since_ms


@dataclass(eq=False, slots=True)
class _PartitionBuffer:
    """One partition: what waits, what is to be sent again, whether something is on its way."""

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
        """How many partitions the topic has, as far as is known."""
        return len(self._lanes)

    @property
    def undelivered(self) -> int:
        """Records that wait or are to be sent again; what is on its way is not counted."""
        return self._waiting + sum(len(lane.again.entries) for lane in self._lanes if lane.again is not None)

    def grow(self, partitions: int) -> None:
        """The topic has so many partitions; it never shrinks."""
        self._lanes.extend(_PartitionBuffer() for _ in range(partitions - len(self._lanes)))

    def place(self, key: bytes | None, partition: int | None = None) -> int:
        """The partition of a record: the one it names, its key's, or the next in turn."""
        if partition is not None:
            if not 0 <= partition < len(self._lanes):
                raise IndexError(f"there is no partition {partition}; the topic has {len(self._lanes)}")
            return partition
        if key is not None:
            return self._hash_key(key) % len(self._lanes)
        self._turn = (self._turn + 1) % len(self._lanes)
        return self._turn

    def add(self, partition: int, record: Any, size: int, ticket: Any, now_ms: int) -> None:
        """Put a record behind the others of its partition."""
        lane = self._lanes[partition]
        lane.waiting.append(BufferedRecord(record, size + RECORD_OVERHEAD_BYTES, ticket, now_ms))
        lane.size += size + RECORD_OVERHEAD_BYTES
        self._waiting += 1

    def flush(self, now_ms: int) -> None:
        """What has come so far leaves as soon as it can."""
        self._flush_before_ms = now_ms

    def lacking(self) -> list[int]:
        """Partitions that have records to send and no identity to send them under."""
        if not self._idempotent:
            return []
        return [at for at, lane in enumerate(self._lanes) if lane.waiting and lane.identity is None]

    def identify(self, partitions: Iterable[int], identity: ProducerState) -> None:
        """Partitions go on under this identity, which none of them has had."""
        for at in partitions:
            self._lanes[at].identity, self._lanes[at].next_sequence = identity, 0

    def take(self, now_ms: int) -> list[Batch]:
        """Every batch that leaves now; each comes back through `done`, `again` or `broken`."""
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
        """The batch is stored."""
        self._lanes[batch.partition].in_flight = False

    def again(self, batch: Batch, not_before_ms: int) -> None:
        """The batch has to be sent again, before anything behind it."""
        lane = self._lanes[batch.partition]
        lane.in_flight = False
        batch.not_before_ms = not_before_ms
        lane.again = batch

    def broken(self, batch: Batch) -> None:
        """The batch was given up: what follows needs another identity."""
        lane = self._lanes[batch.partition]
        lane.in_flight = False
        lane.identity = None

    def expired(self, now_ms: int) -> list[BufferedRecord]:
        """Records whose time is up, taken out; those on their way are told by their call."""
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
        """When to look again, if nothing else happens before."""
        times = [at for lane in self._lanes for at in self._times(lane)]
        return max(now_ms, min(times)) if times else None

    def drain(self) -> list[BufferedRecord]:
        """Everything that was not delivered, taken out."""
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
        """The first records of the partition that make up a batch, with the next sequence numbers."""
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
    """The batches as calls: those of one leader together, up to a number of records."""
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
