"""Topics through the broker: created, grown, altered, deleted, and all of it again after a restart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_worlds import batch_of, running

from tidemill.broker.identity import PRODUCER_ID_BLOCK
from tidemill.broker.topic_directories import CLEAN_MARKER, TopicDirectories
from tidemill.cluster.core.image import TOPICS, Topic, decode_topic
from tidemill.cluster.core.tombstones import encode_tombstone, tombstone_for, tombstone_key
from tidemill.cluster.local import LocalCoordination
from tidemill.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaStorageError,
    NotLeaderOrFollower,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from tidemill.model.topic_settings import DEFAULTS
from tidemill.records.build import NewRecord, build_batch
from tidemill.streams.partition import Partition
from tidemill.testing.clock import VirtualClock


async def test_a_topic_and_its_records_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        topic = await broker.topics.create("orders", partitions=2, overrides={"retention.ms": "-1"})
        await broker.view.partition("orders", 1).leader.append(batch_of(b"a", b"b"), acks=-1)
        cluster_id = broker.cluster_id
    async with running(tmp_path) as broker:
        assert broker.view.topic("orders") == topic
        assert broker.view.topic_by_id(topic.topic_id) == topic
        assert broker.cluster_id == cluster_id
        assert broker.view.partition("orders", 1).log_end_offset == 2
        assert broker.view.partition("orders", 0).log_end_offset == 0


async def test_the_brokers_defaults_make_the_topic(tmp_path: Path) -> None:
    async with running(tmp_path, {"num.partitions": "3", "log.retention.ms": "77"}, memory=True) as broker:
        topic = await broker.topics.create("orders")
        assert len(topic.partitions) == 3
        assert topic.settings.retention_ms == 77
        assert topic.overrides == {}


async def test_a_quiet_producer_is_remembered_as_long_as_the_settings_say(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with running(tmp_path, {"producer.id.expiration.ms": "1000"}, memory=True, clock=clock) as broker:
        await broker.topics.create("orders")
        orders = broker.view.partition("orders", 0)
        await orders.leader.append(build_batch([NewRecord(None, b"a")], producer_id=7, base_sequence=0), acks=-1)
        (seen,) = orders.producers()
        clock.now_ms = seen.last_timestamp + 999
        await broker.maintain()
        assert len(orders.producers()) == 1
        clock.advance(1)
        await broker.maintain()
        assert orders.producers() == []


async def test_a_rejected_topic_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topics.create("orders")
        version = broker.view.version
        with pytest.raises(TopicAlreadyExists):
            await broker.topics.create("orders")
        with pytest.raises(TopicAlreadyExists):
            await broker.topics.create("orders", validate_only=True)
        with pytest.raises(InvalidTopic):
            await broker.topics.create("../evil")
        with pytest.raises(InvalidTopic):
            await broker.topics.create("__consumer_offsets")
        with pytest.raises(InvalidPartitions):
            await broker.topics.create("a", partitions=0)
        with pytest.raises(InvalidReplicationFactor):
            await broker.topics.create("a", replication_factor=2)
        with pytest.raises(InvalidConfig):
            await broker.topics.create("a", overrides={"retention.mss": "1"})
        with pytest.raises(InvalidRequest):
            await broker.topics.create("a", partitions=1, assignment={0: [0]})
        assert (await broker.topics.create("a", validate_only=True)).name == "a"
        assert broker.view.topic("a") is None
        assert broker.view.version == version
        assert sorted(path.name for path in (tmp_path / "streams").iterdir()) == ["orders", "reserve~"]


async def test_one_of_many_creations_wins(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        results = await asyncio.gather(*(broker.topics.create("a") for _ in range(10)), return_exceptions=True)
        assert sum(isinstance(result, TopicAlreadyExists) for result in results) == 9


async def test_a_topic_grows_and_changes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topics.create("orders")
        assert len((await broker.topics.add_partitions("orders", 3, validate_only=True)).partitions) == 3
        with pytest.raises(UnknownTopicOrPartition):
            broker.view.partition("orders", 2)
        await broker.topics.add_partitions("orders", 3)
        assert broker.view.partition("orders", 2).log_end_offset == 0
        with pytest.raises(InvalidPartitions):
            await broker.topics.add_partitions("orders", 3)
        with pytest.raises(InvalidReplicaAssignment):
            await broker.topics.add_partitions("orders", 5, assignment=[[0]])
        await broker.topics.alter("orders", {"max.message.bytes": "100"}, validate_only=True)
        assert broker.view.partition("orders", 0).settings.max_message_bytes > 100
        await broker.topics.alter("orders", {"max.message.bytes": "100"})
        assert broker.view.partition("orders", 2).settings.max_message_bytes == 100
        with pytest.raises(UnknownTopicOrPartition):
            await broker.topics.alter("none", {})
    async with running(tmp_path) as broker:
        assert broker.view.partition("orders", 2).settings.max_message_bytes == 100


@pytest.mark.parametrize("memory", [True, False])
async def test_a_deleted_topic_comes_back_empty(tmp_path: Path, memory: bool) -> None:
    async with running(tmp_path, memory=memory) as broker:
        first = await broker.topics.create("orders")
        old = broker.view.partition("orders", 0)
        await old.leader.append(batch_of(b"a"), acks=-1)
        woken = asyncio.Event()
        old.reader.watch(woken.set)
        await broker.topics.delete("orders")
        assert woken.is_set()
        with pytest.raises(UnknownTopicOrPartition):
            broker.view.partition("orders", 0)
        with pytest.raises(NotLeaderOrFollower):
            await old.leader.append(batch_of(b"b"), acks=-1)
        with pytest.raises(UnknownTopicOrPartition):
            await broker.topics.delete("orders")
        second = await broker.topics.create("orders")
        assert second.topic_id != first.topic_id
        assert broker.view.partition("orders", 0).log_end_offset == 0


async def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topics.create("orders")
        await broker.view.partition("orders", 0).leader.append(batch_of(b"a"), acks=-1)
        await broker.topics.create("kept")
    coordination = await LocalCoordination.open(tmp_path)
    entry = await coordination.get(TOPICS + "orders")
    assert entry is not None
    created = decode_topic(entry.value)
    topic = Topic(created.name, created.topic_id, created.partitions, {}, DEFAULTS)
    await coordination.compare_and_put(tombstone_key("orders"), encode_tombstone(tombstone_for(topic, 0, [0])), 0)
    await coordination.close()
    async with running(tmp_path) as broker:
        assert [topic.name for topic in broker.view.topics()] == ["kept"]
        assert not (tmp_path / "streams" / "orders").exists()
        while True:
            try:
                await broker.topics.create("orders")
                break
            except TopicAlreadyExists:
                await asyncio.sleep(0)
        assert broker.view.partition("orders", 0).log_end_offset == 0
    assert list((tmp_path / "deleted").iterdir()) == []


async def test_a_folder_of_an_unknown_topic_is_moved_aside_and_kept(tmp_path: Path) -> None:
    stray = tmp_path / "streams" / "orders" / "0"
    stray.mkdir(parents=True)
    (stray / "note").write_text("mine")
    async with running(tmp_path) as broker:
        await broker.topics.create("orders")
        assert broker.view.partition("orders", 0).log_end_offset == 0
    assert [path.read_text() for path in (tmp_path / "orphans").rglob("note")] == ["mine"]


async def test_deleting_may_be_forbidden(tmp_path: Path) -> None:
    async with running(tmp_path, {"delete.topic.enable": "false"}, memory=True) as broker:
        await broker.topics.create("orders")
        with pytest.raises(InvalidRequest):
            await broker.topics.delete("orders")
        with pytest.raises(InvalidTopic):
            await broker.topics.delete("__consumer_offsets")


async def test_producer_ids_are_given_out_once(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        first = await asyncio.gather(*(broker.producer_ids.take() for _ in range(PRODUCER_ID_BLOCK + 10)))
    async with running(tmp_path, memory=True) as broker:
        second = [await broker.producer_ids.take() for _ in range(3)]
    assert len({*first, *second}) == len(first) + len(second)


async def test_a_partition_that_cannot_be_opened_leaves_the_others(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topics.create("good")
        await broker.topics.create("bad")
    folder = tmp_path / "streams" / "bad" / "0"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("not a folder")
    async with running(tmp_path) as broker:
        assert broker.view.partition("good", 0).log_end_offset == 0
        assert list(broker.partitions.broken()) == [("bad", 0)]
    assert not (tmp_path / CLEAN_MARKER).exists()


async def test_a_topic_that_cannot_be_stored_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = TopicDirectories.open

    async def full(self: TopicDirectories, topic: str, index: int, *more: Any) -> Partition:
        if index == 1:
            raise OSError(28, "No space left on device")
        return await real(self, topic, index, *more)

    async with running(tmp_path) as broker:
        await broker.topics.create("small")
        with monkeypatch.context() as patched:
            patched.setattr(TopicDirectories, "open", full)
            with pytest.raises(KafkaStorageError, match="No space left"):
                await broker.topics.create("orders", partitions=3)
            with pytest.raises(KafkaStorageError, match="No space left"):
                await broker.topics.add_partitions("small", 3)
        assert [topic.name for topic in broker.view.topics()] == ["small"]
        assert len(broker.partitions) == 1
        assert not (tmp_path / "streams" / "orders").exists()
        await broker.topics.create("orders", partitions=3)
        await broker.topics.add_partitions("small", 2)
    async with running(tmp_path) as broker:
        assert len(broker.partitions) == 5


async def test_a_clean_stop_leaves_its_marker_and_a_start_takes_it(tmp_path: Path) -> None:
    async with running(tmp_path):
        assert not (tmp_path / CLEAN_MARKER).exists()
    assert (tmp_path / CLEAN_MARKER).exists()
    async with running(tmp_path):
        assert not (tmp_path / CLEAN_MARKER).exists()


async def test_the_image_version_grows_with_every_change(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        versions = [broker.view.version]
        await broker.topics.create("a")
        versions.append(broker.view.version)
        await broker.topics.alter("a", {})
        versions.append(broker.view.version)
        broker.view.advertise("here", 9092)
        versions.append(broker.view.version)
        await broker.topics.delete("a")
        versions.append(broker.view.version)
        assert versions == sorted(set(versions))
        assert broker.view.brokers() == [(0, "here", 9092, None)]
