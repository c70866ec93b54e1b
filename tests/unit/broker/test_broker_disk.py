"""The disk state that a broker registers in its cluster: full, free again, failed."""

import errno
import os
from pathlib import Path

import pytest
from tests.support.broker_worlds import batch_of
from tests.support.shared_store import Store
from tests.support.waiting import eventually_async
from tests.unit.broker.small_disk import SmallDisk, member, put_topic, until_known

from tidemill.broker.broker import BrokerNode
from tidemill.broker.topic_directories import STREAMS, TOPIC_ID
from tidemill.cluster.core.changes import full_brokers, live_brokers
from tidemill.cluster.core.registration import DEGRADED, HEALTHY, INACTIVE, Registration, decode_registration
from tidemill.model.errors import KafkaStorageError
from tidemill.streams.segments.reserve import RETAKE_INTERVAL_MS
from tidemill.testing.clock import VirtualClock


def reported(store: Store) -> Registration:
    return decode_registration(store.entries["brokers/1"].value)


async def until_reported(store: Store, broker: BrokerNode, state: str) -> Registration:
    """Wait until the store has it, and the broker has seen that itself."""
    await eventually_async(lambda: broker.view.image.brokers[1].state == state)
    return reported(store)


async def test_a_full_disk_is_reported_and_so_is_room(tmp_path: Path) -> None:
    store, clock = Store(), VirtualClock()
    disk = SmallDisk(tmp_path / STREAMS)
    async with member(tmp_path, store, disk, clock) as broker:
        await broker.view.partition("orders", 0).leader.append(batch_of(b"kept"), acks=-1)
        disk.full = True
        with pytest.raises(KafkaStorageError):
            await broker.view.partition("orders", 0).leader.append(batch_of(b"refused"), acks=-1)
        found = await until_reported(store, broker, DEGRADED)
        assert not found.room
        assert "the disk is full" in found.reason
        assert not live_brokers(broker.view.image)
        assert full_brokers(broker.view.image) == {1}
        assert broker.view.partition("orders", 0).leads, "no other broker can: what it has is read"
        disk.full = False
        clock.advance(RETAKE_INTERVAL_MS)
        await broker.maintain()
        found = await until_reported(store, broker, HEALTHY)
        assert found.room
        assert (await broker.view.partition("orders", 0).leader.append(batch_of(b"again"), acks=-1)).base_offset == 1


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
            found = await until_reported(store, broker, DEGRADED)
            assert not found.room, "others that are in sync lead meanwhile"
            assert "late-0" in found.reason
            with pytest.raises(KafkaStorageError, match="No space left"):
                broker.view.partition("late", 0)
        disk.full = False
        await broker.maintain()
        assert (await until_reported(store, broker, HEALTHY)).room
        assert (await broker.view.partition("late", 0).leader.append(batch_of(b"first"), acks=-1)).base_offset == 0
        mark = tmp_path / STREAMS / "late" / TOPIC_ID
        assert mark.read_text() == str(broker.view.image.by_name["late"].topic_id)
        await broker.topics.alter("late", {"retention.ms": "1000"})
        assert broker.view.partition("late", 0).log_end_offset == 1, "it was taken for another broker's"
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
        found = await until_reported(store, broker, INACTIVE)
        assert "orders-" in found.reason
        assert not live_brokers(broker.view.image) | full_brokers(broker.view.image), "others lead what it led"
        with pytest.raises(KafkaStorageError):
            await broker.view.partition("orders", 1).leader.append(batch_of(b"refused"), acks=1)
