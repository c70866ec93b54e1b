"""What a broker of a cluster tells the others about its disk: full, room again, failed."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.unit.broker.worlds import batch_of
from tests.unit.cluster.shared_store import Line, Store

from tidemill.broker.broker import Broker, Place, World
from tidemill.broker.stores import STREAMS, TopicFolders
from tidemill.cluster.core.changes import full_brokers, live_brokers
from tidemill.cluster.core.registration import DEGRADED, HEALTHY, INACTIVE, Registration, decode_registration
from tidemill.model import broker_settings
from tidemill.model.errors import KafkaStorageError
from tidemill.streams.segments import RealDisk, SegmentStore
from tidemill.streams.segments.reserve import RETAKE_INTERVAL_MS
from tidemill.testing.clock import VirtualClock


class SmallDisk(RealDisk):
    """A real disk that takes no more when it is told to."""

    full = False

    def write(self, file: int, buffers: object, position: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(file, buffers, position)  # type: ignore[arg-type]

    def allocate(self, file: int, size: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(file, size)


@asynccontextmanager
async def member(folder: Path, store: Store, disk: SmallDisk, clock: VirtualClock) -> AsyncIterator[Broker]:
    """A broker that is alone in a cluster, with a topic."""
    topics = TopicFolders(folder, SegmentStore(disk, 4096), clock)
    world = World(Line(store), topics, clock, uuid4, UUID(int=1))
    settings = broker_settings.parse({"replica.lag.time.max.ms": "200"})
    broker = Broker(world, settings, Place(1, session_ttl_ms=60_000))
    try:
        await broker.start()
        broker.advertise("127.0.0.1", 9999)
        await broker.announce()
        await broker.create_topic("orders", partitions=2)
        yield broker
    finally:
        await broker.close()


def told(store: Store) -> Registration:
    return decode_registration(store.entries["brokers/1"].value)


async def until_told(store: Store, broker: Broker, state: str) -> Registration:
    """Wait until the store has it, and the broker has seen that itself."""
    async with asyncio.timeout(20):
        while broker.image.brokers[1].state != state:  # noqa: ASYNC110 -- the image is a value
            await asyncio.sleep(0.01)
    return told(store)


def test_a_full_disk_is_told_and_so_is_room(tmp_path: Path) -> None:
    async def scenario() -> None:
        store, clock = Store(), VirtualClock()
        disk = SmallDisk(tmp_path / STREAMS)
        async with member(tmp_path, store, disk, clock) as broker:
            await broker.partition("orders", 0).append(batch_of(b"kept"), acks=-1)
            disk.full = True
            with pytest.raises(KafkaStorageError):
                await broker.partition("orders", 0).append(batch_of(b"refused"), acks=-1)
            found = await until_told(store, broker, DEGRADED)
            assert not found.room
            assert "the disk is full" in found.reason
            assert not live_brokers(broker.image)
            assert full_brokers(broker.image) == {1}
            assert broker.partition("orders", 0).leads, "nobody else can: what it has is read"
            disk.full = False
            clock.advance(RETAKE_INTERVAL_MS)
            await broker.tend(clock())
            found = await until_told(store, broker, HEALTHY)
            assert found.room
            assert (await broker.partition("orders", 0).append(batch_of(b"again"), acks=-1)).base_offset == 1

    asyncio.run(scenario())


def test_a_disk_that_failed_makes_the_broker_inactive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def scenario() -> None:
        store, clock = Store(), VirtualClock()
        async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fdatasync", failing)
                with pytest.raises(KafkaStorageError):
                    await broker.partition("orders", 0).append(batch_of(b"lost"), acks=-1)
            found = await until_told(store, broker, INACTIVE)
            assert "orders-" in found.reason
            assert not live_brokers(broker.image) | full_brokers(broker.image), "others lead what it led"
            with pytest.raises(KafkaStorageError):
                await broker.partition("orders", 1).append(batch_of(b"refused"), acks=1)

    asyncio.run(scenario())
