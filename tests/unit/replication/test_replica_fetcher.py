"""Fetchers of replicas: over a real connection, and with partitions that are added and removed."""

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.support.kafka_server import running_kafka_server
from tests.unit.servers.kafka.replica_links import LIMITS, SECRET, TERM, batch, led

from tidemill.client.kafka.replica_fetch import PartGiven, PartWanted
from tidemill.model.topic_settings import parse
from tidemill.replication.peers import PeerLink, Peers
from tidemill.replication.replica_fetcher import Copy, Fetcher, ReplicaFetchers
from tidemill.streams.memory import MemoryLogStore
from tidemill.streams.opener import opener
from tidemill.supervision.supervisor import Supervisor


async def test_a_fetcher_copies_over_a_real_connection_and_survives_its_loss(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path) as server:
        server.broker.cluster_secret = SECRET
        topic_id, leader = await led(server)
        follower = await opener(MemoryLogStore(), lambda: 1)("t", 0, parse({}), 0)
        await follower.follower.follow(TERM)
        peers = Peers(1, lambda _: server.address, lambda: SECRET, LIMITS)
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
