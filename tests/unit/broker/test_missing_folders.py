"""A partition folder that was removed while the broker was stopped."""

import asyncio
import shutil
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.unit.broker.test_disk_in_a_cluster import SmallDisk, member, until_known
from tests.unit.broker.worlds import batch_of, running
from tests.unit.cluster.shared_store import Store

from tidemill.broker import manifest
from tidemill.broker.manifest import PartitionKey, decode, encode
from tidemill.broker.stores import STREAMS
from tidemill.cluster.core.image import PartitionInfo, Topic, decode_state, encode_topic, state_key
from tidemill.doors.console.view import health_of
from tidemill.model.topic_settings import parse
from tidemill.testing.clock import VirtualClock

RECORDS = 5


@pytest.mark.parametrize("removed", ["orders/1", "orders"], ids=["the partition", "the topic"])
def test_no_offset_is_given_out_again(tmp_path: Path, removed: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", partitions=2)
            for index in range(2):
                for _ in range(RECORDS):
                    await broker.partition("orders", index).append(batch_of(b"a"), acks=-1)
        shutil.rmtree(tmp_path / STREAMS / removed)
        async with running(tmp_path) as broker:
            assert (await broker.partition("orders", 1).append(batch_of(b"b"), acks=-1)).base_offset == RECORDS
            reasons = health_of(broker)["streams"]["reasons"]
            assert any("orders-1: its folder is missing" in reason for reason in reasons)
            assert len(reasons) == (1 if "/" in removed else 2)
            assert broker.partition("orders", 0).log_end_offset == RECORDS
        async with running(tmp_path) as broker:
            assert health_of(broker)["streams"]["reasons"] == []
            assert broker.partition("orders", 1).log_end_offset == RECORDS + 1

    asyncio.run(scenario())


def test_deleted_topics_are_not_missed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            for _ in range(3):
                await broker.create_topic("orders", partitions=2)
                await broker.partition("orders", 0).append(batch_of(b"a"), acks=-1)
                await broker.delete_topic("orders")
        assert manifest.read(tmp_path) == {}
        async with running(tmp_path) as broker:
            await broker.create_topic("orders", partitions=2)
            assert broker.partition("orders", 0).log_end_offset == 0
            assert health_of(broker)["streams"]["reasons"] == []

    asyncio.run(scenario())


def test_a_replica_without_its_folder_is_not_in_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        store, clock = Store(), VirtualClock()
        topic = Topic("copied", uuid4(), (PartitionInfo(0, 1, (1, 2), (1, 2), 0),), {}, parse({}))
        async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
            store.put("topics/copied", encode_topic(topic))
            await until_known(broker, "copied")
        store.put("topics/orders", None)
        store.put(state_key(topic.topic_id, 0), None)
        shutil.rmtree(tmp_path / STREAMS / "copied")
        async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
            assert broker.partition("copied", 0).log_end_offset == 0
            found = decode_state(0, store.entries[state_key(topic.topic_id, 0)].value)
            assert 1 not in found.isr
            assert found.leader != 1
            assert any("it is copied again" in reason for reason in health_of(broker)["streams"]["reasons"])

    asyncio.run(scenario())


def test_a_damaged_manifest_is_known_as_such(tmp_path: Path) -> None:
    ends = {PartitionKey(str(UUID(int=1)), 0): 7, PartitionKey(str(UUID(int=1)), 12): 0}
    data = encode(ends)
    assert decode(data) == ends
    assert all(decode(data[:cut]) is None for cut in range(len(data) - 1))
    (tmp_path / manifest.FILE).write_bytes(data[:20])
    assert manifest.read(tmp_path) == {}
