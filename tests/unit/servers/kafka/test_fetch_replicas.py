"""Fetch as a replica over a real connection."""

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.kafka_server import RawClient, fetch_fields, running_kafka_server
from tests.unit.servers.kafka.replica_links import LIMITS, SECRET, batch, led, peer, wanted

from tidemill.model.errors import FencedLeaderEpoch, OffsetOutOfRange, UnknownTopicId
from tidemill.replication.peers import PeerLink
from tidemill.streams.partition.reader import PartitionReader


async def test_a_replica_reads_past_the_high_watermark_and_moves_it(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        server.broker.cluster_secret = SECRET
        topic_id, partition = await led(server)
        appending = asyncio.create_task(partition.leader.append(batch(b"v"), acks=-1))
        await asyncio.sleep(0)
        link = PeerLink(await peer(server), 1, LIMITS)
        (first,) = await link.fetch(wanted(topic_id, 0, -1))
        assert (first.error_code, first.high_watermark, len(first.records) > 60) == (0, 0, True)
        assert not appending.done()
        (second,) = await link.fetch(wanted(topic_id, 1, 3))
        assert (await appending).base_offset == 0
        assert (second.high_watermark, len(second.records)) == (1, 0)
        await _refusals(link, topic_id)
        link.close()


async def test_a_fetch_that_waits_for_much_is_answered_when_that_much_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the bytes were there before it came, and few have come since."""
    waits, watch = asyncio.Event(), PartitionReader.watch

    def watched(reader: PartitionReader, wake: Callable[[], None], *, replica: bool = False) -> Callable[[], None]:
        waits.set()
        return watch(reader, wake, replica=replica)

    monkeypatch.setattr(PartitionReader, "watch", watched)
    async with running_kafka_server(tmp_path) as server:
        server.broker.cluster_secret = SECRET
        topic_id, partition = await led(server)
        await partition.leader.append(batch(bytes(5_000)), acks=1)
        reader = await RawClient.connect(server)
        asked = fetch_fields(12, "t", {0: 0}, max_wait_ms=600_000, min_bytes=4_000)
        fetching = asyncio.create_task(reader.ask(1, 12, **asked))
        await asyncio.wait_for(waits.wait(), 10)
        await partition.leader.append(batch(b"few"), acks=1)
        link = PeerLink(await peer(server), 1, LIMITS)
        await link.fetch(wanted(topic_id, 2, 3))
        assert partition.high_watermark == 2
        (given,) = (await asyncio.wait_for(fetching, 10)).responses[0].partitions
        assert (given.high_watermark, len(given.records) > 5_000) == (2, True)
        link.close()
        reader.writer.close()


async def _refusals(link: PeerLink, topic_id: uuid.UUID) -> None:
    (older,) = await link.fetch(wanted(topic_id, 1, 3, epoch=2))
    assert older.error_code == FencedLeaderEpoch.code
    (other,) = await link.fetch(wanted(uuid.uuid4(), 1, 3))
    assert other.error_code == UnknownTopicId.code
    (longer,) = await link.fetch(wanted(topic_id, 9, 3))
    assert (longer.error_code, longer.diverging) == (0, (3, 1))
    (beyond,) = await link.fetch(wanted(topic_id, 9, -1))
    assert (beyond.error_code, beyond.log_start_offset) == (OffsetOutOfRange.code, 0)


async def test_a_waiting_replica_is_woken_by_a_write(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        server.broker.cluster_secret = SECRET
        topic_id, partition = await led(server)
        link = PeerLink(await peer(server), 1, LIMITS._replace(max_wait_ms=20_000))
        waiting = asyncio.create_task(link.fetch(wanted(topic_id, 0, -1)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await partition.leader.append(batch(b"v"), acks=1)
        async with asyncio.timeout(5):
            assert (await waiting)[0].records
        link.close()
