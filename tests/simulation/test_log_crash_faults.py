"""Damage, full disks, failed flushes and slow disks: the errors of the log, and the data that it never loses."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TypeVar

import pytest

from tidemill.model.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange
from tidemill.model.topic_settings import parse
from tidemill.model.topics import GROUP_OFFSETS
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.streams import writer
from tidemill.streams.interface import INLINE_BYTES_MAX
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.streams.segments import SegmentLog, SegmentStore
from tidemill.streams.segments.checkpoint import NAME as CHECKPOINT
from tidemill.streams.segments.reserve import NAME as RESERVE
from tidemill.streams.segments.reserve import RETAKE_INTERVAL_MS
from tidemill.testing.faults import Fault, SimDisk

T = TypeVar("T")

NOW = 1_700_000_000_000
SMALL = {"segment.bytes": "3000", "index.interval.bytes": "300"}
BATCHES = 40
LIMIT_S = 30


def batch(number: int, size: int = 200) -> bytearray:
    value = Random(number).randbytes(size)
    return build_batch([NewRecord(b"k", value, (), NOW + number)])


async def open_log(disk: SimDisk, topic: str = "t", **overrides: str) -> Partition:
    return await opener(SegmentStore(disk), lambda: NOW)(topic, 0, parse(SMALL | overrides), 0)


async def filled(disk: SimDisk) -> dict[int, bytes]:
    """A log with many segments, flushed and not closed; its batches by offset."""
    log = await open_log(disk)
    for number in range(BATCHES):
        await log.leader.append(batch(number), acks=-1)
    return {offset: bytes(batch(offset)[16:]) for offset in range(BATCHES)}


async def read_all(log: Partition) -> tuple[dict[int, bytes], int]:
    """Every batch that can be read, and how many offsets were refused as damaged."""
    found: dict[int, bytes] = {}
    refused, offset = 0, log.log_start_offset
    while offset < log.log_end_offset:
        try:
            piece = await log.reader.read(offset, 700)
        except CorruptMessage:
            refused += 1
            offset += 1
            continue
        if not piece.records:
            break
        for buffer in piece.records:
            for at, header in iter_headers(buffer):
                found[header.base_offset] = bytes(buffer[at + 16 : at + header.size])
                offset = header.next_offset
    return found, refused


def report_of(log: Partition) -> tuple[str, ...]:
    assert isinstance(log._log, SegmentLog)
    return log._log.report.quarantined


def positions_of(disk: SimDisk) -> list[tuple[str, int, int]]:
    """File, position and size of every stored batch."""
    paths = [f"t/0/{name}" for name in disk.list("t/0") if name.endswith(".log")]
    return [(path, at, header.size) for path in paths for at, header in iter_headers(disk.content(path))]


@pytest.mark.parametrize("clean", [True, False], ids=["clean-stop", "crash"])
async def test_a_flipped_bit_is_never_served(clean: bool) -> None:
    async def run(seed: int) -> None:
        random = Random(seed)
        disk = SimDisk(random)
        original = await filled(disk)
        if clean:
            log = await open_log(disk)
            await log.close()
        disk = disk.killed()
        number = random.randrange(BATCHES)
        path, at, size = positions_of(disk)[number]
        # Not the leader epoch, which nothing covers; nor, before it was flushed, the offset of the very last batch.
        first = 8 if number == BATCHES - 1 and not clean else 0
        disk.flip_bit(path, at + random.choice([*(list(range(first, 12)) * 9), *range(16, size)]), random.randrange(8))
        log = await open_log(disk)
        note = f"seed {seed} batch {number} of {path}"
        assert log.log_end_offset in {BATCHES, BATCHES - 1}, note
        found, refused = await read_all(log)
        assert all(original[offset] == data for offset, data in found.items()), note
        assert number not in found, note
        last_of_log = not clean and number == BATCHES - 1
        assert refused > 0 or report_of(log) or last_of_log, f"{note}: not noticed"
        if not clean and not last_of_log:
            assert set(found) == set(original) - {number}, f"{note}: good batches are gone"
            assert log.log_end_offset == BATCHES, note
            assert any(name.endswith(".corrupt") for name in disk.list("t/0")), note

    for seed in range(80):
        await run(seed)


async def test_flipped_bits_outside_of_the_log_change_nothing() -> None:
    async def run(seed: int) -> None:
        random = Random(seed)
        disk = SimDisk(random)
        original = await filled(disk)
        log = await open_log(disk)
        await log.leader.delete_records(3)
        await log.close()
        disk = disk.killed()
        names = [f"t/0/{name}" for name in disk.list("t/0") if not name.endswith(".log")]
        path = random.choice([name for name in names if disk.content(name)])
        disk.flip_bit(path, random.randrange(len(disk.content(path))), random.randrange(8))
        log = await open_log(disk)
        found, refused = await read_all(log)
        assert refused == 0
        assert found == {offset: data for offset, data in original.items() if offset in found}
        assert set(found) >= set(range(3, BATCHES)), f"seed {seed} {path}"
        assert (await log.reader.offset_at(NOW + 20)).offset == 20
        assert log.log_end_offset == BATCHES

    for seed in range(60):
        await run(seed)


async def test_a_damaged_last_batch_does_not_give_its_offset_away() -> None:
    disk = SimDisk(Random(1))
    await filled(disk)
    log = await open_log(disk)
    await log.close()
    disk = disk.killed()
    path, at, _ = positions_of(disk)[-1]
    disk.flip_bit(path, at + 70, 0)
    for name in ("index", "timeindex"):
        disk.flip_bit(path.replace(".log", f".{name}"), 9, 1)  # so that the start looks at the whole segment
    log = await open_log(disk)
    assert report_of(log)
    assert (await log.leader.append(batch(99), acks=-1)).base_offset == BATCHES
    found, _ = await read_all(log)
    assert BATCHES - 1 not in found
    assert BATCHES in found


async def test_damage_in_a_closed_segment_does_not_keep_a_log_without_saved_state_from_opening() -> None:
    async def run(seed: int) -> None:
        random = Random(seed)
        disk = SimDisk(random)
        original = await filled(disk)
        log = await open_log(disk)
        await log.follower.truncate(BATCHES - 2)
        disk = disk.killed()
        disk.remove(f"t/0/{CHECKPOINT}")  # a start has to read all
        number = random.randrange(BATCHES - 12)
        path, at, size = positions_of(disk)[number]
        disk.flip_bit(path, at + random.randrange(16, size), random.randrange(8))
        log = await open_log(disk)
        note = f"seed {seed} batch {number} of {path}"
        assert report_of(log), note
        assert f"{path}.corrupt" in [f"t/0/{name}" for name in disk.list("t/0")], note
        found, refused = await read_all(log)
        assert refused == 0, note
        assert found == {offset: data for offset, data in original.items() if offset < BATCHES - 2 and offset != number}
        assert (await log.leader.append(batch(99), acks=-1)).base_offset == BATCHES - 2, note
        await log.close()

    for seed in range(20):
        await run(seed)


async def test_b11_a_full_disk_rejects_appends_until_there_is_room() -> None:
    disk = SimDisk(Random(2), quota_bytes=2000)
    log = await open_log(disk)
    results = [
        await asyncio.gather(log.leader.append(batch(n), acks=-1), return_exceptions=True) for n in range(BATCHES)
    ]
    refused = [isinstance(result[0], KafkaStorageError) for result in results]
    stored = refused.index(True)
    assert all(refused[stored:])
    assert log.failed is None
    assert log.log_end_offset == stored > 0
    found, _ = await read_all(log)
    assert len(found) == stored
    with pytest.raises(KafkaStorageError):
        await log.leader.append(batch(stored), acks=1)
    disk.quota_bytes = -1
    assert (await log.leader.append(batch(stored), acks=-1)).base_offset == stored
    again = await open_log(disk.power_cut())
    assert (await read_all(again))[0] == {offset: bytes(batch(offset)[16:]) for offset in range(stored + 1)}


async def test_a_full_disk_still_takes_what_the_broker_itself_must_write() -> None:
    disk = SimDisk(Random(7), quota_bytes=30_000)
    open_one = opener(SegmentStore(disk, reserve_bytes=10_000), lambda: NOW)
    records = await open_one("t", 0, parse(SMALL), 0)
    offsets = await open_one(GROUP_OFFSETS, 0, parse(SMALL), 0)
    assert disk.size(RESERVE) == 10_000
    results = await asyncio.gather(
        *(records.leader.append(batch(number), acks=-1) for number in range(1000)), return_exceptions=True
    )
    stored = records.log_end_offset
    assert [isinstance(result, KafkaStorageError) for result in results] == [False] * stored + [True] * (1000 - stored)
    assert stored > BATCHES
    for number in range(20):
        assert (await offsets.leader.append_own(batch(number))).base_offset == number
        with pytest.raises(KafkaStorageError):
            await records.leader.append(batch(stored, size=1), acks=1)
    await records._maintenance.save()
    assert len((await read_all(records))[0]) == stored
    await records.maintain(NOW + RETAKE_INTERVAL_MS)
    with pytest.raises(KafkaStorageError):
        await records.leader.append(batch(stored), acks=1)
    disk.quota_bytes = 100_000
    await records.maintain(NOW + 2 * RETAKE_INTERVAL_MS)
    assert (await records.leader.append(batch(stored), acks=-1)).base_offset == stored
    assert disk.size(RESERVE) == 10_000
    assert records.failed is offsets.failed is None


def is_full(store: SegmentStore) -> bool:
    return store.full


async def test_a_small_disk_has_a_small_reserve_and_a_full_one_takes_nothing_until_there_is_room() -> None:
    disk = SimDisk(Random(9), quota_bytes=6_000)
    store = SegmentStore(disk, reserve_bytes=8_000)
    log = await opener(store, lambda: NOW)("t", 0, parse(SMALL), 0)
    assert disk.size(RESERVE) == 2_000
    assert (await log.leader.append(batch(0), acks=-1)).base_offset == 0
    assert not is_full(store)
    await log.close()
    disk.remove(RESERVE)
    disk.quota_bytes = 1_000
    store = SegmentStore(disk, reserve_bytes=8_000)
    log = await opener(store, lambda: NOW)("t", 0, parse(SMALL), 0)
    assert is_full(store)
    with pytest.raises(KafkaStorageError, match="the disk is full"):
        await log.leader.append(batch(1), acks=-1)
    assert len((await read_all(log))[0]) == 1, "what is there can be read"
    disk.quota_bytes = 6_000
    await log.maintain(NOW + RETAKE_INTERVAL_MS)
    assert not is_full(store)
    assert (await log.leader.append(batch(1), acks=-1)).base_offset == 1


async def test_transactions_end_on_a_full_disk() -> None:
    """Their readers would wait for room otherwise, and every producer that ends one."""
    disk = SimDisk(Random(10), quota_bytes=-1)
    store = SegmentStore(disk, reserve_bytes=2_000)
    log = await opener(store, lambda: NOW)("t", 0, parse({}), 0)
    written = [NewRecord(b"k", b"v", (), NOW)]
    await log.leader.append(
        build_batch(written, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), acks=-1
    )
    disk.quota_bytes = 2_000
    with pytest.raises(KafkaStorageError):
        await log.leader.append(batch(1), acks=-1)
    assert is_full(store)
    assert log.last_stable_offset == 0
    await log.leader.append_marker(7, 0, commit=True)
    assert log.last_stable_offset == 2


class ManyHands(SimDisk):
    """A disk whose threads have all done their work before the caller hears of it."""

    async def aside(self, call: Callable[[], T]) -> T:
        try:
            return call()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)


async def test_logs_that_find_the_disk_full_together_all_leave_a_checkpoint() -> None:
    """As at a stop: the reserve is given up for the first of them, and is there for all."""
    disk = ManyHands(Random(12), quota_bytes=-1)
    open_one = opener(SegmentStore(disk, reserve_bytes=20_000), lambda: NOW)
    logs = [await open_one("t", index, parse({}), 0) for index in range(4)]
    for log in logs:
        await log.leader.append(batch(0), acks=-1)
    disk.quota_bytes = 20_000 + sum(disk.size(f"t/{index}/{0:020d}.log") for index in range(4))
    await asyncio.gather(*(log.close() for log in logs))
    assert [CHECKPOINT in disk.list(f"t/{index}") for index in range(4)] == [True] * 4


async def test_on_a_full_disk_removed_files_are_deleted_at_once() -> None:
    disk = SimDisk(Random(11), quota_bytes=40_000)
    store = SegmentStore(disk, reserve_bytes=4_000)
    settings = parse({"segment.bytes": "4096", "file.delete.delay.ms": "3600000"})
    log = await opener(store, lambda: NOW)("t", 0, settings, 0)
    with suppress(KafkaStorageError):
        for number in range(1_000):
            await log.leader.append(batch(number, 1_000), acks=-1)
    stored = log.log_end_offset
    assert is_full(store)
    await log.leader.delete_records(-1)
    await log.maintain(NOW)
    await log.maintain(NOW + RETAKE_INTERVAL_MS)
    assert not is_full(store)
    assert (await log.leader.append(batch(stored), acks=-1)).base_offset == stored


@pytest.mark.parametrize("large", [False, True])
async def test_the_write_of_the_broker_that_finds_the_disk_full_is_made_all_the_same(large: bool) -> None:
    size = INLINE_BYTES_MAX if large else 500
    disk = SimDisk(Random(8), quota_bytes=-1)
    open_one = opener(SegmentStore(disk, reserve_bytes=2 * size), lambda: NOW)
    offsets = await open_one(GROUP_OFFSETS, 0, parse({}), 0)
    disk.quota_bytes = 2 * size + size // 2
    assert (await offsets.leader.append_own(batch(0, size))).base_offset == 0
    assert offsets.log_end_offset == 1
    [(_, found)] = (await read_all(offsets))[0].items()
    assert found == bytes(batch(0, size)[16:])
    again = await opener(SegmentStore(disk.power_cut()), lambda: NOW)(GROUP_OFFSETS, 0, parse({}), 0)
    assert again.log_end_offset == 1


async def test_b10_a_failed_flush_fences_the_log_for_good() -> None:
    disk = SimDisk(Random(3))
    log = await open_log(disk)
    await log.leader.append(batch(0), acks=-1)
    disk.fail_at, disk.fault = disk.operations + 1, Fault.EIO
    woken: list[bool] = []
    log.reader.watch(lambda: woken.append(True))
    with pytest.raises(KafkaStorageError):
        await log.leader.append(batch(1), acks=-1)
    assert log.failed is not None
    operations = disk.operations
    for call in (
        log.leader.append(batch(2), acks=1),
        log.leader.append_own(batch(2)),
        log.reader.read(0, 1),
        log.leader.delete_records(-1),
    ):
        with pytest.raises(KafkaStorageError):
            await call
    await log.maintain(NOW)
    await log.close()
    assert disk.operations == operations, "a failed log touched the disk again"
    again = await open_log(disk.power_cut())
    assert (await read_all(again))[0][0] == bytes(batch(0)[16:])


async def test_a_failed_flush_fences_every_log_of_the_disk() -> None:
    disk = SimDisk(Random(6))
    store = SegmentStore(disk)
    open_one = opener(store, lambda: NOW)
    one, other = await open_one("t", 0, parse(SMALL), 0), await open_one("t", 1, parse(SMALL), 0)
    await asyncio.gather(one.leader.append(batch(0), acks=-1), other.leader.append(batch(0), acks=-1))
    await one.leader.append(batch(1), acks=1)
    disk.fail_at, disk.fault = disk.operations, Fault.ENOSPC
    with pytest.raises(KafkaStorageError):
        await one._replica.flusher.reach(one.log_end_offset)
    assert disk.operations == disk.fail_at + 1, "something else failed than the flush"
    operations = disk.operations
    for log in (one, other):
        assert "restart the broker" in str(log.failed)
        for call in (
            log.leader.append(batch(2), acks=1),
            log.leader.append_own(batch(2)),
            log.leader.append(batch(2), acks=-1),
        ):
            with pytest.raises(KafkaStorageError):
                await call
        await log.close()
    with pytest.raises(KafkaStorageError):
        await open_one("t", 2, parse(SMALL), 0)
    assert disk.operations == operations, "a failed disk was touched again"
    after = opener(SegmentStore(disk.power_cut()), lambda: NOW)
    for index in (0, 1):
        again = await after("t", index, parse(SMALL), 0)
        assert (await read_all(again))[0][0] == bytes(batch(0)[16:])
        assert again.failed is None


async def test_a_flush_that_ends_after_another_one_failed_promises_nothing() -> None:
    disk = SlowFlushDisk()
    open_one = opener(SegmentStore(disk), lambda: NOW)
    one, other = await open_one("t", 0, parse(SMALL), 0), await open_one("t", 1, parse(SMALL), 0)
    disk.hold = True
    waiting = asyncio.create_task(one.leader.append(batch(0), acks=-1))
    await asyncio.wait_for(disk.held.wait(), LIMIT_S)
    await other.leader.append(batch(0), acks=1)
    disk.fail_at, disk.fault = disk.operations, Fault.EIO
    with pytest.raises(KafkaStorageError):
        await other._replica.flusher.reach(1)
    disk.go_on.set()
    with pytest.raises(KafkaStorageError):
        await asyncio.wait_for(waiting, LIMIT_S)


async def test_readers_see_what_is_written_while_its_producer_still_waits_for_the_disk() -> None:
    disk = SlowFlushDisk()
    log = await open_log(disk)
    disk.hold = True
    waiting = asyncio.create_task(log.leader.append(batch(0), acks=-1))
    await asyncio.wait_for(disk.held.wait(), LIMIT_S)
    assert not waiting.done()
    for acks_1 in (0, 1):
        at_end = await log.reader.read(1 + acks_1, 1000)
        assert (at_end.records, at_end.high_watermark) == ([], 1 + acks_1)
        assert (await log.reader.read(acks_1, 1000)).size > 0
        with pytest.raises(OffsetOutOfRange):
            await log.reader.read(2 + acks_1, 1000)
        if not acks_1:
            await asyncio.wait_for(log.leader.append(batch(1), acks=1), LIMIT_S)
    assert not waiting.done()
    disk.go_on.set()
    assert (await asyncio.wait_for(waiting, LIMIT_S)).base_offset == 0


class SlowFlushDisk(SimDisk):
    """A disk whose next flush is done at once and reported late."""

    def __init__(self) -> None:
        super().__init__(Random(5))
        self.hold = False
        self.held = asyncio.Event()
        self.go_on = asyncio.Event()

    async def aside(self, call: Callable[[], T]) -> T:
        result = await super().aside(call)
        if self.hold:
            self.hold = False
            self.held.set()
            await self.go_on.wait()
        return result


class SlowDisk(SimDisk):
    """A disk whose large writes wait for a sign."""

    def __init__(self) -> None:
        super().__init__(Random(4))
        self.go_on = asyncio.Event()
        self.flushes = 0

    async def aside(self, call: Callable[[], T]) -> T:
        if "write" in repr(call) and "_write" not in repr(call):
            await self.go_on.wait()
        return await super().aside(call)

    def fdatasync(self, file: int) -> None:
        self.flushes += 1
        super().fdatasync(file)


async def test_a_slow_partition_holds_its_own_producers_and_no_others() -> None:
    disk = SlowDisk()
    store = opener(SegmentStore(disk), lambda: NOW)
    slow = await store("slow", 0, parse({}), 0)
    quick = await store("quick", 0, parse({}), 0)
    large = asyncio.create_task(slow.leader.append(batch(0, INLINE_BYTES_MAX), acks=1))
    for _ in range(20):
        await asyncio.sleep(0)
    assert slow._replica.writer._task is not None
    assert not slow._replica.writer._queue
    waiting = [
        asyncio.create_task(slow.leader.append(batch(n, 10), acks=1)) for n in range(writer.QUEUE_BATCHES_MAX + 50)
    ]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(task.done() for task in (large, *waiting))
    assert len(slow._replica.writer._queue) == writer.QUEUE_BATCHES_MAX
    assert (await asyncio.wait_for(quick.leader.append(batch(1), acks=-1), LIMIT_S)).base_offset == 0
    closing = asyncio.create_task(slow.close())
    disk.go_on.set()
    done = await asyncio.wait_for(asyncio.gather(large, *waiting), LIMIT_S)
    assert [one.base_offset for one in done] == list(range(len(waiting) + 1))
    await asyncio.wait_for(closing, LIMIT_S)


async def test_one_flush_completes_all_waiting_appends() -> None:
    disk = SlowDisk()
    disk.go_on.set()
    log = await open_log(disk, **{"segment.bytes": "1000000"})
    before = disk.flushes
    done = await asyncio.gather(*(log.leader.append(batch(number), acks=-1) for number in range(200)))
    assert [one.base_offset for one in done] == list(range(200))
    assert disk.flushes - before < 20
    flushes = disk.flushes
    await log.leader.append(batch(1), acks=1)
    log.apply_settings(parse({"tidemill.flush": "os"}))
    await log.leader.append(batch(2), acks=-1)
    assert disk.flushes == flushes
    await log.leader.append_own(batch(3))
    assert disk.flushes == flushes + 1
    log.apply_settings(parse({"flush.messages": "2"}))
    await log.leader.append(batch(4), acks=1)
    assert disk.flushes == flushes + 1
    await log.leader.append(batch(5), acks=1)
    assert disk.flushes == flushes + 2
    log.apply_settings(parse({"flush.ms": "1000"}))
    await log.leader.append(batch(6), acks=1)
    await log.maintain(NOW)
    assert disk.flushes == flushes + 2
    await log.maintain(NOW + 1000)
    assert disk.flushes == flushes + 3
