"""Topic settings that show in segment files: delay of deletions, preallocation, roll jitter."""

from collections.abc import Mapping
from random import Random

from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.streams.segments import SegmentLog, SegmentStore
from tidemill.testing.faults import Fault, SimDisk

NOW = 1_700_000_000_000
SEGMENT_BYTES = 3000


def batch(number: int) -> bytearray:
    return build_batch([NewRecord(b"k", bytes(200), (), NOW + number)])


async def open_log(disk: SimDisk, overrides: Mapping[str, str] | None = None, jitter: float = 0.0) -> Partition:
    settings = parse({"segment.bytes": str(SEGMENT_BYTES), **(overrides or {})})
    return await opener(SegmentStore(disk), lambda: NOW, lambda: jitter)("t", 0, settings, 0)


async def fill(log: Partition, count: int) -> None:
    for number in range(count):
        await log.leader.append(batch(number), acks=-1)


def ending(disk: SimDisk, end: str) -> list[str]:
    return [name for name in disk.list("t/0") if name.endswith(end)]


async def test_segments_before_the_start_keep_their_bytes_for_the_delay() -> None:
    disk = SimDisk(Random(1))
    log = await open_log(disk, {"file.delete.delay.ms": "5000"})
    await fill(log, 30)
    first = disk.content(f"t/0/{0:020d}.log")
    await log.leader.delete_records(25)
    assert disk.content(f"t/0/{0:020d}.log.deleted") == first
    assert not any(name.startswith(f"{0:020d}") and name.endswith(".log") for name in disk.list("t/0"))
    await log.maintain(NOW)
    await log.maintain(NOW + 4999)
    assert ending(disk, ".deleted")
    await log.maintain(NOW + 5000)
    assert not ending(disk, ".deleted")
    await log.leader.delete_records(-1)
    assert ending(disk, ".deleted")
    await log.close()
    again = await open_log(disk)
    assert not ending(disk, ".deleted"), "a start removes what is left"
    assert (again.log_start_offset, again.log_end_offset) == (30, 30)


async def test_files_without_a_delay_are_deleted_at_once_and_a_failed_deletion_does_no_harm() -> None:
    disk = SimDisk(Random(2))
    log = await open_log(disk, {"file.delete.delay.ms": "0"})
    await fill(log, 30)
    await log.leader.delete_records(15)
    assert not ending(disk, ".deleted")
    log.apply_settings(parse({"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "10"}))
    await log.leader.delete_records(29)
    await log.maintain(NOW)
    disk.fail_at, disk.fault = disk.operations, Fault.EIO
    await log.maintain(NOW + 10)
    assert len(ending(disk, ".deleted")) == 1
    assert log.failed is None
    await log.leader.append(batch(30), acks=-1)


async def test_a_preallocated_segment_is_long_while_it_is_written_and_exact_after() -> None:
    disk = SimDisk(Random(3))
    log = await open_log(disk, {"preallocate": "true"})
    await fill(log, 30)
    sizes = [disk.size(f"t/0/{name}") for name in ending(disk, ".log")]
    assert sizes[-1] == SEGMENT_BYTES
    assert all(size % len(batch(0)) == 0 for size in sizes[:-1])
    assert log.size_bytes == 30 * len(batch(0))
    after = await open_log(disk.killed(), {"preallocate": "true"})
    assert isinstance(after._log, SegmentLog)
    assert (after.log_end_offset, after._log.report.cut_bytes, after._log.report.quarantined) == (30, 0, ())
    await log.close()
    assert sum(disk.size(f"t/0/{name}") for name in ending(disk, ".log")) == 30 * len(batch(0))


async def test_a_closed_segment_whose_cut_was_lost_is_cut_by_the_start() -> None:
    disk = SimDisk(Random(4))
    log = await open_log(disk, {"preallocate": "true"})
    await fill(log, 30)
    disk = disk.killed()
    first = disk.open(f"t/0/{0:020d}.log")
    disk.allocate(first, SEGMENT_BYTES)
    log = await open_log(disk, {"preallocate": "true"})
    assert (log.log_end_offset, log.size_bytes) == (30, 30 * len(batch(0)))
    assert isinstance(log._log, SegmentLog)
    assert log._log.report.quarantined == ()


async def test_a_disk_without_room_for_all_of_a_segment_is_written_as_far_as_it_goes() -> None:
    disk = SimDisk(Random(5), quota_bytes=1500)
    log = await open_log(disk, {"preallocate": "true"})
    await log.leader.append(batch(0), acks=-1)
    assert disk.size(f"t/0/{0:020d}.log") == len(batch(0))


async def test_segments_begun_together_end_apart() -> None:
    async def run(share: float) -> int:
        log = await open_log(SimDisk(Random(6)), {"segment.ms": "1000", "segment.jitter.ms": "400"}, share)
        await fill(log, 1)
        for now_ms in range(NOW, NOW + 2000, 100):
            await log.maintain(now_ms)
            assert isinstance(log._log, SegmentLog)
            if len(log._log.segments()) > 1:
                return now_ms - NOW
        return -1

    assert [await run(share) for share in (0.0, 0.5, 1.0)] == [1000, 800, 600]


async def test_a_full_index_closes_its_segment() -> None:
    log = await open_log(SimDisk(Random(7)), {"index.interval.bytes": "0", "segment.index.bytes": "24"})
    await fill(log, 9)
    assert [facts.base_offset for facts in log._log.segments()] == [0, 3, 6]
