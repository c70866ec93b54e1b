"""A broker that is no member any more answers for nothing that another may have taken over, however it learns of it."""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.support.broker_worlds import batch_of, running
from tests.support.shared_store import Line, Store
from tests.support.waiting import eventually_async

from tidemill.app.broker_wiring import make_broker
from tidemill.broker.broker import BrokerEnvironment, BrokerIdentity, BrokerNode
from tidemill.broker.topic_directories import STREAMS, MemoryTopics, TopicDirectories
from tidemill.cluster.core.image import PartitionInfo, Topic, encode_topic
from tidemill.groups.core.messages import JoinRequest
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.model import broker_settings
from tidemill.model.errors import (
    CoordinatorLoadInProgress,
    NotCoordinator,
    NotLeaderOrFollower,
    TidemillError,
    TransactionalIdNotFound,
)
from tidemill.model.topic_settings import parse
from tidemill.model.topics import GROUP_OFFSETS, TRANSACTION_STATE
from tidemill.streams.core.insync import Term
from tidemill.streams.leader_replication import Agreement
from tidemill.streams.memory import MemoryLogStore
from tidemill.streams.partition import Partition
from tidemill.testing.clock import VirtualClock
from tidemill.transactions.core.rules import InitProducer

SESSION_MS = 800
JOIN = JoinRequest("g", "", None, "client", "", 60_000, 600_000, "consumer", (("range", b""),), False)


@asynccontextmanager
async def leader(line: Line) -> AsyncIterator[BrokerNode]:
    """A broker that leads everything, with another one in the list of replicas."""
    info = PartitionInfo(0, 1, (1, 2), (1,), 0)
    for name in ("orders", GROUP_OFFSETS, TRANSACTION_STATE):
        topic = Topic(name, uuid4(), (info,), {}, parse({}))
        line.store.put(f"topics/{name}", encode_topic(topic))
    clock = VirtualClock()
    world = BrokerEnvironment(line, MemoryTopics(MemoryLogStore, clock), clock, uuid4, UUID(int=1))
    broker = make_broker(world, broker_settings.parse({}), BrokerIdentity(1, session_ttl_ms=SESSION_MS))
    try:
        await broker.start()
        broker.view.advertise("127.0.0.1", 9999)
        await broker.announce()
        await eventually_async(lambda: _serves(broker))
        yield broker
    finally:
        line.cut = False
        await broker.stop()


def _serves(broker: BrokerNode) -> bool:
    try:
        broker.groups.fetch("g", None)
        broker.transactions.describe("t")
    except TransactionalIdNotFound:
        pass  # its coordinator has read the journal
    except TidemillError:
        return False
    return broker.view.partition("orders", 0).leads


async def refuses_all(broker: BrokerNode) -> None:
    """Nothing waits before the first look at each of them."""
    with pytest.raises(NotCoordinator):
        broker.groups.fetch("g", None)
    with pytest.raises(NotCoordinator):
        broker.groups.heartbeat("g", 1, "member", None)
    with pytest.raises(NotCoordinator):
        broker.transactions.describe("t")
    assert broker.coordinators.of_group("g") == -1
    assert broker.coordinators.of_transaction("t") == -1
    with pytest.raises(NotLeaderOrFollower):
        await broker.view.partition("orders", 0).leader.append(batch_of(b"late"), acks=1)


async def test_a_coordinator_without_a_session_rejects_every_request() -> None:
    line = Line(Store())
    async with leader(line) as broker:
        line.cut = True
        await eventually_async(lambda: not broker.membership.alive)
        await refuses_all(broker)
        line.cut = False
        await eventually_async(lambda: _serves(broker))
        assert (await broker.transactions.init_producer(InitProducer("t", 1_000))).epoch == 0


async def test_a_waiting_join_fails_when_the_coordinator_loses_its_session() -> None:
    """A member may wait for others for minutes, and the coordinator that it should find instead is another one."""
    line = Line(Store())
    async with leader(line) as broker:
        joining = asyncio.create_task(broker.groups.join(JOIN))
        await asyncio.sleep(0)
        line.cut = True
        with pytest.raises(NotCoordinator):
            await asyncio.wait_for(joining, 20)


async def test_a_coordinator_whose_partition_cannot_be_opened_knows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would answer that nothing was ever committed. Once there is room it returns the offsets."""
    async with running(tmp_path) as broker:
        await broker.topics.create("orders")
        await broker.groups.commit("g", [OffsetCommit("orders", 0, 7)])
    opening = TopicDirectories.open

    async def open_or_not(folders: TopicDirectories, topic: str, *rest: Any) -> Partition:
        if topic == GROUP_OFFSETS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return await opening(folders, topic, *rest)

    monkeypatch.setattr(TopicDirectories, "open", open_or_not)
    async with running(tmp_path) as broker:
        with pytest.raises(NotCoordinator):
            broker.groups.fetch("g", None)
        assert broker.coordinators.of_group("g") == -1
        monkeypatch.undo()
        await broker.maintain()
        await eventually_async(lambda: broker.coordinators.of_group("g") != -1 and broker.groups.carries("g"))
        assert [found.offset for found in broker.groups.fetch("g", None)] == [7]


async def test_state_of_an_earlier_epoch_is_not_returned() -> None:
    """Leadership went and came back: another broker may have written, and this one has to read again first."""
    async with leader(Line(Store())) as broker:
        for topic in (GROUP_OFFSETS, TRANSACTION_STATE):
            partition = broker.partitions.find(topic, 0)
            assert partition is not None
            assert partition.term is not None
            await partition.leader.lead(partition.term._replace(epoch=partition.term.epoch + 2), Agreement(_agreed))
        with pytest.raises(NotCoordinator):
            broker.groups.fetch("g", None)
        with pytest.raises(NotCoordinator):
            broker.transactions.describe("t")


async def _agreed(term: Term, isr: tuple[int, ...]) -> Term:
    return term._replace(version=term.version + 1, isr=isr)


async def test_one_journal_that_is_damaged_keeps_its_own_groups_alone_from_being_served(tmp_path: Path) -> None:
    """Clients get a retriable error, and never that they have committed nothing; the broker starts."""
    async with running(tmp_path) as broker:
        await broker.topics.create("orders")
        for name in ("damaged", "whole"):
            await broker.groups.commit(name, [OffsetCommit("orders", 0, 7)])
        await broker.transactions.init_producer(InitProducer("t", 1_000))
        damaged, whole = map(broker.groups.partition_of, ("damaged", "whole"))
        assert damaged != whole
    [log] = (tmp_path / STREAMS / GROUP_OFFSETS / str(damaged)).glob("*.log")
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    async with running(tmp_path) as broker:
        with pytest.raises(CoordinatorLoadInProgress):
            broker.groups.fetch("damaged", None)
        assert [found.offset for found in broker.groups.fetch("whole", None)] == [7]
        assert broker.transactions.describe("t").identity.epoch == 0


async def test_a_process_suspended_beyond_its_session_rejects_the_first_request() -> None:
    """What clients sent meanwhile is read before any timer of this broker runs."""
    async with leader(Line(Store())) as broker:
        time.sleep(SESSION_MS / 1000)  # noqa: ASYNC251 -- nothing of this process runs
        await refuses_all(broker)
