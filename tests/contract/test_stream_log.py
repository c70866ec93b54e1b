"""What every stream log has to do, tested through a partition: in memory, in segments on a real and a simulated disk,
and in rows of the embedded ClickHouse, of which a process has one: tests share it, one after the other."""

import asyncio
import atexit
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest

from tidemill.model.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    KafkaStorageError,
    MessageTooLarge,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordListTooLarge,
    TransactionCoordinatorFenced,
    UnknownLeaderEpoch,
)
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compression import Codec
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.streams.clickhouse import BrokerRun, ClickHouseStore, Engine
from tidemill.streams.clickhouse import parse as parse_url
from tidemill.streams.core.follower import OutOfRange
from tidemill.streams.core.insync import Term
from tidemill.streams.interface import LogStore
from tidemill.streams.memory import MemoryLogStore
from tidemill.streams.opener import opener
from tidemill.streams.partition import NOT_FOUND, FoundOffset, Partition, ReadResult
from tidemill.streams.segments import SegmentStore
from tidemill.testing.faults import SimDisk

NOW = 4_000_000_000_000  # to come: by its own clock, ClickHouse lets nothing of it expire
DAY_MS = 86_400_000
MEGABYTE = 1 << 20


class World:
    """A store, a clock, and the partition that is opened on them."""

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.now_ms = NOW
        self._open = opener(store, lambda: self.now_ms)
        self.overrides: dict[str, str] = {}
        self.steps = 30 if isinstance(store, ClickHouseStore) else 250  # an insert is dear

    async def open(self, epoch: int = 0, **overrides: str) -> Partition:
        self.overrides = {name.replace("_", "."): text for name, text in overrides.items()} or self.overrides
        return await self._open("orders", 0, parse(self.overrides), epoch)


def memory_store(_: Path) -> LogStore:
    return MemoryLogStore()


def real_store(folder: Path) -> LogStore:
    return SegmentStore.at(folder)


def simulated_store(_: Path) -> LogStore:
    return SegmentStore(SimDisk(Random(5)))


def chdb_store(_: Path) -> LogStore:
    return ClickHouseStore(embedded(), lambda: NOW, BrokerRun("0", uuid4().hex))


@cache
def embedded() -> Engine:
    folder = TemporaryDirectory(prefix="tidemill-chdb-")
    atexit.register(folder.cleanup)
    return Engine(parse_url("chdb:?fsync=false", Path(folder.name)))


STORES = [memory_store, real_store, simulated_store, chdb_store]


