"""What a leader does with scheduled records that are due: each is stored once, however often brokers send it."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.broker_worlds import running
from tests.support.waiting import eventually_async

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import NotEnoughReplicas, RequestTimedOut
from tidemill.model.topics import WAITING
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.scheduling import ReplicatedStorage, Scheduler
from tidemill.scheduling.delivery import Due, to_send
from tidemill.scheduling.replicated_store import ReplicatedStore
from tidemill.streams.partition import Partition
from tidemill.timelines.clock import Clock
from tidemill.timelines.core.message import EVERYTHING
from tidemill.timelines.core.timeline import Catalogue
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.memory import MemoryTimelineStore

VERSION = 9
FAR_MS = 4_102_444_800_000


def scheduler_of(
    broker: BrokerNode, timelines: Dispatcher, node_id: int = 0, replicated: ReplicatedStorage | None = None
) -> Scheduler:
    return Scheduler(
        broker.view,
        timelines,
        broker.clock_ms,
        send=broker.appends.send,
        ensure_internal=broker.coordinators.ensure,
        node_id=node_id,
        replicated=replicated,
    )


def due(number: int, clock: Clock, *, attempts: int = 1, left_ms: int = 15_000) -> Due:
    mark = f"m{number}@{number}".encode()
    record = NewRecord(b"k", b"%d" % number, (("tidemill-message", mark),), 1)
    now_ms = clock.now_ms()
    return Due(record, mark, now_ms, attempts, now_ms + left_ms, None)


async def stored(partition: Partition) -> list[bytes | None]:
    piece = await partition.reader.read(0, 1 << 20)
    found = []
    for chunk in piece.records:
        for position, header in iter_headers(chunk):
            found += [one.value for one in read_records(memoryview(chunk)[position : position + header.size])]
    return found


@asynccontextmanager
async def leading(folder: Path) -> AsyncIterator[tuple[Partition, Callable[..., Awaitable[object]], Clock]]:
    """A broker that leads `later-0`, and the way in which other brokers send it scheduled records."""
    async with running(folder, memory=True) as broker:
        await broker.topics.create("later", partitions=1)
        clock = Clock()
        dispatcher = Dispatcher(MemoryTimelineStore(), clock, random.Random(1))
        await dispatcher.open()
        scheduler = scheduler_of(broker, dispatcher)
        partition = broker.view.partition("later", 0)

        async def send(*entries: Due) -> object:
            return await scheduler.append_from_peer(partition, to_send(entries), acks=-1, version=VERSION, timeout_s=10)

        yield partition, send, clock
        await scheduler.close()
        await dispatcher.close()


async def test_a_batch_of_a_transaction_does_not_wait(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("later", partitions=1)
        scheduler = scheduler_of(broker, Dispatcher(MemoryTimelineStore(), Clock(), random.Random(1)))
        partition = broker.view.partition("later", 0)
        record = NewRecord(b"k", b"of a transaction", (), 1)
        batch = build_batch([record], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
        async with scheduler._turn("later", 0):  # records are being kept for later
            appending = asyncio.create_task(scheduler.append(partition, batch, acks=-1, version=VERSION, timeout_s=10))
            await asyncio.sleep(0)
            assert partition.leader.open_transaction(9, 0) == 0, "what was verified is stored at once"
            assert (await appending).base_offset == 0


class SharedStore(MemoryTimelineStore):
    """A store with a clock of its own, as one that several brokers use."""

    async def catalogue(self) -> Catalogue:
        return (await super().catalogue())._replace(now_ms=Clock().now_ms())


async def test_a_cancel_is_heeded_also_where_nothing_was_scheduled(tmp_path: Path) -> None:
    """Brokers that share a store hear of each other's timelines after a while; a cancel does not wait for that."""
    store, clock = SharedStore(), Clock()
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("later", partitions=1)
        partition = broker.view.partition("later", 0)
        here, there = (Dispatcher(store, clock, random.Random(1)) for _ in range(2))
        await here.open()
        await there.open()
        schedulers = [scheduler_of(broker, each, node_id=node) for node, each in ((0, here), (1, there))]
        name = ("tidemill-schedule-id", b"tea")
        for scheduler, header in zip(
            schedulers, (("tidemill-deliver-at", b"%d" % FAR_MS), ("tidemill-cancel", b"tea")), strict=True
        ):
            batch = build_batch([NewRecord(b"k", b"v", (header, name), 1)])
            await scheduler.append(partition, batch, acks=-1, version=VERSION, timeout_s=10)
        assert await here.messages("__schedule.later", EVERYTHING, 10) == []
        for scheduler in schedulers:
            await scheduler.close()
        await here.close()
        await there.close()


async def test_a_record_that_was_stored_under_an_earlier_lease_is_not_stored_again(tmp_path: Path) -> None:
    async with leading(tmp_path) as (partition, send, clock):
        await send(due(1, clock), due(2, clock))
        await send(due(2, clock, attempts=2), due(3, clock, attempts=2))
        await send(due(1, clock, attempts=3), due(3, clock, attempts=3))
        assert await stored(partition) == [b"1", b"2", b"3"]


async def test_a_sender_that_comes_too_late_stores_nothing(tmp_path: Path) -> None:
    async with leading(tmp_path) as (partition, send, clock):
        with pytest.raises(RequestTimedOut, match="about to end"):
            await send(due(1, clock), due(2, clock, left_ms=1_000))
        assert partition.log_end_offset == 0


async def test_a_client_that_disconnects_has_all_its_messages_stored(tmp_path: Path) -> None:
    async with leading(tmp_path) as (partition, send, clock):
        sending = asyncio.ensure_future(send(due(1, clock), due(2, clock)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sending.cancel()  # its connection is gone
        await send(due(1, clock, attempts=2), due(2, clock, attempts=2))
        assert await stored(partition) == [b"1", b"2"]


async def test_a_new_leader_does_not_store_a_stored_message_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: object) -> None:
        raise NotEnoughReplicas("as if it had died here")

    async with running(tmp_path, {"tidemill.waiting.topic.num.partitions": "1"}, memory=True) as broker:
        await broker.topics.create("later", partitions=1, overrides={"tidemill.schedule.enable": "true"})
        partition = broker.view.partition("later", 0)
        record = NewRecord(b"k", b"once", (("tidemill-delay-ms", b"1"),), 1)
        with monkeypatch.context() as patched:
            patched.setattr(ReplicatedStore, "leave", dies)
            async with keeping(broker) as (first, _):
                await first.append(partition, build_batch([record]), acks=-1, version=VERSION, timeout_s=10)
                await eventually_async(lambda: partition.log_end_offset == 1)
        async with keeping(broker) as (_, timelines):
            await eventually_async(lambda: timelines.stats.of("__waiting.later").messages["completed"] == 1)
        assert await stored(partition) == [b"once"]


@asynccontextmanager
async def keeping(broker: BrokerNode) -> AsyncIterator[tuple[Scheduler, Dispatcher]]:
    """A broker's life as the keeper of waiting rooms, with timelines that are forgotten after it."""
    dispatcher = Dispatcher(MemoryTimelineStore(), Clock(), random.Random(1))
    await dispatcher.open()
    replicated = ReplicatedStorage(broker.internal.journal(WAITING), lambda: {0: 1}, uuid4)
    scheduler = scheduler_of(broker, dispatcher, replicated=replicated)
    await scheduler.open()
    await eventually_async(
        lambda: scheduler._replicated_store is not None and scheduler._replicated_store.owns("later")
    )
    try:
        yield scheduler, dispatcher
    finally:
        await scheduler.close()
        await dispatcher.close()
