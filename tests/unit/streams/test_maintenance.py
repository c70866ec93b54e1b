"""Work by time waits while the clock is in doubt: producers, compaction, removed files."""

from random import Random

from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.streams.core.producers import EXPIRY_MS
from tidemill.streams.maintenance import MaintenanceTasks
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.streams.segments import SegmentStore
from tidemill.testing.faults import SimDisk

NOW = 1_700_000_000_000
LATER = NOW + 10 * EXPIRY_MS
IN_DOUBT = MaintenanceTasks(by_time=False)
RECORDS = 30


async def filled(disk: SimDisk, **overrides: str) -> Partition:
    settings = parse({"segment.bytes": "3000", "retention.ms": "-1", **overrides})
    log = await opener(SegmentStore(disk), lambda: NOW, lambda: 0.0)("t", 0, settings, 0)
    for number in range(RECORDS):
        records = [NewRecord(b"k", bytes(200), (), NOW)]
        await log.leader.append(build_batch(records, producer_id=7, base_sequence=number), acks=-1)
    return log


async def test_producers_are_remembered() -> None:
    log = await filled(SimDisk(Random(1)))
    await log.maintain(LATER, EXPIRY_MS, IN_DOUBT)
    assert [producer.producer_id for producer in log.producers()] == [7]
    await log.maintain(LATER, EXPIRY_MS)
    assert log.producers() == []


async def test_no_compaction_begins() -> None:
    overrides = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    log = await filled(SimDisk(Random(2)), **overrides)
    before = log.size_bytes
    await log.maintain(LATER, EXPIRY_MS, IN_DOUBT)
    await log.cleaned()
    assert log.size_bytes == before
    await log.maintain(LATER, EXPIRY_MS)
    await log.cleaned()
    assert log.size_bytes < before / 2


async def test_removed_files_stay() -> None:
    disk = SimDisk(Random(3))
    log = await filled(disk, **{"file.delete.delay.ms": "5000"})

    def removed() -> list[str]:
        return [name for name in disk.list("t/0") if name.endswith(".deleted")]

    await log.leader.delete_records(RECORDS - 5)
    await log.maintain(NOW)
    await log.maintain(LATER, EXPIRY_MS, IN_DOUBT)
    assert removed()
    await log.maintain(NOW + 5000)
    assert not removed()
