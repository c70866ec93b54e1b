"""Journals: the broker's own state as records of an internal compacted topic.

Groups and transactions remember what they know by writing keyed records (a value of None forgets the key) and learn
it again at start by replaying them; the topic is kept small by compaction and recovered by the same code as any
other.

Rules: - A key belongs to one partition (`partition_of`), so its records have one order. - `append` returns when the
records are on disk. Appends to one partition are written and completed in the order of the calls, also while the
topic is being created by the first of them; a caller that goes away does not undo its append. - `replay` gives the
records in the order they were written. A topic that was never written to replays as nothing.
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
"""A batch of more records is built in a thread."""

KeyValue = tuple[bytes | None, bytes | None]


def java_hash(text: str) -> int:
    """Java's hash of a string: what places a group on a partition in Kafka, and so here."""
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
        """How many there are, or will be when the first record is written; this never changes once there is one."""
        return self._width()

    def partition_of(self, key: str) -> int:
        """The partition that keeps this key (a group, a transactional id)."""
        return (java_hash(key) & 0x7FFFFFFF) % self.partitions

    def leads(self, partition: int, epoch: int) -> bool:
        """Whether what was read of a partition in this epoch is still what is so: nobody else writes to it."""
        return self._leads(partition, epoch)

    async def append(self, partition: int, records: Sequence[KeyValue]) -> None:
        """Write the records as one batch, all or none; returns when they are durable."""
        now = self._clock()
        async with self._turns[partition]:
            is_large = len(records) > LOOP_RECORDS_MAX
            batch = await asyncio.to_thread(_batch, records, now) if is_large else _batch(records, now)
            home = await self._open(partition)
            writing: asyncio.Task[Appended] = asyncio.create_task(home.append_own(batch))
        await asyncio.shield(writing)

    async def replay(self, partition: int) -> AsyncIterator[Sequence[Record]]:
        """Every record that is still kept, oldest first, a batch at a time."""
        home = self._find(partition)
        if home is None:
            return
        try:
            async for records in self._replay(home):
                yield records
        except CorruptMessage as error:
            raise KafkaStorageError(
                f"{self.topic}-{partition} cannot be read: {error}; bring its folder back from a backup"
            ) from error

    async def _replay(self, home: Partition) -> AsyncIterator[Sequence[Record]]:
        end = await home.end_settled()
        offset = home.log_start_offset
        while offset < end:
            found = await home.read(offset, REPLAY_BYTES)
            if not found.records:
                raise KafkaStorageError(f"{self.topic}-{home.index} ends at {offset}, before its end {end}")
            for piece in found.records:
                for position, header in iter_headers(piece):
                    if header.next_offset > offset and not header.control:
                        batch = memoryview(piece)[position : position + header.size]
                        yield [record for record in read_records(batch) if record.offset >= offset]
                    offset = max(offset, header.next_offset)

    async def _open(self, partition: int) -> Partition:
        home = self._find(partition)
        if home is None:
            async with self._creating:
                home = self._find(partition)
                if home is None:
                    await self._create()
                    home = self._find(partition)
        if home is None:
            raise KafkaStorageError(f"{self.topic} has no partition {partition}")
        return home


def _batch(records: Sequence[KeyValue], now_ms: int) -> bytearray:
    return build_batch([NewRecord(key, value, timestamp=now_ms) for key, value in records])
