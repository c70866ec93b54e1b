"""Truncation on a full disk: the log is not fenced, keeps what it has, and is truncated once there is space."""

from contextlib import suppress
from random import Random

import pytest

from tidemill.model.errors import KafkaStorageError
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.read import read_records
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.streams.segments import SegmentStore
from tidemill.streams.segments.checkpoint import SPARE
from tidemill.testing.faults import Fault, SimDisk

NOW = 1_700_000_000_000
SETTINGS = parse({"segment.bytes": "4000", "index.interval.bytes": "1000"})
BATCHES = 30
CUT_TO = 23
RESERVE_BYTES = 20_000


def body(number: int) -> bytes:
    return Random(number).randbytes(300)


def batch(number: int) -> bytearray:
    return build_batch([NewRecord(b"%d" % number, body(number), (), NOW)])


async def opened(disk: SimDisk, reserve_bytes: int = 0) -> Partition:
    return await opener(SegmentStore(disk, reserve_bytes), lambda: NOW)("t", 0, SETTINGS, 0)


async def filled(disk: SimDisk, reserve_bytes: int = 0) -> Partition:
    log = await opened(disk, reserve_bytes)
    for number in range(BATCHES):
        await log.leader.append(batch(number), acks=-1)
    return log


async def check(log: Partition, count: int) -> None:
    """The log has the first `count` records and nothing else."""
    found: list[bytes] = []
    while len(found) < log.log_end_offset:
        for piece in (await log.reader.read(len(found), 1 << 20)).records:
            found += [bytes(record.value or b"") for record in read_records(piece)]
    assert found == [body(number) for number in range(count)]


@pytest.mark.parametrize("fault", [Fault.ENOSPC, Fault.SHORT])
async def test_b11_no_operation_of_a_truncation_fences_the_log_when_the_disk_is_full(fault: Fault) -> None:
    rejected, step = 0, 0
    while True:
        disk = SimDisk(Random(step))
        log = await filled(disk)
        disk.fail_at, disk.fault = disk.operations + step, fault
        try:
            await log.follower.truncate(CUT_TO)
        except KafkaStorageError:
            rejected += 1
        if disk.operations <= disk.fail_at:
            break
        if "flush failed" in str(log.failed):  # an error of fdatasync ends every log of a disk
            again = await opened(disk.power_cut())
            assert again.log_end_offset in {CUT_TO, BATCHES}
            await check(again, again.log_end_offset)
            step += 1
            continue
        assert log.failed is None, f"operation {step}"
        await check(log, log.log_end_offset)
        assert log.log_end_offset in {CUT_TO, BATCHES}
        await log.follower.truncate(CUT_TO)
        await check(log, CUT_TO)
        for number in range(CUT_TO, BATCHES):
            await log.leader.append(batch(number), acks=-1)
        await check(await opened(disk.power_cut()), BATCHES)
        step += 1
    assert rejected > 1
    assert step > 10


async def test_a_disk_that_stays_full_keeps_the_log_until_there_is_space() -> None:
    disk = SimDisk(Random(1))
    log = await filled(disk)
    disk.quota_bytes = 0
    for _ in range(3):
        with pytest.raises(KafkaStorageError):
            await log.follower.truncate(CUT_TO)
        assert log.failed is None
        await check(log, BATCHES)
    await check(await opened(disk.killed()), BATCHES)
    disk.quota_bytes = -1
    await log.follower.truncate(CUT_TO)
    await check(log, CUT_TO)
    await check(await opened(disk.power_cut()), CUT_TO)


async def test_the_reserve_pays_for_a_truncation_on_a_full_disk() -> None:
    disk = SimDisk(Random(2))
    log = await filled(disk, RESERVE_BYTES)
    disk.quota_bytes = RESERVE_BYTES + sum(disk.size(f"t/0/{name}") for name in disk.list("t/0"))
    await log.follower.truncate(CUT_TO)
    await check(log, CUT_TO)
    await check(await opened(disk.power_cut()), CUT_TO)


@pytest.mark.parametrize("seed", range(5))
async def test_a_crash_in_a_truncation_on_a_full_disk_leaves_all_or_the_part_before_the_cut(seed: int) -> None:
    step = 0
    while True:
        disk = SimDisk(Random(seed * 1000 + step))
        log = await filled(disk)
        disk.fail_at, disk.fault = disk.operations + step, Fault.KILL
        with suppress(KafkaStorageError, OSError):
            await log.follower.truncate(CUT_TO)
        after = disk.power_cut()
        again = await opened(after)
        assert again.log_end_offset in {CUT_TO, BATCHES}
        await check(again, again.log_end_offset)
        assert SPARE not in after.list("t/0"), "its space is free again"
        if not disk.dead:
            return
        step += 1
