"""Transactions whose coordinator is another broker: which broker is asked, and which is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID, uuid4

import pytest
from tests.support.shared_store import Line, Store
from tests.support.waiting import eventually_async

from tidemill.app.broker_wiring import make_broker
from tidemill.broker.broker import BrokerEnvironment, BrokerIdentity, BrokerNode
from tidemill.broker.topic_directories import MemoryTopics
from tidemill.client.kafka.peer_connection import PeerConnection
from tidemill.coordinator.transaction_router import TransactionRouter
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.model import broker_settings
from tidemill.model.errors import ConcurrentTransactions, KafkaStorageError, TransactionCoordinatorFenced
from tidemill.model.topics import GROUP_OFFSETS, TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.streams.segments import SegmentStore
from tidemill.testing.clock import VirtualClock
from tidemill.testing.faults import SimDisk
from tidemill.transactions.interface import TransactionMarker

OFFSETS = TopicPartition(GROUP_OFFSETS, 0)
T0 = TopicPartition("t", 0)
SETTINGS = broker_settings.parse({"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"})


@asynccontextmanager
async def member(disk: SimDisk, store: Store) -> AsyncIterator[BrokerNode]:
    """A broker that is alone in a cluster, with a topic."""
    clock = VirtualClock()
    world = BrokerEnvironment(Line(store), MemoryTopics(lambda: SegmentStore(disk), clock), clock, uuid4, UUID(int=1))
    broker = make_broker(world, SETTINGS, BrokerIdentity(1, session_ttl_ms=60_000))
    try:
        await broker.start()
        broker.view.advertise("127.0.0.1", 9999)
        await broker.announce()
        if broker.view.topic("t") is None:
            await broker.topics.create("t", partitions=1)
            await broker.coordinators.ensure(GROUP_OFFSETS)
        await eventually_async(lambda: broker.groups.carries("g"))
        yield broker
    finally:
        await broker.stop()


async def stage(broker: BrokerNode, offset: int) -> None:
    """What TxnOffsetCommit of producer 9 does."""
    await broker.groups.commit_transactional(
        "g", producer_id=9, producer_epoch=0, offsets=[OffsetCommit("t", 0, offset)], check=lambda: None
    )


def committed(broker: BrokerNode) -> int:
    return broker.groups.fetch("g", [T0])[0].offset


async def test_a_coordinator_that_was_replaced_ends_no_offsets_of_a_later_transaction() -> None:
    disk, store = SimDisk(Random(1)), Store()
    async with member(disk, store) as broker:
        await stage(broker, 5)
        await broker.transaction_router.mark_here(TransactionMarker(OFFSETS, 9, 0, commit=True, coordinator_epoch=6))
        assert committed(broker) == 5
        await stage(broker, 8)
        late = TransactionMarker(OFFSETS, 9, 0, commit=True, coordinator_epoch=5)
        with pytest.raises(TransactionCoordinatorFenced):
            await broker.transaction_router.mark_here(late)
        assert committed(broker) == 5
    async with member(disk, store) as broker:
        with pytest.raises(TransactionCoordinatorFenced):
            await broker.transaction_router.mark_here(late)
        assert committed(broker) == 5
        await broker.transaction_router.mark_here(late._replace(commit=False, coordinator_epoch=6))
        await broker.transaction_router.mark_here(late._replace(coordinator_epoch=6))
        assert committed(broker) == 5


async def test_a_new_epoch_does_not_join_a_transaction_that_waits_for_its_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise ConcurrentTransactions("the transaction before is being ended")

    async with member(SimDisk(Random(1)), Store()) as broker:
        home = broker.view.partition("t", 0)
        first = NewRecord(None, b"first", timestamp=1)
        await home.leader.append(
            build_batch([first], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True), acks=1
        )
        monkeypatch.setattr(broker.coordinators, "of_transaction", lambda _: 2)
        monkeypatch.setattr(broker.transaction_router, "verify", refuse)
        await broker.transaction_verifier.verify(home, "tx", 9, 0, implicit=True)  # verified by its first write
        with pytest.raises(ConcurrentTransactions):
            await broker.transaction_verifier.verify(home, "tx", 9, 1, implicit=True)


async def test_questions_to_one_broker_take_one_way() -> None:
    opened = 0

    async def connect(_: int) -> PeerConnection:
        nonlocal opened
        opened += 1
        await asyncio.sleep(0)
        return PeerConnection(("127.0.0.1", 1), "broker-1")  # not connected: every question on it fails

    async def write_here(_: TransactionMarker) -> None:
        raise KafkaStorageError

    transacting = TransactionRouter(
        1, connect=connect, coordinator_of=lambda _: 2, leader_of=lambda _: 2, write_here=write_here
    )
    marker = TransactionMarker(T0, 9, 0, commit=True)
    await asyncio.gather(*(transacting.write_marker(marker) for _ in range(3)), return_exceptions=True)
    assert opened == 1
    transacting.close()
