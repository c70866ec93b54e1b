"""What a broker of a cluster tells the others about its disk: full, room again, failed."""

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.support.broker_worlds import batch_of
from tests.support.shared_store import Line, Store
from tests.support.waiting import eventually_async

from tidemill.app.broker_wiring import make_broker
from tidemill.broker.broker import BrokerEnvironment, BrokerIdentity, BrokerNode
from tidemill.broker.topic_directories import STREAMS, TOPIC_ID, TopicDirectories
from tidemill.cluster.core.changes import full_brokers, live_brokers
from tidemill.cluster.core.image import PartitionInfo, Topic, encode_topic
from tidemill.cluster.core.registration import DEGRADED, HEALTHY, INACTIVE, Registration, decode_registration
from tidemill.cluster.core.tombstones import Tombstone, decode_tombstone, encode_tombstone, record_key
from tidemill.model import broker_settings
from tidemill.model.errors import KafkaStorageError
from tidemill.model.topic_settings import parse
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

    def open(self, path: str, *, create: bool = False) -> int:
        if self.full and create:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, create=create)

    def allocate(self, file: int, size: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(file, size)


@asynccontextmanager
async def member(folder: Path, store: Store, disk: SmallDisk, clock: VirtualClock) -> AsyncIterator[BrokerNode]:
    """A broker that is alone in a cluster, with a topic."""
    topics = TopicDirectories(folder, SegmentStore(disk, 4096), clock)
    world = BrokerEnvironment(Line(store), topics, clock, uuid4, UUID(int=1))
    settings = broker_settings.parse({"replica.lag.time.max.ms": "200"})
    broker = make_broker(world, settings, BrokerIdentity(1, session_ttl_ms=60_000))
    try:
        await broker.start()
        broker.view.advertise("127.0.0.1", 9999)
        await broker.announce()
        await broker.topics.create("orders", partitions=2)
        yield broker
    finally:
        await broker.stop()


def told(store: Store) -> Registration:
    return decode_registration(store.entries["brokers/1"].value)


async def until_told(store: Store, broker: BrokerNode, state: str) -> Registration:
    """Wait until the store has it, and the broker has seen that itself."""
    await eventually_async(lambda: broker.view.image.brokers[1].state == state)
    return told(store)


async def test_a_full_disk_is_told_and_so_is_room(tmp_path: Path) -> None:
    store, clock = Store(), VirtualClock()
    disk = SmallDisk(tmp_path / STREAMS)
    async with member(tmp_path, store, disk, clock) as broker:
        await broker.view.partition("orders", 0).leader.append(batch_of(b"kept"), acks=-1)
        disk.full = True
        with pytest.raises(KafkaStorageError):
            await broker.view.partition("orders", 0).leader.append(batch_of(b"refused"), acks=-1)
        found = await until_told(store, broker, DEGRADED)
        assert not found.room
        assert "the disk is full" in found.reason
        assert not live_brokers(broker.view.image)
        assert full_brokers(broker.view.image) == {1}
        assert broker.view.partition("orders", 0).leads, "nobody else can: what it has is read"
        disk.full = False
        clock.advance(RETAKE_INTERVAL_MS)
        await broker.maintain()
        found = await until_told(store, broker, HEALTHY)
        assert found.room
        assert (await broker.view.partition("orders", 0).leader.append(batch_of(b"again"), acks=-1)).base_offset == 1


def put_topic(store: Store, name: str) -> None:
    """Another broker has created a topic that this one carries."""
    info = PartitionInfo(0, 1, (1,), (1,), 0)
    store.put(f"topics/{name}", encode_topic(Topic(name, uuid4(), (info,), {}, parse({}))))


async def until_known(broker: BrokerNode, topic: str) -> None:
    await eventually_async(lambda: broker.view.topic(topic) is not None)


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("what", ["the folder of the topic", "the mark in it", "the folder of a partition", "a file"])
async def test_a_topic_that_came_while_the_disk_was_full_is_opened_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    store, clock = Store(), VirtualClock()
    disk = SmallDisk(tmp_path / STREAMS)
    async with member(tmp_path, store, disk, clock) as broker:
        with monkeypatch.context() as patch:
            if what == "the folder of the topic":
                patch.setattr(Path, "mkdir", no_room)
            elif what == "the mark in it":
                patch.setattr(os, "fsync", no_room)
            elif what == "the folder of a partition":
                patch.setattr(disk, "make_dir", no_room)
            else:
                disk.full = True
            put_topic(store, "late")
            await until_known(broker, "late")
            await broker.maintain()
            found = await until_told(store, broker, DEGRADED)
            assert not found.room, "others that are in sync lead meanwhile"
            assert "late-0" in found.reason
            with pytest.raises(KafkaStorageError, match="No space left"):
                broker.view.partition("late", 0)
        disk.full = False
        await broker.maintain()
        assert (await until_told(store, broker, HEALTHY)).room
        assert (await broker.view.partition("late", 0).leader.append(batch_of(b"first"), acks=-1)).base_offset == 0
        mark = tmp_path / STREAMS / "late" / TOPIC_ID
        assert mark.read_text() == str(broker.view.image.by_name["late"].topic_id)
        await broker.topics.alter("late", {"retention.ms": "1000"})
        assert broker.view.partition("late", 0).log_end_offset == 1, "it was taken for somebody else's"
        assert not (tmp_path / "orphans").exists()


async def test_a_disk_that_failed_makes_the_broker_inactive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store, clock = Store(), VirtualClock()
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", failing)
            with pytest.raises(KafkaStorageError):
                await broker.view.partition("orders", 0).leader.append(batch_of(b"lost"), acks=-1)
        found = await until_told(store, broker, INACTIVE)
        assert "orders-" in found.reason
        assert not live_brokers(broker.view.image) | full_brokers(broker.view.image), "others lead what it led"
        with pytest.raises(KafkaStorageError):
            await broker.view.partition("orders", 1).leader.append(batch_of(b"refused"), acks=1)


def _record(store: Store, topic: Topic, left: tuple[int, ...]) -> None:
    """Others deleted the topic while this broker was away."""
    store.put(f"topics/{topic.name}", None)
    tombstone = Tombstone(topic.name, topic.topic_id, 1, 2, left)
    store.put(record_key(topic.topic_id), encode_tombstone(tombstone))


@pytest.mark.parametrize("recorded", [True, False], ids=["a recorded deletion", "coordination lost the topic"])
async def test_a_folder_goes_only_with_a_recorded_deletion(tmp_path: Path, recorded: bool) -> None:
    store, clock = Store(), VirtualClock()
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        put_topic(store, "gone")
        await until_known(broker, "gone")
        topic = broker.view.image.by_name["gone"]
        await broker.view.partition("gone", 0).leader.append(batch_of(b"kept"), acks=-1)
    store.put("topics/orders", None)
    if recorded:
        _record(store, topic, (1, 3))
    else:
        store.put("topics/gone", None)
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        assert (tmp_path / STREAMS / "gone").exists() != recorded
        assert ("gone" in {each.name for each in broker.partitions.unknown}) != recorded
        put_topic(store, "gone")
        await until_known(broker, "gone")
        assert broker.view.partition("gone", 0).log_end_offset == 0
    kept = [path for path in (tmp_path / "orphans").rglob("*.log") if path.stat().st_size and "gone" in str(path)]
    assert len(kept) == (0 if recorded else 1)
    if recorded:
        left = decode_tombstone(store.entries[record_key(topic.topic_id)].value).left
        assert left == (3,), "the other broker that is away still has to remove its part"


async def test_a_deletion_is_recorded_for_brokers_that_are_away(tmp_path: Path) -> None:
    store, clock = Store(), VirtualClock()
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        info = PartitionInfo(0, 1, (1, 2), (1,), 0)
        topic = Topic("copied", uuid4(), (info,), {}, parse({}))
        store.put("topics/copied", encode_topic(topic))
        await until_known(broker, "copied")
        await broker.topics.delete("copied")
        assert decode_tombstone(store.entries[record_key(topic.topic_id)].value).left == (2,)
        await broker.topics.delete("orders")
    assert [key for key in store.entries if key.startswith("deleted/")] == [record_key(topic.topic_id)]