@pytest.fixture(params=STORES, ids=["memory", "segments", "simulated", "chdb"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    store = request.param(tmp_path)
    try:
        if isinstance(store, ClickHouseStore):
            await store.remove_topic("orders")
        yield World(store)
    finally:
        await store.close()


def batch(*values: bytes | None, time: int = NOW, key: bytes | None = b"k", **fields: Any) -> bytearray:
    return build_batch([NewRecord(key, value, (), time) for value in values], **fields)


def numbered(sequence: int, count: int = 1, epoch: int = 0, producer: int = 9, **fields: Any) -> bytearray:
    values = [b"%d" % (sequence + index) for index in range(count)]
    return batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **fields)


def values_of(found: ReadResult) -> list[bytes | None]:
    values = []
    for buffer in found.records:
        for position, header in iter_headers(buffer):
            values += [record.value for record in read_records(memoryview(buffer)[position : position + header.size])]
    return values


async def everything(log: Partition, **options: Any) -> dict[int, bytes | None]:
    """All records by offset, read piece by piece."""
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while True:
        piece = await log.reader.read(offset, 700, **options)
        if not piece.records:
            return found
        for buffer in piece.records:
            for position, header in iter_headers(buffer):
                if not header.control:
                    for record in read_records(memoryview(buffer)[position : position + header.size]):
                        found[record.offset] = record.value
                offset = header.next_offset


async def test_batches_come_back_byte_for_byte(world: World) -> None:
    log = await world.open(epoch=3)
    sent = [batch(b"a", b"b"), batch(b"c", codec=Codec.LZ4), batch(b"d", b"e", b"f")]
    bodies = [bytes(one[16:]) for one in sent]
    assert [(await log.leader.append(one, acks=-1)).base_offset for one in sent] == [0, 2, 3]
    found = await log.reader.read(0, MEGABYTE)
    whole = b"".join(found.records)
    headers = list(iter_headers(whole))
    assert [whole[at + 16 : at + header.size] for at, header in headers] == bodies
    assert [(header.base_offset, header.leader_epoch) for _, header in headers] == [(0, 3), (2, 3), (3, 3)]
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (6, 6, 0)
    assert found.size == len(whole) == log.size_bytes


async def test_a_read_begins_with_the_batch_that_has_the_offset(world: World) -> None:
    log = await world.open(segment_bytes="2000", index_interval_bytes="100")
    for number in range(60):
        await log.leader.append(batch(b"%d-0" % number, b"%d-1" % number, b"%d-2" % number), acks=1)
    for offset in range(180):
        found = await log.reader.read(offset, 1)
        assert values_of(found)[offset % 3] == b"%d-%d" % (offset // 3, offset % 3)
        assert len(values_of(found)) == 3


async def test_limits_of_a_read(world: World) -> None:
    log = await world.open()
    size = len(batch(b"x" * 100))
    for _ in range(5):
        await log.leader.append(batch(b"x" * 100), acks=1)
    assert (await log.reader.read(0, 3 * size)).size == 3 * size
    assert (await log.reader.read(0, 3 * size - 1)).size == 2 * size
    assert (await log.reader.read(0, 1)).size == size
    assert (await log.reader.read(0, size - 1, at_least_one=False)).records == []
    assert (await log.reader.read(5, MEGABYTE)).records == []
    for offset in (-1, 6):
        with pytest.raises(OffsetOutOfRange):
            await log.reader.read(offset, MEGABYTE)
    with pytest.raises(UnknownLeaderEpoch):
        await log.reader.read(0, 1, leader_epoch=1)


async def test_an_old_leader_epoch_is_fenced(world: World) -> None:
    log = await world.open(epoch=2)
    await log.leader.append(batch(b"a"), acks=-1)
    await log.close()
    log = await world.open(epoch=5)
    await log.leader.append(batch(b"b", b"c"), acks=-1)
    with pytest.raises(FencedLeaderEpoch):
        await log.reader.read(0, 1, leader_epoch=2)
    assert [log.reader.end_of_epoch(epoch) for epoch in (1, 2, 4, 5, 9)] == [
        (-1, -1),
        (2, 1),
        (2, 1),
        (5, 3),
        (-1, -1),
    ]


async def test_readers_are_woken(world: World) -> None:
    log = await world.open()
    woken: list[int] = []
    leave = log.reader.watch(lambda: woken.append(log.high_watermark))
    await log.leader.append(batch(b"a"), acks=1)
    await log.leader.append(batch(b"b"), acks=-1)
    leave()
    leave()
    await log.leader.append(batch(b"c"), acks=1)
    assert woken == [1, 2]
    log.reader.watch(lambda: woken.append(-1))
    await log.close()
    assert woken == [1, 2, -1]
    with pytest.raises(NotLeaderOrFollower):
        await log.leader.append(batch(b"d"), acks=1)


async def test_a_retry_is_stored_once_also_after_a_restart(world: World) -> None:
    log = await world.open()
    places = [(await log.leader.append(numbered(2 * n, 2), acks=-1)).base_offset for n in range(6)]
    assert places == [0, 2, 4, 6, 8, 10]
    for _ in range(2):
        for number in range(1, 6):
            again = await log.leader.append(numbered(2 * number, 2), acks=-1)
            assert again.base_offset == 2 * number
        for wrong in (0, 11, 13, 99):
            with pytest.raises(OutOfOrderSequence):
                await log.leader.append(numbered(wrong, 2), acks=-1)
        assert log.log_end_offset == 12
        await log.close()
        log = await world.open()
    assert (await log.leader.append(numbered(12), acks=-1)).base_offset == 12


async def test_epochs_of_a_producer(world: World) -> None:
    log = await world.open()
    await log.leader.append(numbered(41), acks=1)  # not known: any sequence is a beginning
    with pytest.raises(OutOfOrderSequence):
        await log.leader.append(numbered(42, epoch=1), acks=1)
    await log.leader.append(numbered(0, epoch=1), acks=1)
    with pytest.raises(InvalidProducerEpoch):
        await log.leader.append(numbered(42, epoch=0), acks=1)
    await log.leader.append(numbered(2**31 - 2, 2, producer=10), acks=1)
    await log.leader.append(numbered(0, producer=10), acks=1)
    assert [(one.producer_id, one.epoch, one.last_sequence) for one in log.producers()] == [(9, 1, 0), (10, 0, 0)]
    world.now_ms += DAY_MS
    await log.maintain(world.now_ms)
    assert log.producers() == []


async def test_transactions_hold_back_and_mark_readers(world: World) -> None:
    log = await world.open()
    await log.leader.append(batch(b"plain"), acks=-1)
    await log.leader.append(numbered(0, 2, producer=1, transactional=True, time=NOW + 9), acks=-1)
    await log.leader.append(numbered(0, 1, producer=2, transactional=True), acks=-1)
    assert (
        log.leader.open_transaction(1, 0),
        log.leader.open_transaction(2, 0),
        log.leader.open_transaction(3, 0),
    ) == (1, 3, None)
    assert (log.high_watermark, log.last_stable_offset) == (4, 1)
    with pytest.raises(InvalidTxnState):
        await log.leader.append(numbered(2, producer=1), acks=-1)
    assert list(await everything(log, committed=True)) == [0]
    assert (await log.reader.offset_at(NOW + 1, committed=True)) == NOT_FOUND
    assert [(await log.reader.offset_at(NOW + 1)).offset, (await log.reader.offset_of_max_timestamp()).offset] == [
        1,
        1,
    ]
    assert (await log.reader.offset_of_max_timestamp(committed=True)).offset == 0
    await log.leader.append_marker(1, 0, commit=False)
    assert log.last_stable_offset == 3
    await log.leader.append_marker(2, 0, commit=True, coordinator_epoch=4)
    assert log.last_stable_offset == log.high_watermark == 6
    for _ in range(2):
        found = await log.reader.read(0, MEGABYTE, committed=True)
        assert [tuple(one) for one in found.aborted] == [(1, 1)]
        assert (await log.reader.read(5, MEGABYTE, committed=True)).aborted == []
        assert (await log.reader.read(0, MEGABYTE)).aborted == []
        with pytest.raises(TransactionCoordinatorFenced):
            await log.leader.append_marker(2, 0, commit=False, coordinator_epoch=3)
        await log.close()
        log = await world.open()


async def test_a_log_that_begins_within_an_open_transaction_is_stable_up_to_there(world: World) -> None:
    log = await world.open()
    await log.leader.append(numbered(0, 2, producer=1, transactional=True), acks=-1)
    await log.leader.append(batch(b"plain"), acks=-1)
    assert log.last_stable_offset == 0
    assert await log.leader.delete_records(2) == 2
    assert log.last_stable_offset == 2
    assert (await log.reader.read(2, MEGABYTE, committed=True)).records == []
    await log.leader.append_marker(1, 0, commit=True)
    assert list(await everything(log, committed=True)) == [2]


async def test_producers_that_never_pause_do_not_keep_retention_out(world: World) -> None:
    log = await world.open()
    await log.leader.append(batch(b"first"), acks=1)
    stored, total = 0, 80

    async def produce() -> None:
        nonlocal stored
        for _ in range(total // 4):
            await log.leader.append(batch(bytes(300_000)), acks=1)  # too large to be written in place
            stored += 1

    producers = [asyncio.create_task(produce()) for _ in range(4)]
    while stored < 4:  # noqa: ASYNC110 -- what is written aside comes in its own time
        await asyncio.sleep(0)
    assert await log.leader.delete_records(1) == 1
    assert stored < total // 2
    await asyncio.gather(*producers)
    assert log.log_end_offset == total + 1
    await log.close()


async def test_an_open_transaction_is_known_after_a_restart(world: World) -> None:
    log = await world.open()
    await log.leader.append(numbered(0, 2, transactional=True), acks=-1)
    await log.leader.append(batch(b"later"), acks=-1)
    await log.close()
    log = await world.open()
    assert (log.leader.open_transaction(9, 0), log.last_stable_offset, log.high_watermark) == (0, 0, 3)
    await log.leader.append(numbered(2, transactional=True), acks=-1)
    await log.leader.append_marker(9, 1, commit=False)
    with pytest.raises(InvalidProducerEpoch):
        await log.leader.append(numbered(3, transactional=True), acks=-1)
    assert [tuple(one) for one in (await log.reader.read(2, MEGABYTE, committed=True)).aborted] == [(9, 0)]


async def test_a_rejected_append_changes_nothing(world: World) -> None:
    log = await world.open(max_message_bytes="500", segment_bytes="300", message_timestamp_before_max_ms="1000")
    damaged = batch(b"value")
    damaged[-1] ^= 1
    refusals: list[tuple[bytearray, type[Exception]]] = [
        (batch(b"x" * 600), MessageTooLarge),
        (batch(b"x" * 300), RecordListTooLarge),
        (batch(b"x", time=NOW + DAY_MS), InvalidTimestamp),
        (batch(b"x", time=NOW - 2000), InvalidTimestamp),
        (damaged, CorruptMessage),
        (batch(b"a") + batch(b"b"), InvalidRecord),
        (bytearray(), InvalidRecord),
        (bytearray(batch(b"a")[:40]), CorruptMessage),
    ]
    for bad, error in refusals:
        with pytest.raises(error):
            await log.leader.append(bad, acks=-1)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


async def test_the_settings_of_a_topic_shape_what_is_stored(world: World) -> None:
    log = await world.open(message_timestamp_type="LogAppendTime", compression_type="zstd")
    world.now_ms += 77
    done = await log.leader.append(batch(b"x" * 500, time=5), acks=-1)
    assert done.log_append_time_ms == NOW + 77
    (stored,) = (await log.reader.read(0, MEGABYTE)).records
    _, header = next(iter_headers(stored))
    assert (header.codec, header.log_append_time, header.max_timestamp) == (Codec.ZSTD, True, NOW + 77)
    assert [(one.value, one.timestamp) for one in read_records(stored)] == [(b"x" * 500, NOW + 77)]
    log.apply_settings(parse({"cleanup.policy": "compact"}))
    with pytest.raises(InvalidRecord) as refused:
        await log.leader.append(build_batch([NewRecord(b"k", b"v", (), NOW), NewRecord(None, b"v", (), NOW)]), acks=-1)
    assert [index for index, _ in refused.value.record_errors] == [1]


async def test_records_are_found_by_time(world: World) -> None:
    log = await world.open(segment_bytes="1500", index_interval_bytes="150")
    assert await log.reader.offset_at(0) == await log.reader.offset_of_max_timestamp() == NOT_FOUND
    times = [NOW + 10 * number + (95 if number == 30 else 0) for number in range(60)]
    for time in times:
        records = [NewRecord(None, b"v", (), time), NewRecord(None, b"v", (), time + 5)]
        await log.leader.append(build_batch(records), acks=1)
    each = [(offset, time + 5 * (offset % 2)) for offset, time in enumerate(t for t in times for _ in range(2))]
    for wanted in range(NOW - 1, NOW + 610, 3):
        expected = next(((offset, time) for offset, time in each if time >= wanted), None)
        found = await log.reader.offset_at(wanted)
        assert (found.offset, found.timestamp) == (expected or (-1, -1)), wanted
    assert await log.reader.offset_of_max_timestamp() == FoundOffset(119, NOW + 595, 0)


async def test_the_start_moves_by_deletion_and_stays_moved(world: World) -> None:
    log = await world.open(segment_bytes="1000")
    for number in range(40):
        await log.leader.append(batch(b"%d" % number, b"x"), acks=1)
    before = log.size_bytes
    assert await log.leader.delete_records(31) == 31
    assert log.size_bytes < before
    assert await log.leader.delete_records(7) == 31
    with pytest.raises(OffsetOutOfRange):
        await log.leader.delete_records(81)
    with pytest.raises(OffsetOutOfRange):
        await log.reader.read(30, MEGABYTE)
    assert values_of(await log.reader.read(31, 1)) == [b"15", b"x"]
    assert (await log.reader.offset_at(0)).offset == 31
    await log.close()
    log = await world.open()
    assert (log.log_start_offset, log.log_end_offset) == (31, 80)
    assert await log.leader.delete_records(-1) == 80
    assert (await log.leader.append(batch(b"next"), acks=-1)).log_start_offset == 80
    await log.close()
    log = await world.open()
    assert await everything(log) == {80: b"next"}


async def test_retention_by_size_time_and_age(world: World) -> None:
    log = await world.open(segment_bytes="1000", retention_bytes="3000", retention_ms=str(10 * DAY_MS))
    for _ in range(60):
        await log.leader.append(batch(b"x" * 40, time=world.now_ms), acks=1)
    await log.maintain(world.now_ms)
    assert 3000 <= log.size_bytes < 4000
    assert log.log_start_offset > 0
    log.apply_settings(parse({"segment.ms": str(DAY_MS), "retention.ms": str(2 * DAY_MS)}))
    world.now_ms += DAY_MS
    await log.maintain(world.now_ms)
    await log.leader.append(batch(b"new", time=world.now_ms), acks=1)
    world.now_ms += DAY_MS + 1
    await log.maintain(world.now_ms)
    assert await everything(log) == {60: b"new"}
    world.now_ms += 2 * DAY_MS
    await log.maintain(world.now_ms)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (61, 61, 0)
    assert (await log.leader.append(batch(b"last"), acks=-1)).base_offset == 61


async def test_a_cut_of_a_compacted_log_knows_where_epochs_began_also_after_a_kill(world: World) -> None:
    small = {"cleanup_policy": "compact", "segment_bytes": "100", "min_cleanable_dirty_ratio": "0.01"}
    log = await world.open(epoch=2, **small)
    await log.leader.append(batch(b"a", key=b"another"), acks=-1)
    await log.close()
    log = await world.open(epoch=3)
    for value in (b"b", b"c", b"d", b"e"):
        await log.leader.append(batch(value), acks=-1)
    await log.maintain(world.now_ms)
    await log.cleaned()
    assert list(await everything(log)) == [0, 3, 4]
    await log.follower.truncate(4)
    log = await world.open(epoch=4)
    assert (log.log_end_offset, log.reader.end_of_epoch(2), log.reader.end_of_epoch(3)) == (4, (2, 1), (3, 4))


async def test_compaction_keeps_the_last_of_each_key(world: World) -> None:
    log = await world.open(cleanup_policy="compact", segment_bytes="1000", min_cleanable_dirty_ratio="0.01")
    for number in range(100):
        await log.leader.append(batch(b"%d" % number, key=b"key-%d" % (number % 7)), acks=1)
    before, closed = log.size_bytes, log._log.segments()[-1].base_offset
    world.now_ms += 1000
    await log.maintain(world.now_ms)
    await log.cleaned()
    assert log.size_bytes < before / 2
    for _ in range(2):
        found = await everything(log)
        assert set(range(93, 100)) <= set(found)
        assert len([offset for offset in found if offset < closed]) <= 8
        assert all(value == b"%d" % offset for offset, value in found.items())
        assert log.log_end_offset == 100
        await log.close()
        log = await world.open()


async def test_a_cut_forgets_what_was_behind_it(world: World) -> None:
    log = await world.open(segment_bytes="1000")
    for number in range(30):
        await log.leader.append(numbered(2 * number, 2), acks=-1)
    await log.follower.truncate(31)
    assert (log.log_end_offset, log.high_watermark) == (30, 30)
    assert (await log.leader.append(numbered(30), acks=-1)).base_offset == 30
    await log.close()
    log = await world.open()
    assert list(await everything(log)) == list(range(31))
    with pytest.raises(OutOfOrderSequence):
        await log.leader.append(numbered(58, 2), acks=-1)


async def test_large_and_small_batches_keep_their_order(world: World) -> None:
    log = await world.open(max_message_bytes="2000000")
    sizes = [10, 400_000, 10, 10, 700_000, 10, 300_000] * 3
    tasks = [asyncio.create_task(log.leader.append(batch(b"x" * size), acks=-1)) for size in sizes]
    assert [(await task).base_offset for task in tasks] == list(range(len(sizes)))
    assert [len(value or b"") for value in (await everything(log)).values()] == sizes


async def test_a_deleted_log_cannot_be_read(world: World) -> None:
    log = await world.open()
    await log.leader.append(batch(b"a"), acks=-1)
    await log.delete()
    with pytest.raises((NotLeaderOrFollower, KafkaStorageError)):
        await log.reader.read(0, 1)
    log = await world.open()
    assert (log.log_end_offset, await everything(log)) == (0, {})


@pytest.mark.parametrize("seed", range(4))
async def test_the_log_agrees_with_a_list(world: World, seed: int) -> None:
    """Random appends, reads, deletions, cuts and restarts, compared with a plain model."""
    random = Random(seed)
    log = await world.open(segment_bytes="1200", index_interval_bytes=str(random.choice([0, 200, 4096])))
    model: list[tuple[int, bytes]] = []
    start = 0
    for _ in range(world.steps):
        choice = random.random()
        end = model[-1][0] + 1 if model else start
        if choice < 0.5:
            values = [random.randbytes(random.randint(0, 60)) for _ in range(random.randint(1, 4))]
            done = await log.leader.append(batch(*values), acks=random.choice([-1, 0, 1]))
            assert done.base_offset == end
            model += [(end + index, value) for index, value in enumerate(values)]
        elif choice < 0.85:
            offset = random.randint(start, end)
            found = values_of(await log.reader.read(offset, random.choice([1, 300, MEGABYTE])))
            tail = [value for number, value in model if number >= offset]
            assert found[-len(tail) :] == tail[: len(found)] or any(
                found[skip:] == tail[: len(found) - skip] for skip in range(4)
            )
            assert bool(found) == (offset < end)
        elif choice < 0.9:
            start = await log.leader.delete_records(random.randint(start, end))
        elif choice < 0.94:
            await log.follower.truncate(random.randint(start, end))
            model = [entry for entry in model if entry[0] < log.log_end_offset]
            if log.log_end_offset == start:
                model = []
        else:
            await log.close()
            log = await world.open()
        assert (log.log_start_offset, log.log_end_offset) == (start, model[-1][0] + 1 if model else start)
        model = [entry for entry in model if entry[0] >= start]
    found_all = await everything(log)
    assert [(number, found_all[number]) for number, _ in model] == model


async def test_a_follower_that_begins_again_continues_there_after_every_stop(world: World) -> None:
    log = await world.open()
    for number in range(5):
        await log.leader.append(numbered(number), acks=-1)
    for start in (1000, 3):
        term = Term(leader=1, epoch=start, version=0, replicas=(0, 1), isr=(0, 1))
        await log.follower.follow(term._replace(epoch=log.leader_epoch + 1))
        asked = await log.follower.ask()
        assert asked is not None
        await log.follower.take(asked, OutOfRange(start), start)
        assert (log.log_start_offset, log.log_end_offset) == (start, start)
        await log.close()
        log = await world.open()
        assert (log.log_start_offset, log.log_end_offset, log.producers()) == (start, start, [])
        assert (await log.leader.append(batch(b"fresh"), acks=-1)).base_offset == start
        await log.close()
        log = await world.open()
        assert await everything(log) == {start: b"fresh"}
