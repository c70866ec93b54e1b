"""A partition folder that was removed while the broker was stopped."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.support.broker_worlds import batch_of, running
from tests.support.shared_store import Store
from tests.unit.broker.small_disk import SmallDisk, member, until_known

from tidemill.app.data_directory import DataDirectory
from tidemill.app.thread import NodeThread
from tidemill.broker import manifest
from tidemill.broker.manifest import Contents, PartitionKey, decode, encode
from tidemill.broker.topic_directories import STREAMS
from tidemill.cluster.core.image import PartitionInfo, Topic, decode_state, encode_topic, state_key
from tidemill.model.topic_settings import parse
from tidemill.servers.http.broker_summary import health_of
from tidemill.settings import load
from tidemill.streams.reservation import RESERVED_OFFSETS
from tidemill.testing.clock import VirtualClock

RECORDS = 5


@pytest.mark.parametrize("removed", ["orders/1", "orders"], ids=["the partition", "the topic"])
async def test_no_offset_is_given_out_again(tmp_path: Path, removed: str) -> None:
    async with running(tmp_path) as broker:
        await broker.topics.create("orders", partitions=2)
        for index in range(2):
            for _ in range(RECORDS):
                await broker.view.partition("orders", index).leader.append(batch_of(b"a"), acks=-1)
    shutil.rmtree(tmp_path / STREAMS / removed)
    async with running(tmp_path) as broker:
        assert (await broker.view.partition("orders", 1).leader.append(batch_of(b"b"), acks=-1)).base_offset == RECORDS
        reasons = health_of(broker)["streams"]["reasons"]
        assert any("orders-1: its folder is missing" in reason for reason in reasons)
        assert len(reasons) == (1 if "/" in removed else 2)
        assert broker.view.partition("orders", 0).log_end_offset == RECORDS
    async with running(tmp_path) as broker:
        assert health_of(broker)["streams"]["reasons"] == []
        assert broker.view.partition("orders", 1).log_end_offset == RECORDS + 1


def _segment(folder: Path) -> Path:
    (found,) = folder.glob("*.log")
    return found


def _remove_both(folder: Path) -> None:
    _segment(folder).unlink()
    (folder / "checkpoint").unlink()


REMOVALS: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "the folder": shutil.rmtree,
    "the segment": lambda folder: _segment(folder).unlink(),
    "the content of the segment": lambda folder: os.truncate(_segment(folder), 0),
    "the checkpoint": lambda folder: (folder / "checkpoint").unlink(),
    "the checkpoint and the segment": _remove_both,
}


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("removed", REMOVALS)
async def test_no_offset_is_given_out_again_after_a_crash(tmp_path: Path, removed: str, acks: int) -> None:
    """The files of a running broker are what a kill leaves; its recorded ends are older than its logs."""
    (tmp_path / "running").mkdir()
    async with running(tmp_path / "running") as broker:
        await broker.topics.create("orders", partitions=1)
        for _ in range(RECORDS):
            await broker.view.partition("orders", 0).leader.append(batch_of(b"a"), acks=acks)
        shutil.copytree(tmp_path / "running", tmp_path / "killed")
    REMOVALS[removed](tmp_path / "killed" / STREAMS / "orders" / "0")
    async with running(tmp_path / "killed") as broker:
        reasons = health_of(broker)["streams"]["reasons"]
        offset = (await broker.view.partition("orders", 0).leader.append(batch_of(b"b"), acks=-1)).base_offset
        if removed == "nothing":
            assert offset == RECORDS, "a gap"
            assert reasons == []
        else:
            assert RECORDS < offset <= RESERVED_OFFSETS + RECORDS
            assert any("orders-0" in reason for reason in reasons)
    async with running(tmp_path / "killed") as broker:
        assert health_of(broker)["streams"]["reasons"] == []
        assert broker.view.partition("orders", 0).log_end_offset == offset + 1


async def test_offsets_are_reserved_in_few_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[Contents] = []
    real = manifest.write

    def write(data_dir: Path, contents: Contents) -> None:
        writes.append(contents)
        real(data_dir, contents)

    monkeypatch.setattr(manifest, "write", write)
    async with running(tmp_path) as broker:
        await broker.topics.create("orders", partitions=1)
        await broker.view.partition("orders", 0).leader.append(batch_of(b"a"), acks=1)
        writes.clear()
        for _ in range(1000):
            await broker.view.partition("orders", 0).leader.append(batch_of(b"a"), acks=1)
        assert writes == []


async def test_deleted_topics_are_not_missed(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        for _ in range(3):
            await broker.topics.create("orders", partitions=2)
            await broker.view.partition("orders", 0).leader.append(batch_of(b"a"), acks=-1)
            await broker.topics.delete("orders")
    assert manifest.read(tmp_path) == Contents({}, frozenset())
    async with running(tmp_path) as broker:
        await broker.topics.create("orders", partitions=2)
        assert broker.view.partition("orders", 0).log_end_offset == 0
        assert health_of(broker)["streams"]["reasons"] == []


async def test_a_replica_without_its_folder_is_not_in_sync(tmp_path: Path) -> None:
    store, clock = Store(), VirtualClock()
    topic = Topic("copied", uuid4(), (PartitionInfo(0, 1, (1, 2), (1, 2), 0),), {}, parse({}))
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        store.put("topics/copied", encode_topic(topic))
        await until_known(broker, "copied")
    store.put("topics/orders", None)
    store.put(state_key(topic.topic_id, 0), None)
    shutil.rmtree(tmp_path / STREAMS / "copied")
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        assert broker.view.partition("copied", 0).log_end_offset == 0
        found = decode_state(0, store.entries[state_key(topic.topic_id, 0)].value)
        assert 1 not in found.isr
        assert found.leader != 1
        assert any("they are copied from the leader" in reason for reason in health_of(broker)["streams"]["reasons"])


@pytest.mark.parametrize("how", ["removed", "a crash after it was noticed"])
async def test_a_replica_without_a_segment_is_not_in_sync(tmp_path: Path, how: str) -> None:
    store, clock = Store(), VirtualClock()
    topic = Topic("copied", uuid4(), (PartitionInfo(0, 1, (1, 2), (1, 2), 0),), {}, parse({}))
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        store.put("topics/copied", encode_topic(topic))
        await until_known(broker, "copied")
        await broker.view.partition("copied", 0).leader.append(batch_of(b"a"), acks=1)
    store.put("topics/orders", None)
    store.put(state_key(topic.topic_id, 0), None)
    if how == "removed":
        _segment(tmp_path / STREAMS / "copied" / "0").unlink()
    else:
        found = manifest.read(tmp_path)
        assert found is not None
        manifest.write(tmp_path, found._replace(lost=frozenset({PartitionKey(str(topic.topic_id), 0)})))
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        state = decode_state(0, store.entries[state_key(topic.topic_id, 0)].value)
        assert 1 not in state.isr
        assert state.leader != 1
        assert broker.view.partition("copied", 0).log_end_offset == (0 if how == "removed" else 1)
        given_up = manifest.read(tmp_path)
        assert given_up is not None
        assert given_up.lost == frozenset()


def test_a_missing_manifest_is_reported(tmp_path: Path) -> None:
    flags = {"data-dir": str(tmp_path), "kafka": "127.0.0.1:0", "grpc": "none", "http": "none", "timelines": "memory:"}

    def reasons() -> list[str]:
        running = NodeThread(load(flags))
        running.start()
        try:
            return list(health_of(running.node.broker)["streams"]["reasons"])
        finally:
            running.stop()

    assert reasons() == []
    (tmp_path / manifest.FILE).unlink()
    assert DataDirectory.lost_manifest(tmp_path)
    assert [reason.partition(":")[0] for reason in reasons()] == ["manifest.json is missing"]
    assert not DataDirectory.lost_manifest(tmp_path)
    assert reasons() == []


async def test_a_folder_is_set_aside_under_a_free_name(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        (tmp_path / "orphans" / "orders~1").mkdir(parents=True)
        for number in range(2):
            (tmp_path / STREAMS / "orders").mkdir()
            (tmp_path / STREAMS / "orders" / "topic-id").write_text(f"another topic {number}")
            await broker.topics.create("orders", partitions=1)
            await broker.topics.delete("orders")
    found = {each.name for each in (tmp_path / "orphans").iterdir()}
    assert found == {"orders~0", "orders~1", "orders~2"}


def test_a_damaged_manifest_is_known_as_such(tmp_path: Path) -> None:
    bounds = {PartitionKey(str(UUID(int=1)), 0): 7, PartitionKey(str(UUID(int=1)), 12): 0}
    contents = Contents(bounds, frozenset({PartitionKey(str(UUID(int=1)), 12)}))
    data = encode(contents)
    assert decode(data) == contents
    assert all(decode(data[:cut]) is None for cut in range(len(data) - 1))
    (tmp_path / manifest.FILE).write_bytes(data[:20])
    assert manifest.read(tmp_path) is None
