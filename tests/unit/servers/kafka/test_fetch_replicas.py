"""Brokers among themselves: the proof of the cluster's secret, and Fetch as a replica over a real connection."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.support.kafka_server import RawClient, fetch_fields, kafka_door

from tidemill.client.kafka.errors import AuthenticationFailed, BrokerUnreachable
from tidemill.client.kafka.peer_connection import PeerConnection
from tidemill.client.kafka.replica_fetch import PartGiven, PartWanted, ReplicaFetchLimits
from tidemill.model.errors import ClusterAuthorizationFailed, FencedLeaderEpoch, OffsetOutOfRange, UnknownTopicId
from tidemill.model.topic_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.replication.peers import PeerLink, Peers
from tidemill.replication.replica_fetcher import Copy, Fetcher, ReplicaFetchers
from tidemill.servers.kafka.listener import KafkaServer
from tidemill.streams.core.insync import Term
from tidemill.streams.leader_replication import Agreement
from tidemill.streams.memory import MemoryLogStore
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition
from tidemill.streams.partition.reader import PartitionReader
from tidemill.supervision.supervisor import Supervisor

SECRET = b"of the cluster"
LIMITS = ReplicaFetchLimits(max_wait_ms=50, min_bytes=1, max_bytes=1 << 20)
TERM = Term(leader=0, epoch=3, version=0, replicas=(0, 1), isr=(0, 1))


async def _never(term: Term, isr: tuple[int, ...]) -> Term:
    return term._replace(version=term.version + 1, isr=isr)


async def peer(door: KafkaServer, secret: bytes = SECRET, node_id: int = 1) -> PeerConnection:
    host, port = door.address
    return await PeerConnection.open(host, port, secret=secret, node_id=node_id, client_id="broker-1")


async def led(door: KafkaServer) -> tuple[uuid.UUID, Partition]:
    topic = await door.broker.topics.create("t")
    partition = door.broker.view.partition("t", 0)
    await partition.leader.lead(TERM, Agreement(_never))
    return topic.topic_id, partition


def batch(value: bytes) -> bytearray:
    return build_batch([NewRecord(b"k", value, (), 1)])


def wanted(topic_id: uuid.UUID, offset: int, last_epoch: int, epoch: int = 3) -> list[PartWanted]:
    return [PartWanted(topic_id, 0, epoch, offset, last_epoch, 0, 1 << 20)]


async def test_only_who_knows_the_secret_is_a_peer(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        with pytest.raises(AuthenticationFailed, match="belongs to no cluster"):
            await peer(door)
        door.broker.cluster_secret = SECRET
        with pytest.raises(AuthenticationFailed, match="another cluster secret"):
            await peer(door, b"of another")
        connection = await peer(door)
        connection.close()
        with pytest.raises(BrokerUnreachable):
            await Peers(1, lambda _: None, lambda: SECRET, LIMITS).link(0)


async def test_steps_out_of_order_and_wrong_proofs_are_refused(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        door.broker.cluster_secret = SECRET
        client = await RawClient.connect(door)
        assert (await client.ask(36, 2, auth_bytes=b"x")).error_code == 34
        assert (await client.ask(17, 1, mechanism="PLAIN")).error_code == 33
        for steps in ([b"short"], [b"\0\0\0\x01" + bytes(32), bytes(32)]):
            assert (await client.ask(17, 1, mechanism="TIDEMILL-CLUSTER")).error_code == 0
            codes = [(await client.ask(36, 2, auth_bytes=step)).error_code for step in steps]
            assert codes[-1] == 58
        answer = await client.ask(1, 12, **fetch_fields(12, "t", {0: 0}, replica_id=1))
        assert answer.error_code == ClusterAuthorizationFailed.code
        client.writer.close()


async def test_cve_2018_1288_nobody_fetches_as_another_replica(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        door.broker.cluster_secret = SECRET
        topic_id, partition = await led(door)
        await partition.leader.append(batch(b"v"), acks=1)
        link = PeerLink(await peer(door, node_id=1), 2, LIMITS)
        with pytest.raises(ClusterAuthorizationFailed):
            await link.fetch(wanted(topic_id, 1, 3))
        assert partition.high_watermark == 0
        link.close()


async def test_a_replica_reads_past_the_high_watermark_and_moves_it(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        door.broker.cluster_secret = SECRET
        topic_id, partition = await led(door)
        appending = asyncio.create_task(partition.leader.append(batch(b"v"), acks=-1))
        await asyncio.sleep(0)
        link = PeerLink(await peer(door), 1, LIMITS)
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
    async with kafka_door(tmp_path) as door:
        door.broker.cluster_secret = SECRET
        topic_id, partition = await led(door)
        await partition.leader.append(batch(bytes(5_000)), acks=1)
        reader = await RawClient.connect(door)
        asked = fetch_fields(12, "t", {0: 0}, max_wait_ms=600_000, min_bytes=4_000)
        fetching = asyncio.create_task(reader.ask(1, 12, **asked))
        await asyncio.wait_for(waits.wait(), 10)
        await partition.leader.append(batch(b"few"), acks=1)
        link = PeerLink(await peer(door), 1, LIMITS)
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
    async with kafka_door(tmp_path) as door:
        door.broker.cluster_secret = SECRET
        topic_id, partition = await led(door)
        link = PeerLink(await peer(door), 1, LIMITS._replace(max_wait_ms=20_000))
        waiting = asyncio.create_task(link.fetch(wanted(topic_id, 0, -1)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await partition.leader.append(batch(b"v"), acks=1)
        async with asyncio.timeout(5):
            assert (await waiting)[0].records
        link.close()


async def test_a_fetcher_copies_over_a_real_connection_and_survives_its_loss(tmp_path: Path) -> None:
    async with kafka_door(tmp_path) as door:
        door.broker.cluster_secret = SECRET
        topic_id, leader = await led(door)
        follower = await opener(MemoryLogStore(), lambda: 1)("t", 0, parse({}), 0)
        await follower.follower.follow(TERM)
        peers = Peers(1, lambda _: door.address, lambda: SECRET, LIMITS)
        links: list[PeerLink] = []

        async def connect(node_id: int) -> PeerLink:
            links.append(await peers.link(node_id))
            return links[-1]

        fetchers = ReplicaFetchers(connect)
        fetchers.follow(Copy(topic_id, follower), 0)
        async with asyncio.timeout(20):
            assert (await leader.leader.append(batch(b"one"), acks=-1)).base_offset == 0
            links[0].close()
            assert (await leader.leader.append(batch(b"two"), acks=-1)).base_offset == 1
        assert follower.log_end_offset == 2
        assert len(links) == 2
        await fetchers.close()
        await follower.close()


class _Quiet:
    """A leader that has nothing to give, ever."""

    def __init__(self, log: list[int]) -> None:
        self._log = log

    async def fetch(self, wanted: Sequence[PartWanted]) -> Sequence[PartGiven]:
        self._log.append(len(wanted))
        await asyncio.sleep(3600)
        return []

    def close(self) -> None:
        self._log.append(-1)


async def test_a_partition_that_comes_does_not_wait_for_a_quiet_one() -> None:
    log: list[int] = []

    async def connect(_: int) -> _Quiet:
        return _Quiet(log)

    fetcher = Fetcher(0, connect, 1024, Supervisor())
    for index in range(2):
        follower = await opener(MemoryLogStore(), lambda: 1)("t", index, parse({}), 0)
        await follower.follower.follow(TERM)
        fetcher.add(Copy(uuid.uuid4(), follower))
        await asyncio.sleep(0.05)
    assert log == [1, -1, 2]
    await fetcher.close()
