"""Folders of deleted topics: removed only after a recorded deletion."""

from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.broker_worlds import batch_of
from tests.support.shared_store import Store
from tests.unit.broker.small_disk import SmallDisk, member, put_topic, until_known

from tidemill.broker.topic_directories import STREAMS
from tidemill.cluster.core.image import PartitionInfo, Topic, encode_topic
from tidemill.cluster.core.tombstones import Tombstone, decode_tombstone, encode_tombstone, record_key
from tidemill.model.topic_settings import parse
from tidemill.testing.clock import VirtualClock


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
