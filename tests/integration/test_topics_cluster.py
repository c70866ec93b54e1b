"""BrokerService in a cluster: any broker serves every partition and every group, and clients outlive a broker."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from secrets import token_bytes
from typing import Any
from uuid import uuid4

import grpc
import pytest
from tests.support.etcd import running_etcd
from tests.support.waiting import eventually

from tidemill import Consumer, TopicProducer
from tidemill.client.topics import AsyncConsumer, AsyncTopicProducer, TopicRecord
from tidemill.cluster.core.image import NO_BROKER
from tidemill.security.core.peer_token import PeerCall, PeerClaims
from tidemill.security.core.principal import ANONYMOUS
from tidemill.security.peers import PeerTokens
from tidemill.servers.grpc.login import PEER_KEY
from tidemill.testing import Broker
from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated

TTL_MS = 2_000
PATIENCE_S = 60.0
SECRET = "a secret of the cluster"


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[int, Broker]]:
    with ExitStack() as stack:
        coordination = stack.enter_context(running_etcd()).new_folder()
        flags = {
            "coordination": coordination,
            "session-ttl-ms": str(TTL_MS),
            "timelines": "memory:",
            "http": "none",
            "cluster-secret": SECRET,
        }
        started = {
            number: stack.enter_context(Broker(process=True, flags={**flags, "node-id": str(number)}))
            for number in (1, 2, 3)
        }
        yield started


def topic_on(broker: Broker, partitions: int, copies: int) -> str:
    name = f"t-{uuid4().hex[:8]}"
    with grpc.insecure_channel(broker.grpc) as channel:
        request = wire.CreateTopicRequest(name=name, partitions=partitions, replication_factor=copies)
        generated.BrokerServiceStub(channel).CreateTopic(request)
    return name


def leaders(broker: Broker, topic: str) -> list[int]:
    with grpc.insecure_channel(broker.grpc) as channel:
        reported = generated.BrokerServiceStub(channel).GetMetadata(wire.GetMetadataRequest(topics=[topic])).topics
    return [one.leader for topic_ in reported for one in topic_.partitions]


def settled(brokers: dict[int, Broker], topic: str, partitions: int) -> None:
    """Every broker knows the topic."""
    eventually(lambda: all(len(leaders(one, topic)) == partitions for one in brokers.values()))


def test_any_broker_serves_partitions_that_others_lead(brokers: dict[int, Broker]) -> None:
    topic = topic_on(brokers[1], 6, 1)
    settled(brokers, topic, 6)
    assert set(leaders(brokers[2], topic)) == {1, 2, 3}
    with grpc.insecure_channel(brokers[2].grpc) as channel:
        stub = generated.BrokerServiceStub(channel)
        batches = [wire.Batch(partition=at, records=[wire.Record(value=b"%d" % at)]) for at in range(6)]
        outcomes = stub.Produce(wire.ProduceRequest(topic=topic, batches=batches)).outcomes
        assert [(one.partition, one.base_offset, one.error) for one in outcomes] == [(at, 0, "") for at in range(6)]
        read = [stub.Consume(wire.ConsumeRequest(topic=topic, partition=at)).records[0].value for at in range(6)]
        assert read == [b"%d" % at for at in range(6)]
        status = stub.Replicate(wire.ReplicateRequest(topics=[topic])).partitions
        assert [one.log_end_offset for one in status] == [1] * 6
        elsewhere = wire.ConsumeRequest(topic=topic, partition=leaders(brokers[2], topic).index(1))
        assert stub.Consume(elsewhere).records
        with pytest.raises(grpc.RpcError) as refused:  # forwarded once, never twice
            stub.Consume(elsewhere, metadata=(forwarded_to(2, "Consume", elsewhere),))
        assert dict(refused.value.trailing_metadata())["tidemill-error"] == "NotLeaderOrFollower"


def test_only_a_broker_of_the_cluster_can_forward_a_call(brokers: dict[int, Broker]) -> None:
    request = wire.ListTopicsRequest()
    token = forwarded_to(2, "ListTopics", request)
    forged = [
        (PEER_KEY, "1"),
        (PEER_KEY, token[1][:-2]),
        forwarded_to(1, "ListTopics", request),
        forwarded_to(2, "GetMetadata", request),
        forwarded_to(2, "ListTopics", wire.GetMetadataRequest(topics=["other"])),
        forwarded_to(2, "ListTopics", request, secret=b"guessed"),
    ]
    with grpc.insecure_channel(brokers[2].grpc) as channel:
        stub = generated.BrokerServiceStub(channel)
        for each in forged:
            with pytest.raises(grpc.RpcError) as refused:
                stub.ListTopics(request, metadata=(each,))
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        stub.ListTopics(request, metadata=(token,))
        with pytest.raises(grpc.RpcError, match="used before"):
            stub.ListTopics(request, metadata=(token,))


def forwarded_to(receiver: int, method: str, request: Any, secret: bytes = SECRET.encode()) -> tuple[str, str]:
    """The metadata of a call that broker 1 forwards."""
    tokens = PeerTokens(1, lambda: secret, token_bytes=token_bytes, clock_ms=lambda: time.time_ns() // 1_000_000)
    call = PeerCall(f"/tidemill.broker.v1.BrokerService/{method}", receiver, request.SerializeToString())
    return PEER_KEY, tokens.sign(call, PeerClaims(1, ANONYMOUS, "127.0.0.1"))


def test_a_group_is_shared_through_different_brokers(brokers: dict[int, Broker]) -> None:
    topic = topic_on(brokers[1], 6, 1)
    settled(brokers, topic, 6)
    with TopicProducer(brokers[3].grpc, topic) as producer:
        for number in range(120):
            producer.send(b"%d" % number)
    with (
        Consumer(brokers[1].grpc, group=topic, topics=topic) as first,
        Consumer(brokers[2].grpc, group=topic, topics=topic) as second,
    ):
        ends = time.monotonic() + PATIENCE_S
        eventually(lambda: len(first.assignment) == len(second.assignment) == 3)
        found: list[TopicRecord] = []
        while len(found) < 120:
            assert time.monotonic() < ends
            found += [one for consumer in (first, second) if (one := consumer.next(20)) is not None]
    assert sorted(int(one.value or b"") for one in found) == list(range(120))


def test_partitions_have_their_turns_wherever_their_leaders_are(brokers: dict[int, Broker]) -> None:
    """The coordinator reads its own partitions faster than those of other brokers; all have many records."""
    each = 600
    topic = topic_on(brokers[1], 3, 1)
    settled(brokers, topic, 3)
    assert set(leaders(brokers[1], topic)) == {1, 2, 3}
    with TopicProducer(brokers[1].grpc, topic) as producer:
        for number in range(3 * each):
            producer.send(b"x", partition=number % 3)
    with Consumer(brokers[1].grpc, group=topic, topics=topic) as consumer:
        found = Counter(one.partition for _ in range(3 * each // 2) if (one := consumer.next(30_000)))
    assert len(found) == 3, found
    assert max(found.values()) < each, f"{found}: one was read to its end while others waited"


def test_a_partition_without_a_leader_delays_no_other(brokers: dict[int, Broker]) -> None:
    """Were it waited for before each of these answers, they would take minutes."""
    count = 50
    topic = topic_on(brokers[1], 3, 1)
    settled(brokers, topic, 3)
    gone = leaders(brokers[1], topic).index(3)
    others = [at for at in range(3) if at != gone]
    with (
        TopicProducer(brokers[1].grpc, topic, call_records=1, linger_ms=0) as producer,
        Consumer(brokers[1].grpc, group=topic, topics=topic, poll_records=1) as consumer,
    ):
        producer.send(b"x", partition=others[0])
        assert consumer.next(30_000) is not None
        brokers[3].kill()
        try:
            until_lost(brokers[1], topic, gone)
            for number in range(count):
                producer.send(b"x", partition=others[number % 2])
            producer.flush()
            ends = time.monotonic() + PATIENCE_S
            got = sum(consumer.next(round(1_000 * (ends - time.monotonic()))) is not None for _ in range(count))
        finally:
            brokers[3].restart()
    assert got == count


def until_lost(broker: Broker, topic: str, partition: int) -> None:
    eventually(lambda: leaders(broker, topic)[partition] == NO_BROKER)


async def test_clients_go_on_when_a_broker_is_killed(brokers: dict[int, Broker]) -> None:
    count = 2_000
    topic = topic_on(brokers[2], 3, 3)
    settled(brokers, topic, 3)
    addresses = [brokers[number].grpc for number in (1, 2, 3)]
    got: dict[bytes | None, list[int]] = defaultdict(list)

    async def read() -> None:
        async with AsyncConsumer(addresses, topic, topic) as consumer:
            async for record in consumer:
                got[record.key].append(int(record.value or b""))
                if sum(len(set(one)) for one in got.values()) == count:
                    return

    try:
        reading = asyncio.create_task(read())
        async with AsyncTopicProducer(addresses, topic, linger_ms=5) as producer:
            for number in range(count):
                await producer.send(b"%d" % number, b"%d" % (number % 7))
                if number == count // 2:
                    await asyncio.to_thread(brokers[1].kill)
        async with asyncio.timeout(PATIENCE_S):
            await reading
    finally:
        brokers[1].restart()
    for found in got.values():  # a consumer may see a record again, in the same order
        assert sorted(set(found)) == [one for at, one in enumerate(found) if one not in found[:at]]
    with Consumer(addresses, group=f"{topic}-again", topics=topic) as consumer:
        again = [consumer.next(30_000) for _ in range(count)]
        assert consumer.next(300) is None
    assert sorted(int(one.value or b"") for one in again if one) == list(range(count))
