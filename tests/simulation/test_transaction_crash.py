"""Transactions over a broker that is stopped at an operation of its disk: each one is whole or absent.

A history of transactions, each over three partitions and the offsets of a group, runs on a broker whose disk stops at
one operation. The next broker finishes what was prepared and, when its time is over, aborts what was open. Then every
transaction must be in all partitions or in none, a commit that was answered must be there and an abort must not, the
group's offset must be that of the last transaction that is there, and nothing may be left open.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest

from tidemill.app.broker_wiring import make_broker
from tidemill.broker.broker import BrokerEnvironment
from tidemill.broker.topic_directories import MemoryTopics
from tidemill.cluster.local import LocalCoordination
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.model import broker_settings
from tidemill.model.errors import ConcurrentTransactions, TidemillError
from tidemill.model.topics import GROUP_OFFSETS, TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.streams.segments import SegmentStore
from tidemill.testing.clock import VirtualClock
from tidemill.testing.faults import Fault, SimDisk
from tidemill.transactions.core.rules import InitProducer
from tidemill.transactions.core.state import ProducerIdAndEpoch

DATA = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
TRANSACTIONS = 5
TIMEOUT_MS = 60_000
STRIDE = 4
TURNS_MAX = 20_000
SETTINGS = broker_settings.parse({"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"})


class Reported(NamedTuple):
    """What producers asked for, and the responses."""

    asked: set[int]
    committed: set[int]
    aborted: set[int]


class Node:
    """A broker on a disk that can stop."""

    def __init__(self, disk: SimDisk, coordination: LocalCoordination, clock: VirtualClock) -> None:
        topics = MemoryTopics(lambda: SegmentStore(disk), clock)
        ids = Random(1)
        self.clock = clock
        self.broker = make_broker(
            BrokerEnvironment(coordination, topics, clock, lambda: UUID(int=ids.getrandbits(128))), SETTINGS
        )

    async def write(self, name: str, number: int, reported: Reported, *, bump: bool) -> None:
        """One transaction of a new instance: a record for each partition, and the number as the group's offset."""
        broker = self.broker
        who = await self.identity(name)
        where = TopicPartition(GROUP_OFFSETS, broker.groups.partition_of("g"))
        await broker.transactions.add_partitions(name, who, {*DATA, where})
        for topic, index in DATA:
            batch = build_batch(
                [NewRecord(None, b"%d" % number, timestamp=self.clock())],
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                base_sequence=0,
                transactional=True,
            )
            await broker.transactions.verify(name, *who, TopicPartition(topic, index))
            await broker.view.partition(topic, index).leader.append(batch, acks=-1)
        await broker.groups.commit_transactional(
            "g",
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            offsets=[OffsetCommit("a", 0, number)],
            check=lambda: broker.transactions.check(name, who, where),
        )
        commit = number % 3 != 1
        if commit:
            reported.asked.add(number)
        await broker.transactions.end_transaction(name, who, commit=commit, bump=bump)
        (reported.committed if commit else reported.aborted).add(number)

    async def identity(self, name: str) -> ProducerIdAndEpoch:
        for _ in range(TURNS_MAX):
            try:
                return await self.broker.transactions.init_producer(InitProducer(name, TIMEOUT_MS))
            except ConcurrentTransactions:
                await asyncio.sleep(0)
        raise AssertionError("the id never becomes free")

    async def settle(self) -> None:
        """Let markers be written, and time run out for what is open."""
        self.clock.advance(TIMEOUT_MS + 1)
        for _ in range(TURNS_MAX):
            await self.broker.transactions.tick()
            if all(known.state.title[:4] in {"Empt", "Comp"} for known in self.broker.transactions.select()):
                return
            await asyncio.sleep(0)
        raise AssertionError(self.broker.transactions.select())

    async def seen(self, place: TopicPartition) -> list[int]:
        """What a read_committed reader gets."""
        partition = self.broker.view.partition(*place)
        assert partition.last_stable_offset == partition.high_watermark, f"{place} has an open transaction"
        found, offset = [], 0
        while offset < partition.log_end_offset:
            piece = await partition.reader.read(offset, 1 << 20, committed=True)
            dropped = {(each.producer_id, each.first_offset) for each in piece.aborted}
            for buffer in piece.records:
                for at, header in iter_headers(buffer):
                    if not header.control and (header.producer_id, header.base_offset) not in dropped:
                        batch = memoryview(buffer)[at : at + header.size]
                        found += [int(record.value or b"") for record in read_records(batch)]
                    offset = header.next_offset
        return found


async def live(folder: Path, fail_at: int, *, power: bool) -> bool:
    """One history; whether the disk stopped on the way."""
    clock = VirtualClock()
    coordination = await LocalCoordination.open(folder)
    disk, reported = SimDisk(Random(fail_at)), Reported(set(), set(), set())
    node = Node(disk, coordination, clock)
    await node.broker.start()
    await node.broker.topics.create("a", partitions=2)
    await node.broker.topics.create("b", partitions=1)
    disk.fail_at, disk.fault = disk.operations + fail_at, Fault.KILL
    with suppress(TidemillError, OSError):
        for number in range(TRANSACTIONS):
            await node.write(f"tx-{number % 2}", number, reported, bump=number % 2 == 0)
    stopped = disk.dead
    with suppress(TidemillError, OSError):
        await node.broker.stop()
    await coordination.close()
    await check(folder, disk.power_cut() if power else disk.killed(), clock, reported)
    return stopped


async def check(folder: Path, disk: SimDisk, clock: VirtualClock, reported: Reported) -> None:
    coordination = await LocalCoordination.open(folder)
    node = Node(disk, coordination, clock)
    await node.broker.start()
    await node.settle()
    views = [await node.seen(place) for place in DATA]
    assert views[0] == views[1] == views[2], "a transaction is torn"
    assert views[0] == sorted(set(views[0])), "a transaction is there twice"
    assert reported.committed <= set(views[0]) <= reported.asked
    assert not reported.aborted & set(views[0])
    [offset] = [found.offset for found in node.broker.groups.fetch("g", [TopicPartition("a", 0)])]
    assert offset == (views[0][-1] if views[0] else -1)
    await node.write("tx-0", TRANSACTIONS, reported, bump=True)
    await node.broker.stop()
    await coordination.close()


@pytest.mark.parametrize("power", [True, False], ids=["power-cut", "kill"])
async def test_transactions_are_whole_whatever_operation_the_disk_stops_at(tmp_path: Path, power: bool) -> None:
    fail_at, stopped = int(power), True
    while stopped:
        folder = tmp_path / str(fail_at)
        folder.mkdir()
        try:
            stopped = await live(folder, fail_at, power=power)
        except BaseException:
            print(f"operation {fail_at}")
            raise
        fail_at += STRIDE
    assert fail_at > TRANSACTIONS * 10, "too few operations to prove anything"
