"""Journals: the broker's own state as records of an internal compacted topic.

Groups and transactions store their state as keyed records; a value of None deletes the key. At start they replay the
records. Compaction keeps the topic small, and recovery is the same code as for any other topic.

Rules:
- A key belongs to one partition (`partition_of`), so its records have one order.
- `append` returns when the records are on disk. Appends to one partition are written and completed in the order of
  the calls, also while the first of them creates the topic. Cancelling the caller does not undo its append.
- `replay` returns the records in the order they were written. A topic that was never written to replays as empty.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from tidemill.model.errors import CorruptMessage, KafkaStorageError
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.streams.partition import Appended, Partition

REPLAY_BYTES = 1 << 20
LOOP_RECORDS_MAX = 1_000
"""A larger batch is built in a thread."""

KeyValue = tuple[bytes | None, bytes | None]


def java_hash(text: str) -> int:
    """Java's hash of a string. Kafka uses it to choose the partition of a group, so Tidemill does too."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


class TopicJournal:
    """Ordered append and replay over the partitions of one internal topic."""

    def __init__(
        self,
        topic: str,
        *,
        width: Callable[[], int],
        create: Callable[[], Awaitable[object]],
        leads: Callable[[int, int], bool],
        find: Callable[[int], Partition | None],
        clock: Callable[[], int],
    ) -> None:
        self.topic = topic
        self._width = width
        self._create = create
        self._leads = leads
        self._find = find
        self._clock = clock
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._creating = asyncio.Lock()

    @property
    def partitions(self) -> int:
        """The number of partitions, now or after the first record creates the topic. It never changes after that."""
        return self._width()

    def partition_of(self, key: str) -> int:
        """The partition that stores this key (a group or a transactional id)."""
        return (java_hash(key) & 0x7FFFFFFF) % self.partitions

    def leads(self, partition: int, epoch: int) -> bool:
        """Whether this broker has led the partition since this epoch, so that the state read then is still current."""
        return self._leads(partition, epoch)

    async def append(self, partition: int, records: Sequence[KeyValue]) -> None:
        """Write the records as one batch, all or none; returns when they are durable."""
        now = self._clock()
        async with self._turns[partition]:
            is_large = len(records) > LOOP_RECORDS_MAX
            batch = await asyncio.to_thread(_batch, records, now) if is_large else _batch(records, now)
            replica = await self._open(partition)
            writing: asyncio.Task[Appended] = asyncio.create_task(replica.leader.append_own(batch))
        await asyncio.shield(writing)

    async def replay(self, partition: int) -> AsyncIterator[Sequence[Record]]:
        """Every stored record, oldest first, one batch at a time."""
        replica = self._find(partition)
        if replica is None:
            return
        try:
            async for records in self._replay(replica):
                yield records
        except CorruptMessage as error:
            raise KafkaStorageError(
                f"{self.topic}-{partition} cannot be read: {error}; restore its directory from a backup"
            ) from error

    async def _replay(self, replica: Partition) -> AsyncIterator[Sequence[Record]]:
        end = await replica.leader.end_settled()
        offset = replica.log_start_offset
        while offset < end:
            found = await replica.reader.read(offset, REPLAY_BYTES)
            if not found.records:
                raise KafkaStorageError(
                    f"{self.topic}-{replica.index} has no records at offset {offset}, before its end {end}"
                )
            for piece in found.records:
                for position, header in iter_headers(piece):
                    if header.next_offset > offset and not header.control:
                        batch = memoryview(piece)[position : position + header.size]
                        yield [record for record in read_records(batch) if record.offset >= offset]
                    offset = max(offset, header.next_offset)

    async def _open(self, partition: int) -> Partition:
        replica = self._find(partition)
        if replica is None:
            async with self._creating:
                replica = self._find(partition)
                if replica is None:
                    await self._create()
                    replica = self._find(partition)
        if replica is None:
            raise KafkaStorageError(f"{self.topic} has no partition {partition}")
        return replica


def _batch(records: Sequence[KeyValue], now_ms: int) -> bytearray:
    return build_batch([NewRecord(key, value, timestamp=now_ms) for key, value in records])
