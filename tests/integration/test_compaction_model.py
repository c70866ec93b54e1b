"""Compaction against a model, with readers who are in the middle of the log while it runs.

A log stands for a table: the last value of each key, tombstones removing it. A reader of the whole log, from whatever
point they had come to when compaction ran, must end with the same table: nothing is missing that they need, nothing
comes back that was removed, nothing of an aborted transaction is seen. Readers who are slower than
`delete.retention.ms` have no such promise about tombstones, so none is here.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compression import Codec
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.streams.segments import SegmentStore
from tidemill.testing.faults import SimDisk

PRODUCER = 7
DELETE_RETENTION_MS = 60_000
LIMIT_S = 60
SETTINGS = parse(
    {
        "cleanup.policy": "compact",
        "segment.bytes": "300",
        "index.interval.bytes": "1",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": str(DELETE_RETENTION_MS),
    }
)
Table = dict[bytes, bytes]
T = TypeVar("T")


class Write(NamedTuple):
    """Some records in one batch: plain, or a transaction that is committed or aborted."""

    records: list[tuple[bytes, bytes | None]]
    end: str
    codec: Codec


class Wait(NamedTuple):
    """Time passes, and the partition is looked after: compaction may run."""

    span_ms: int


class Read(NamedTuple):
    """A reader gets on by some bytes."""

    reader: int
    size: int


keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.one_of(st.none(), st.binary(min_size=1, max_size=40))
writes = st.builds(
    Write,
    st.lists(st.tuples(keys, values), min_size=1, max_size=4),
    st.sampled_from(["plain", "plain", "commit", "abort"]),
    st.sampled_from([Codec.NONE, Codec.ZSTD]),
)
waits = st.builds(Wait, st.sampled_from([10, 1_000, DELETE_RETENTION_MS // 40]))
reads = st.builds(Read, st.integers(0, 1), st.integers(1, 900))
histories = st.lists(st.one_of(writes, writes, waits, reads), min_size=20, max_size=60)


class Reader:
    """A read_committed consumer that keeps a table."""

    def __init__(self) -> None:
        self.offset = 0
        self.table: Table = {}

    async def get_on(self, log: Partition, size: int) -> bool:
        found = await log.reader.read(self.offset, size, committed=True)
        aborted = sorted((each.first_offset, each.producer_id) for each in found.aborted)
        dropping: set[int] = set()
        for buffer in found.records:
            for position, header in iter_headers(buffer):
                while aborted and aborted[0][0] <= header.base_offset:
                    dropping.add(aborted.pop(0)[1])
                if header.control:
                    dropping.discard(header.producer_id)
                elif not (header.transactional and header.producer_id in dropping):
                    self.take(memoryview(buffer)[position : position + header.size])
                self.offset = max(self.offset, header.next_offset)
        return bool(found.records)

    async def read_all(self, log: Partition, size: int) -> None:
        while await self.get_on(log, size):
            pass

    def take(self, batch: memoryview) -> None:
        for record in read_records(batch):
            if record.offset < self.offset:
                continue
            assert record.key is not None
            if record.value is None:
                self.table.pop(record.key, None)
            else:
                self.table[record.key] = record.value


class Life:
    """A partition, its model and its readers."""

    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(Random(seed))
        self.now_ms = 1_700_000_000_000
        self.model: Table = {}
        self.sequence = 0
        self.readers = [Reader(), Reader()]

    async def open(self) -> Partition:
        return await opener(SegmentStore(self.disk), lambda: self.now_ms)("t", 0, SETTINGS, 0)

    async def write(self, log: Partition, write: Write) -> None:
        records = [NewRecord(key, value, (), self.now_ms) for key, value in write.records]
        if write.end == "plain":
            await log.leader.append(build_batch(records, codec=write.codec), acks=-1)
        else:
            batch = build_batch(
                records,
                codec=write.codec,
                producer_id=PRODUCER,
                producer_epoch=0,
                base_sequence=self.sequence,
                transactional=True,
            )
            self.sequence += len(records)
            await log.leader.append(batch, acks=-1)
            await log.leader.append_marker(PRODUCER, 0, commit=write.end == "commit")
        if write.end != "abort":
            for key, value in write.records:
                if value is None:
                    self.model.pop(key, None)
                else:
                    self.model[key] = value

    async def wait(self, log: Partition, span_ms: int) -> None:
        self.now_ms += span_ms
        await log.maintain(self.now_ms)
        fresh = Reader()
        await asyncio.gather(log.cleaned(), fresh.read_all(log, 150), self.readers[0].get_on(log, 100))
        assert fresh.table == self.model

    async def check(self, log: Partition) -> None:
        for reader in (*self.readers, Reader()):
            await reader.read_all(log, 500)
            assert reader.table == self.model


@settings(max_examples=100, deadline=None)
@given(histories, st.integers(0, 2**32))
def test_every_reader_ends_with_the_same_table(history: list[Write | Wait | Read], seed: int) -> None:
    async def live() -> None:
        life = Life(seed)
        log = await life.open()
        for step in history:
            if isinstance(step, Write):
                await life.write(log, step)
            elif isinstance(step, Wait):
                await life.wait(log, step.span_ms)
            else:
                await life.readers[step.reader].get_on(log, step.size)
        await life.check(log)
        await log.close()
        log = await life.open()
        await life.check(log)
        await life.wait(log, DELETE_RETENTION_MS)
        await life.wait(log, DELETE_RETENTION_MS)
        fresh = Reader()
        await fresh.read_all(log, 500)
        assert fresh.table == life.model
        await log.close()

    asyncio.run(asyncio.wait_for(live(), LIMIT_S))


async def test_the_number_of_files_does_not_grow_with_the_life_of_the_log() -> None:
    async def live() -> None:
        life = Life(1)
        log = await life.open()
        counts = []
        for number in range(600):
            await life.write(log, Write([(b"%d" % (number % 5), b"%d" % number)], "plain", Codec.NONE))
            if number % 30 == 29:
                await life.wait(log, 1000)
                counts.append(len([name for name in life.disk.list("t/0") if name.endswith(".log")]))
        assert max(counts[5:]) <= max(counts[:5]) + 2, counts
        assert log.size_bytes < 2000
        await life.check(log)
        await log.close()

    await asyncio.wait_for(live(), LIMIT_S)


class HeldDisk(SimDisk):
    """A disk whose next read aside waits until it is let go."""

    def __init__(self) -> None:
        super().__init__(Random(3))
        self.hold = False
        self.held = asyncio.Event()
        self.let_go = asyncio.Event()

    def pread_cached(self, file: int, size: int, position: int) -> None:
        return None

    async def aside(self, call: Callable[[], T]) -> T:
        if self.hold and getattr(call, "func", None) == self.pread:
            self.hold = False
            result = call()
            self.held.set()
            await self.let_go.wait()
            return result
        return await super().aside(call)


async def test_a_read_that_compaction_overtakes_is_made_again() -> None:
    def one(key: bytes) -> bytearray:
        return build_batch([NewRecord(key, b"value", (), 1_700_000_000_000)])

    async def live() -> None:
        disk = HeldDisk()
        changes = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "index.interval.bytes": "1"}
        settings = parse({**changes, "segment.bytes": str(30 * len(one(b"key00")))})
        store = opener(SegmentStore(disk), lambda: 1_700_000_000_000)
        log = await store("t", 0, settings, 0)
        for number in range(30):
            await log.leader.append(one(b"key%02d" % number), acks=-1)
        for number in range(31):
            await log.leader.append(one(b"key%02d" % (number % 10)), acks=-1)
        await log.close()
        log = await store("t", 0, settings, 0)  # what was just written would be read from memory
        disk.hold = True
        # With room for less than a batch its header is read first and then the whole: two reads, with a swap between.
        reading, held = asyncio.ensure_future(log.reader.read(12, 1)), asyncio.ensure_future(disk.held.wait())
        await asyncio.wait([reading, held], return_when=asyncio.FIRST_COMPLETED)
        assert not reading.done(), "the read did not go to the disk"
        await log.maintain(1_700_000_001_000)
        await log.cleaned()
        assert log.size_bytes < 60 * len(one(b"key00"))
        disk.let_go.set()
        [found] = (await reading).records
        assert [header.base_offset for _, header in iter_headers(found)] == [12]
        await log.close()

    await asyncio.wait_for(live(), LIMIT_S)
