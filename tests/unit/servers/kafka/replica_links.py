"""Connections between brokers, and a partition that the server leads."""

import uuid

from tidemill.client.kafka.peer_connection import PeerConnection
from tidemill.client.kafka.replica_fetch import PartWanted, ReplicaFetchLimits
from tidemill.records.build import NewRecord, build_batch
from tidemill.servers.kafka.listener import KafkaServer
from tidemill.streams.core.insync import Term
from tidemill.streams.leader_replication import Agreement
from tidemill.streams.partition import Partition

SECRET = b"of the cluster"
LIMITS = ReplicaFetchLimits(max_wait_ms=50, min_bytes=1, max_bytes=1 << 20)
TERM = Term(leader=0, epoch=3, version=0, replicas=(0, 1), isr=(0, 1))


async def _never(term: Term, isr: tuple[int, ...]) -> Term:
    return term._replace(version=term.version + 1, isr=isr)


async def peer(server: KafkaServer, secret: bytes = SECRET, node_id: int = 1) -> PeerConnection:
    host, port = server.address
    return await PeerConnection.open(host, port, secret=secret, node_id=node_id, client_id="broker-1")


async def led(server: KafkaServer) -> tuple[uuid.UUID, Partition]:
    topic = await server.broker.topics.create("t")
    partition = server.broker.view.partition("t", 0)
    await partition.leader.lead(TERM, Agreement(_never))
    return topic.topic_id, partition


def batch(value: bytes) -> bytearray:
    return build_batch([NewRecord(b"k", value, (), 1)])


def wanted(topic_id: uuid.UUID, offset: int, last_epoch: int, epoch: int = 3) -> list[PartWanted]:
    return [PartWanted(topic_id, 0, epoch, offset, last_epoch, 0, 1 << 20)]
