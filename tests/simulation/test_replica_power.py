"""All replicas lose their power at once: acknowledged records are there, and dropped records do not return."""

import asyncio
from random import Random

import pytest

from tidemill.model.topic_settings import TopicSettings, parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.streams.core.follower import Diverged
from tidemill.streams.core.insync import Term
from tidemill.streams.follower_log import Copied
from tidemill.streams.leader_replication import Agreement
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition, ReadResult
from tidemill.streams.segments import SegmentStore
from tidemill.testing.faults import SimDisk

SEEDS = range(12)
TERM = Term(leader=0, epoch=1, version=0, replicas=(0, 1), isr=(0, 1))
SETTINGS = parse({"min.insync.replicas": "2", "segment.bytes": "3000"})


async def _propose(term: Term, isr: tuple[int, ...]) -> Term:
    return term._replace(version=term.version + 1, isr=isr)


async def opened(disk: SimDisk, settings: TopicSettings = SETTINGS) -> Partition:
    return await opener(SegmentStore(disk), lambda: 1)("t", 0, settings, 0)


def batch(value: bytes) -> bytearray:
    return build_batch([NewRecord(None, value, (), 1)])


async def copy(leader: Partition, follower: Partition) -> ReadResult | Diverged:
    """One round of a fetcher."""
    asked = await follower.follower.ask()
    assert asked is not None
    answer = await leader.leader.read_as_replica(1, asked, 1 << 20)
    assert not isinstance(answer, tuple) or isinstance(answer, ReadResult | Diverged)
    taken = Copied(b"".join(answer.records), answer.high_watermark) if isinstance(answer, ReadResult) else answer
    await follower.follower.take(asked, taken, leader.log_start_offset)
    return answer


async def copy_for_ever(leader: Partition, follower: Partition) -> None:
    while True:
        await copy(leader, follower)
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", SEEDS)
async def test_b1_an_acknowledgement_survives_the_power_cut_of_all_replicas(seed: int) -> None:
    random = Random(seed)
    disks = [SimDisk(Random(seed)), SimDisk(Random(seed + 99))]
    leader, follower = [await opened(disk) for disk in disks]
    await follower.follower.follow(TERM)
    await leader.leader.lead(TERM, Agreement(_propose))
    copying = asyncio.create_task(copy_for_ever(leader, follower))
    acknowledged = 0
    for _ in range(random.randint(1, 12)):
        await leader.leader.append(batch(bytes(random.randint(1, 900))), acks=random.choice([-1, 1]))
        acknowledged = max(acknowledged, leader.high_watermark)
    copying.cancel()
    await asyncio.gather(copying, return_exceptions=True)
    for disk in disks:
        assert (await opened(disk.power_cut())).log_end_offset >= acknowledged


@pytest.mark.parametrize("seed", SEEDS)
async def test_b8_the_last_replica_standing_has_what_it_acknowledged(seed: int) -> None:
    disk = SimDisk(Random(seed))
    leader = await opened(disk, parse({"min.insync.replicas": "1"}))
    await leader.leader.lead(TERM._replace(isr=(0,)), Agreement(_propose))
    for number in range(seed + 1):
        await leader.leader.append(batch(bytes(100 * number)), acks=-1)
    assert (await opened(disk.power_cut())).log_end_offset == seed + 1


@pytest.mark.parametrize("seed", SEEDS)
async def test_b9_records_that_a_follower_truncated_do_not_return(seed: int) -> None:
    disk = SimDisk(Random(seed))
    leader, follower = await opened(SimDisk(Random(0))), await opened(disk)
    await leader.leader.lead(TERM, Agreement(_propose))
    await leader.leader.append(batch(b"both"), acks=1)
    await follower.follower.follow(TERM)
    await copy(leader, follower)
    await follower.leader.lead(TERM._replace(leader=1, epoch=2), Agreement(_propose))
    for number in range(4):
        await follower.leader.append(batch(bytes(800 * number)), acks=1)
    later = TERM._replace(epoch=3)
    await leader.leader.lead(later, Agreement(_propose))
    await follower.follower.follow(later)
    assert isinstance(await copy(leader, follower), Diverged)
    assert follower.log_end_offset == 1
    assert (await opened(disk.power_cut())).log_end_offset == 1
