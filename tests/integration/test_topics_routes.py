"""Calls that belong to another broker are handed to it, once."""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import grpc
import pytest

from tidemill import Consumer, TopicProducer
from tidemill.broker.broker import Broker as Node
from tidemill.cluster.core.image import Topic
from tidemill.doors.grpc.routes import FORWARDED_KEY, Peer
from tidemill.doors.grpc.server import GrpcDoor
from tidemill.testing import Broker
from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated

TOPIC = "shared"
ELSEWHERE = 1


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    """Two brokers; the first believes that the second leads every other partition."""
    peers: dict[int, Peer] = {}
    find = Node.topic

    def topic(node: Node, name: str) -> Topic | None:
        known = find(node, name)
        if known is None or not peers:
            return known
        return replace(known, partitions=tuple(replace(one, leader=one.index % 2) for one in known.partitions))

    quiet = {"timelines": "memory:"}
    with (
        patch.object(GrpcDoor, "_peers", lambda _: peers),
        patch.object(Node, "topic", topic),
        Broker(flags=quiet) as here,
        Broker(flags={**quiet, "node-id": str(ELSEWHERE)}) as there,
    ):
        for one in (here, there):
            with grpc.insecure_channel(one.grpc) as channel:
                generated.BrokerServiceStub(channel).CreateTopic(wire.CreateTopicRequest(name=TOPIC, partitions=4))
        peers |= {0: Peer(0, here.grpc, ""), ELSEWHERE: Peer(ELSEWHERE, there.grpc, "")}
        yield here, there


def test_a_broker_serves_partitions_that_others_lead(brokers: tuple[Broker, Broker]) -> None:
    here, there = brokers
    with grpc.insecure_channel(here.grpc) as channel:
        stub = generated.BrokerServiceStub(channel)
        batches = [wire.Batch(partition=at, records=[wire.Record(value=b"%d" % at)]) for at in range(4)]
        outcomes = stub.Produce(wire.ProduceRequest(topic=TOPIC, batches=batches)).outcomes
        assert [(one.partition, one.base_offset, one.error) for one in outcomes] == [(at, 0, "") for at in range(4)]
        read = [stub.Consume(wire.ConsumeRequest(topic=TOPIC, partition=at)).records[0].value for at in range(4)]
        assert read == [b"0", b"1", b"2", b"3"]
        status = stub.Replicate(wire.ReplicateRequest(topics=[TOPIC])).partitions
        assert [one.log_end_offset for one in status] == [1, 1, 1, 1]
    with grpc.insecure_channel(there.grpc) as channel:
        unled = generated.BrokerServiceStub(channel).Consume(
            wire.ConsumeRequest(topic=TOPIC, partition=3), metadata=((FORWARDED_KEY, "1"),)
        )
        assert unled.next_offset == 1  # it is really there that the record was stored


def test_a_call_is_handed_on_once(brokers: tuple[Broker, Broker]) -> None:
    here, _ = brokers
    forwarded = ((FORWARDED_KEY, "1"),)
    with grpc.insecure_channel(here.grpc) as channel:
        stub = generated.BrokerServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Consume(wire.ConsumeRequest(topic=TOPIC, partition=1), metadata=forwarded)
        assert dict(refused.value.trailing_metadata())["tidemill-error"] == "NotLeaderOrFollower"
        batch = wire.Batch(partition=1, records=[wire.Record(value=b"x")])
        reply = stub.Produce(wire.ProduceRequest(topic=TOPIC, batches=[batch]), metadata=forwarded)
        assert reply.outcomes[0].error == "NotLeaderOrFollower"


def test_clients_reach_every_partition(brokers: tuple[Broker, Broker]) -> None:
    here, there = brokers
    with TopicProducer(here.grpc, TOPIC, linger_ms=5) as producer:
        sent = [producer.send(b"%d" % number).result(30).partition for number in range(8)]
    assert sorted(sent) == [0, 0, 1, 1, 2, 2, 3, 3]
    with Consumer(here.grpc, group="g", topics=TOPIC) as consumer:
        found = [consumer.next(30_000) for _ in range(8)]
    assert {(one.partition, one.offset) for one in found if one} == {
        (at, offset) for at in range(4) for offset in (0, 1)
    }
    there.stop()
    with grpc.insecure_channel(here.grpc) as channel:
        stub = generated.BrokerServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Consume(wire.ConsumeRequest(topic=TOPIC, partition=1))
        assert dict(refused.value.trailing_metadata())["tidemill-error"] == "LeaderNotAvailable"
        assert [one.log_end_offset for one in stub.Replicate(wire.ReplicateRequest(topics=[TOPIC])).partitions] == [
            2,
            -1,
            2,
            -1,
        ]
