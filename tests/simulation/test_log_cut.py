"""Truncation costs only what is removed: earlier records are not read again, and the state of producers is right."""

from random import Random

import pytest

from tidemill.model.errors import OutOfOrderSequence
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.streams.core.producers import ProducerSnapshot
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.streams.segments import SegmentStore
from tidemill.testing.faults import SimDisk

NOW = 1_700_000_000_000
SEGMENT_BYTES = 20_000
BATCHES = 400
SETTINGS = parse({"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "1000"})


class Counting(SimDisk):
    """Counts what is read."""

    read_bytes = 0

    def pread(self, file: int, size: int, position: int) -> bytes:
        data = super().pread(file, size, position)
        self.read_bytes += len(data)
        return data


def batch(number: int) -> bytearray:
    record = NewRecord(b"k", Random(number).randbytes(900), (), NOW)
    return build_batch([record], producer_id=number % 5, producer_epoch=0, base_sequence=number // 5)


async def filled(disk: SimDisk, *, saved_at: int = -1) -> Partition:
    """A log of about twenty segments."""
    log = await opener(SegmentStore(disk), lambda: NOW)("t", 0, SETTINGS, 0)
    for number in range(BATCHES):
        if number == saved_at:
            await log._maintenance.save()
        await log.leader.append(batch(number), acks=-1)
    return log


def known(log: Partition) -> list[ProducerSnapshot]:
    return sorted(log.producers())


@pytest.mark.parametrize("cut_to", [BATCHES - 3, BATCHES - 25, BATCHES - 40])
async def test_a_cut_reads_only_what_it_cuts(cut_to: int) -> None:
    disk = Counting(Random(1))
    log = await filled(disk, saved_at=BATCHES - 50)
    whole = log.size_bytes
    assert whole > 15 * SEGMENT_BYTES
    disk.read_bytes = 0
    await log.follower.truncate(cut_to)
    # The segment that is cut is read twice; producers learn from what came after the last checkpoint.
    assert disk.read_bytes < 3 * SEGMENT_BYTES + 50 * 1000 < whole / 3
    assert log.log_end_offset == cut_to
    fresh = Counting(Random(2))
    again = await filled(fresh)
    await again.follower.truncate(cut_to)
    assert known(log) == known(again), "every producer that wrote before the cut is known"
    disk.read_bytes = 0
    await log.follower.truncate(cut_to - 2)
    assert disk.read_bytes < whole / 3, "the second cut finds what the first one knew"
    with pytest.raises(OutOfOrderSequence):
        await log.leader.append(batch(cut_to + 3), acks=-1)
    assert (await log.leader.append(batch(cut_to - 2), acks=-1)).base_offset == cut_to - 2
    again = await opener(SegmentStore(disk.killed()), lambda: NOW)("t", 0, SETTINGS, 0)
    assert known(again) == known(log), "a start after the cut knows the same"


async def test_a_cut_behind_the_last_checkpoint_forgets_it() -> None:
    disk = Counting(Random(3))
    log = await filled(disk, saved_at=BATCHES - 10)
    await log.follower.truncate(100)
    assert log.log_end_offset == 100
    assert (await log.leader.append(batch(100), acks=-1)).base_offset == 100
    assert [each.last_sequence for each in log.producers()] == [20, 19, 19, 19, 19]
