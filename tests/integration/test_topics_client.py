"""BrokerService and its clients against a real broker, next to clients of Kafka: both directions, groups, faults."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import confluent_kafka
import confluent_kafka.admin
import grpc
import pytest
from tests.support.waiting import eventually, eventually_async

from tidemill import Consumer, DeliveryFailed, TopicProducer
from tidemill.client.kafka.errors import BrokerUnreachable, ClientError, InvalidClientOption
from tidemill.client.topics import AsyncConsumer, AsyncTopicProducer, ConsumerClosed, ProducerClosed, TopicRecord
from tidemill.model.errors import (
    InvalidConfig,
    InvalidTopic,
    MessageTooLarge,
    TidemillError,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from tidemill.model.topics import TopicPartition
from tidemill.testing import Broker
from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated

SESSION_MS = 2_000
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"group.consumer.session.timeout.ms": str(SESSION_MS), "group.consumer.heartbeat.interval.ms": "500"}
    with Broker(settings=settings, flags={"timelines": "memory:"}) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:8]}"


@pytest.fixture
def stub(broker: Broker) -> Iterator[generated.BrokerServiceStub]:
    with grpc.insecure_channel(broker.grpc) as channel:
        yield generated.BrokerServiceStub(channel)


def read_all(broker: Broker, topic: str, count: int) -> list[confluent_kafka.Message]:
    """The records of a topic as a Kafka client reads them."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[confluent_kafka.Message] = []
    ends = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < ends:
        found += [one for one in consumer.consume(500, 0.2) if one.error() is None]
    consumer.close()
    return found


def take(consumer: Consumer, count: int) -> list[TopicRecord]:
    found: list[TopicRecord] = []
    while len(found) < count:
        record = consumer.next(int(PATIENCE_S * 1_000))
        assert record is not None, f"{len(found)} of {count} records came"
        found.append(record)
    return found


def committed(broker: Broker, group: str, topic: str, partitions: int) -> list[int]:
    admin = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    wanted = [confluent_kafka.TopicPartition(topic, at) for at in range(partitions)]
    found = [one.offset for one in admin.committed(wanted, timeout=10)]
    admin.close()
    return found


# -- producing ---------------------------------------------------------------------------------------------------------


def test_kafka_reads_what_was_sent_where_librdkafka_would_have_put_it(broker: Broker, topic: str) -> None:
    keys = [f"key-{number}".encode() for number in range(40)]
    with TopicProducer(broker.grpc, topic, partitions=5) as producer:
        sent = [producer.send(b"v" + key, key, headers={"h": b"1", "none": None}, timestamp_ms=1_234) for key in keys]
        sent.append(producer.send(None, b"tombstone"))
        places = [one.result(PATIENCE_S) for one in sent]
    read = {one.key(): one for one in read_all(broker, topic, len(sent))}
    for key, place in zip(keys, places, strict=False):
        record = read[key]
        assert (record.value(), record.headers()) == (b"v" + key, [("h", b"1"), ("none", None)])
        assert (record.partition(), record.offset()) == (place.partition, place.offset)
        assert record.timestamp()[1] == 1_234
    assert read[b"tombstone"].value() is None
    reported: list[confluent_kafka.Message] = []
    kafka = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "consistent"})
    for key in keys:
        kafka.produce(topic, key=key, value=b"", on_delivery=lambda _, message: reported.append(message))
    assert kafka.flush(PATIENCE_S) == 0
    assert {one.key(): one.partition() for one in reported} == {
        key: place.partition for key, place in zip(keys, places, strict=False)
    }


def test_keys_go_where_javas_clients_put_them_when_asked_to(broker: Broker, topic: str) -> None:
    keys = [f"key-{number}".encode() for number in range(40)]
    with TopicProducer(broker.grpc, topic, partitions=5, partitioner="murmur2_random") as producer:
        sent = [producer.send(b"", key=key) for key in keys]
        ours = [each.result(PATIENCE_S).partition for each in sent]
    theirs: dict[bytes, int] = {}
    kafka = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        kafka.produce(topic, b"", key=key, on_delivery=lambda _, got: theirs.update({got.key(): got.partition()}))
    assert kafka.flush(PATIENCE_S) == 0
    assert ours == [theirs[key] for key in keys]


async def test_a_flush_waits_for_what_was_sent_before_it_and_for_nothing_else(broker: Broker, topic: str) -> None:
    async with AsyncTopicProducer(broker.grpc, topic, linger_ms=50) as producer:
        stop = asyncio.Event()

        async def send_on() -> None:
            while not stop.is_set():
                await producer.send(b"more")
                await asyncio.sleep(0)

        others = asyncio.create_task(send_on())
        mine = await producer.send(b"mine")
        async with asyncio.timeout(PATIENCE_S):
            await producer.flush()
        assert mine.done()
        assert not others.done()
        stop.set()
        await others


def test_records_without_a_key_take_turns(broker: Broker, topic: str) -> None:
    with TopicProducer(broker.grpc, topic, partitions=4, linger_ms=5) as producer:
        sent = [producer.send(b"x") for _ in range(40)]
        counts: dict[int, int] = defaultdict(int)
        for one in sent:
            counts[one.result(PATIENCE_S).partition] += 1
    assert counts == {0: 10, 1: 10, 2: 10, 3: 10}


def test_undeliverable_messages_are_reported_and_the_rest_arrives(broker: Broker, topic: str) -> None:
    producer = TopicProducer(broker.grpc, topic, partitions=1)
    before = producer.send(b"before")
    large = producer.send(bytes(2_000_000))
    after = producer.send(b"after")
    with pytest.raises(DeliveryFailed, match=r"max\.message\.bytes"):
        producer.flush()
    assert isinstance(large.exception(), MessageTooLarge)
    assert (before.result().offset, after.result().offset) == (0, 1)
    producer.flush()  # reported once
    with pytest.raises(TypeError, match="the key must be bytes"):
        producer.send(b"", "text")  # type: ignore[arg-type]
    nowhere = producer.send(b"", partition=7)
    assert isinstance(nowhere.exception(PATIENCE_S), UnknownTopicOrPartition)
    with pytest.raises(DeliveryFailed, match=f"^{topic}: partition 7 does not exist"):
        producer.close()
    with pytest.raises(ProducerClosed):
        producer.send(b"")


def test_an_invalid_topic_is_reported_for_every_record(broker: Broker) -> None:
    with pytest.raises(InvalidTopic, match="'no/topic' is not a topic name"):
        TopicProducer(broker.grpc, "no/topic")
    producer = TopicProducer(broker.grpc, "no-topic", settings={"retention.hours": "1"})
    assert isinstance(producer.send(b"x").exception(PATIENCE_S), InvalidConfig)
    assert isinstance(producer.send(b"y").exception(PATIENCE_S), InvalidConfig)
    with pytest.raises(DeliveryFailed, match=r"retention\.hours.*and 1 more"):
        producer.close()


@pytest.mark.parametrize("limit", ["delivery_timeout_ms", "connect_timeout_ms"])
def test_no_server_there(limit: str) -> None:
    options: dict[str, Any] = {"connect_timeout_ms": 60_000, limit: 300}
    producer = TopicProducer("127.0.0.1:1", "t", **options)
    sent = producer.send(b"x")
    with pytest.raises(DeliveryFailed, match=r"no broker answers at 127\.0\.0\.1:1"):
        producer.flush()
    assert isinstance(sent.exception(), TidemillError)
    producer.close()


def test_an_unknown_consumer_is_reported(topic: str) -> None:
    with (
        Consumer("127.0.0.1:1,nowhere.invalid:2", group=topic, topics=topic, connect_timeout_ms=100) as consumer,
        pytest.raises(BrokerUnreachable, match=r"no broker answers at 127\.0\.0\.1:1, nowhere\.invalid:2"),
    ):
        consumer.next()
    with pytest.raises(InvalidClientOption, match="address: 'nowhere' is not host:port"):
        Consumer("nowhere", group=topic, topics=topic)


def test_another_address_takes_over(broker: Broker, topic: str) -> None:
    with TopicProducer(["127.0.0.1:1", broker.grpc], topic) as producer:
        assert producer.send(b"x").result(PATIENCE_S).offset == 0
    with Consumer(f"127.0.0.1:1, {broker.grpc}", group=topic, topics=topic) as consumer:
        assert take(consumer, 1)[0].value == b"x"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"acks": 2}, "acks=2"),
        ({"call_records": 0}, "call_records=0"),
        ({"partitions": -1}, "partitions"),
        ({"partitioner": "mine"}, "partitioner='mine' is invalid; use one of consistent_random, murmur2_random"),
    ],
)
def test_options_that_cannot_be(broker: Broker, options: dict[str, Any], line: str) -> None:
    with pytest.raises(ClientError, match=line):
        TopicProducer(broker.grpc, "t", **options)


async def test_a_broker_that_is_killed_stores_every_record_once_in_order(topic: str) -> None:
    count = 3_000
    with Broker(process=True) as broker:
        async with AsyncTopicProducer(broker.grpc, topic, partitions=2, linger_ms=5) as producer:
            for number in range(count):
                await producer.send(str(number).encode(), str(number % 7).encode())
                if number == 0:
                    await producer.flush()  # an address that has answered is waited for, however long a start takes
                if number == count // 2:
                    await asyncio.to_thread(broker.kill)
                    await asyncio.to_thread(broker.restart)
        by_key: dict[bytes | None, list[int]] = defaultdict(list)
        for record in read_all(broker, topic, count):
            by_key[record.key()].append(int(record.value() or b""))
        assert sum(map(len, by_key.values())) == count
        assert all(found == sorted(set(found)) for found in by_key.values())


# -- consuming ---------------------------------------------------------------------------------------------------------


def test_a_consumer_reads_what_kafka_committed(broker: Broker, topic: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4", "transactional.id": topic}
    kafka = confluent_kafka.Producer(settings)
    kafka.init_transactions()
    for outcome in ("kept", "aborted", "kept", "aborted", "kept"):
        kafka.begin_transaction()
        for number in range(20):
            kafka.produce(topic, key=str(number), value=outcome, headers=[("n", str(number).encode())])
        kafka.flush()
        kafka.commit_transaction() if outcome == "kept" else kafka.abort_transaction()
    with Consumer(broker.grpc, group=topic, topics=[topic]) as consumer:
        records = take(consumer, 60)
        assert consumer.next(300) is None
    assert {record.value for record in records} == {b"kept"}
    assert sorted(int(record.key or b"") for record in records) == sorted([*range(20)] * 3)
    assert all(record.headers == (("n", record.key),) for record in records)
    assert min(record.timestamp_ms for record in records) > 1_600_000_000_000


def test_two_members_share_a_group_that_kafkas_tools_see_and_one_takes_over(broker: Broker, topic: str) -> None:
    with TopicProducer(broker.grpc, topic, partitions=4) as producer:
        for number in range(200):
            producer.send(str(number).encode())
    first = Consumer(broker.grpc, group=topic, topics=[topic], client_id="one")
    with Consumer(broker.grpc, group=topic, topics=[topic], client_id="two") as second:
        eventually(lambda: len(first.assignment) == len(second.assignment) == 2)
        assert not set(first.assignment) & set(second.assignment)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})

        def seen() -> list[str]:
            members = admin.describe_consumer_groups([topic])[topic].result(PATIENCE_S).members
            return sorted(member.client_id for member in members)

        # librdkafka may describe a classic group before it knows the APIs of the broker. The response is "dead" then.
        eventually(lambda: seen() == ["one", "two"])
        here = take(first, 100)
        first.close()
        there = take(second, 100)
        eventually(lambda: len(second.assignment) == 4)
    assert sorted(int(record.value or b"") for record in here + there) == list(range(200))
    assert sum(committed(broker, topic, topic, 4)) == 200


def test_a_group_continues_at_its_committed_offset(broker: Broker, topic: str) -> None:
    with TopicProducer(broker.grpc, topic, partitions=1) as producer:
        for number in range(10):
            producer.send(str(number).encode())
    with Consumer(broker.grpc, group=topic, topics=[topic]) as consumer:
        assert [record.offset for record in take(consumer, 4)] == [0, 1, 2, 3]
        consumer.commit()
        assert committed(broker, topic, topic, 1) == [4]
    with Consumer(broker.grpc, group=topic, topics=[topic]) as consumer:
        assert take(consumer, 2)[-1].offset == 5
        consumer.__exit__(RuntimeError, RuntimeError("the handler failed: record 5 is not handled"), None)
    with Consumer(broker.grpc, group=topic, topics=[topic], commit_records=2, commit_interval_ms=60_000) as consumer:
        assert [record.offset for record in take(consumer, 3)] == [5, 6, 7]
        eventually(lambda: committed(broker, topic, topic, 1) == [7])
    assert committed(broker, topic, topic, 1) == [8]


async def test_a_commit_that_is_under_way_when_the_consumer_closes_is_not_lost(broker: Broker, topic: str) -> None:
    with TopicProducer(broker.grpc, topic, partitions=1) as producer:
        for number in range(30):
            producer.send(str(number).encode())

    consumer = AsyncConsumer(broker.grpc, topic, topic, commit_records=10, commit_interval_ms=60_000)
    call, begun = consumer._brokers.call, asyncio.Event()

    async def slow(method: str, request: object, **how: int) -> object:
        if method == "Commit" and not begun.is_set():
            begun.set()
            await asyncio.sleep(PATIENCE_S)
        return await call(method, request, **how)

    with patch.object(consumer._brokers, "call", slow):
        for _ in range(11):
            await consumer.next()
        await begun.wait()
        await consumer.close(handled=False)
    assert committed(broker, topic, topic, 1) == [10]


async def test_a_consumer_that_closes_during_a_rebalance_commits_under_the_new_epoch(
    broker: Broker, topic: str
) -> None:
    with TopicProducer(broker.grpc, topic, partitions=2) as producer:
        for number in range(20):
            producer.send(str(number).encode())

    first = AsyncConsumer(broker.grpc, topic, topic, commit_interval_ms=60_000)
    second = AsyncConsumer(broker.grpc, topic, topic, auto_commit=False)
    call_at, leaving, unheard = first._brokers.call_at, asyncio.Event(), asyncio.Event()

    async def cut(where: str, method: str, request: Any, **how: int) -> Any:
        reply = await call_at(where, method, request, **how)
        is_new = method == "Poll" and reply.member_epoch != request.member_epoch
        if is_new and leaving.is_set() and not unheard.is_set():
            unheard.set()
            await asyncio.sleep(PATIENCE_S)  # the answer does not come before the consumer closes
        return reply

    # Every poll goes through `cut`: one that is in progress when the second consumer leaves may have the new epoch.
    with patch.object(first._brokers, "call_at", cut):
        async with asyncio.timeout(PATIENCE_S):
            await eventually_async(lambda: len(first.assignment) == len(second.assignment) == 1)
            for _ in range(10):
                await first.next()
        leaving.set()
        await second.close()  # the first one gets both partitions, under another epoch
        async with asyncio.timeout(PATIENCE_S):
            await unheard.wait()
        await first.close()
    assert sorted(committed(broker, topic, topic, 2)) == [-1001, 10]


def test_reset_decides_the_position_at_the_end_and_after_deleted_records(
    broker: Broker, topic: str, stub: generated.BrokerServiceStub
) -> None:
    with TopicProducer(broker.grpc, topic, partitions=1) as producer:
        producer.send(b"old").result(PATIENCE_S)
        with Consumer(broker.grpc, group=topic, topics=[topic], reset="latest") as consumer:
            eventually(lambda: consumer.assignment == [TopicPartition(topic, 0)])
            eventually(lambda: consumer._async._progress.positions() == {TopicPartition(topic, 0): 1})
            producer.send(b"new").result(PATIENCE_S)
            assert take(consumer, 1)[0].value == b"new"
        for _ in range(3):
            producer.send(b"later").result(PATIENCE_S)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 4)])[
        confluent_kafka.TopicPartition(topic, 0, 4)
    ].result(PATIENCE_S)
    with Consumer(broker.grpc, group=topic, topics=[topic]) as consumer:
        assert take(consumer, 1)[0].offset == 4


WORKER = """
import sys
from tidemill import Consumer
consumer = Consumer(sys.argv[1], group=sys.argv[2], topics=[sys.argv[2]], commit_interval_ms=100)
for count, record in enumerate(consumer, 1):
    if count == 11:
        print(record.offset, flush=True)
        sys.stdin.read()
"""


def test_the_records_of_a_killed_consumer_come_again(broker: Broker, topic: str) -> None:
    with TopicProducer(broker.grpc, topic, partitions=1) as producer:
        for number in range(20):
            producer.send(str(number).encode())
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, broker.grpc, topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "10\n"
        eventually(lambda: committed(broker, topic, topic, 1) == [10])
        os.kill(worker.pid, signal.SIGKILL)
    with Consumer(broker.grpc, group=topic, topics=[topic]) as consumer:
        assert [record.offset for record in take(consumer, 10)] == list(range(10, 20))


async def test_a_member_that_was_silent_for_too_long_is_fenced(broker: Broker, topic: str) -> None:
    with TopicProducer(broker.grpc, topic, partitions=1) as producer:
        for number in range(20):
            producer.send(str(number).encode())

    def others() -> None:
        with Consumer(broker.grpc, group=topic, topics=[topic]) as consumer:
            take(consumer, 20)

    async with AsyncConsumer(broker.grpc, topic, [topic], auto_commit=False) as stale:
        for _ in range(5):
            assert await stale.next(30_000) is not None
        thread = threading.Thread(target=others)
        thread.start()
        thread.join()  # the loop stands still: no sign of life
        with pytest.raises(UnknownMemberId):
            await stale.commit()
        assert stale.take() is None  # what it had in its buffer is others' by now
        assert committed(broker, topic, topic, 1) == [20]
        await asyncio.to_thread(eventually, lambda: bool(stale.assignment))
        assert stale.assignment == [TopicPartition(topic, 0)]
        assert await stale.next(200) is None


def test_a_member_that_hangs_over_a_record_leaves_until_it_asks_for_the_next(broker: Broker, topic: str) -> None:
    with TopicProducer(broker.grpc, topic, partitions=1) as producer:
        for number in range(3):
            producer.send(str(number).encode())
    settings: dict[str, Any] = {"group": topic, "topics": [topic], "poll_interval_ms": 50}
    with Consumer(broker.grpc, max_handling_ms=200, **settings) as slow:
        assert take(slow, 1)[0].offset == 0
        with Consumer(broker.grpc, **settings) as other:
            assert [record.offset for record in take(other, 2)] == [0, 1]
            with pytest.raises(UnknownMemberId):
                slow.commit()
        assert take(slow, 1)[0].offset == 2
    assert committed(broker, topic, topic, 1) == [3]


async def test_asyncio_clients_that_are_closed_say_so(broker: Broker, topic: str) -> None:
    async with AsyncTopicProducer(broker.grpc, topic) as producer:
        await producer.send(b"x")
    with pytest.raises(ProducerClosed):
        await producer.send(b"y")
    async with AsyncConsumer(broker.grpc, topic, topic) as consumer:
        assert await consumer.next(timeout_ms=round(PATIENCE_S * 1_000)) is not None
    assert await consumer.next() is None
    with pytest.raises(ConsumerClosed):
        await consumer.commit()


def test_a_consumer_that_cannot_be(broker: Broker) -> None:
    for arguments, line in (
        ({"group": "", "topics": ["t"]}, "needs a group"),
        ({"group": "g", "topics": []}, "needs topics"),
        ({"group": "g", "topics": "t", "reset": "middle"}, "reset='middle'"),
        ({"group": "g", "topics": "t", "poll_records": 0}, "poll_records=0"),
    ):
        with pytest.raises(ClientError, match=line):
            Consumer(broker.grpc, **arguments)
    with pytest.raises(InvalidTopic, match="'two words' is not a topic name"):
        Consumer(broker.grpc, "g", "two words")


def test_a_topic_that_is_not_there_is_waited_for_and_named_once(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        patch("tidemill.client.topics.consumer.MISSING_FIRST_S", 0.05),
        patch("tidemill.client.topics.consumer.MISSING_S", 0.05),
        Consumer(broker.grpc, topic, [topic], poll_interval_ms=50) as consumer,
    ):
        assert consumer.next(timeout_ms=500) is None
        warned = [one.getMessage() for one in caplog.records if one.name == "tidemill.consumer"]
        assert warned == [f"topic_missing: waiting for {topic}; create it with: tidemill topic create {topic}"]
        with TopicProducer(broker.grpc, topic) as producer:
            producer.send(b"here")
        assert [record.value for record in take(consumer, 1)] == [b"here"]


# -- the calls themselves ----------------------------------------------------------------------------------------------


def test_topics_and_metadata(broker: Broker, topic: str, stub: generated.BrokerServiceStub) -> None:
    made = stub.CreateTopic(wire.CreateTopicRequest(name=topic, partitions=2, settings={"retention.ms": "60000"}))
    assert (len(made.partitions), dict(made.settings)) == (2, {"retention.ms": "60000"})
    assert topic in {one.name for one in stub.ListTopics(wire.ListTopicsRequest()).topics}
    reported = stub.GetMetadata(wire.GetMetadataRequest(topics=[topic, "not-there"]))
    assert [one.name for one in reported.topics] == [topic]
    assert [(one.node_id, one.address) for one in reported.brokers] == [(0, broker.grpc)]
    assert [one.leader for one in reported.topics[0].partitions] == [0, 0]
    stub.DeleteTopic(wire.DeleteTopicRequest(name=topic))
    assert topic not in {one.name for one in stub.ListTopics(wire.ListTopicsRequest()).topics}


def test_consume_and_replicate(broker: Broker, topic: str, stub: generated.BrokerServiceStub) -> None:
    with TopicProducer(broker.grpc, topic, partitions=1, linger_ms=1) as producer:
        for number in range(30):
            producer.send(str(number).encode()).result(PATIENCE_S)
    part = stub.Consume(wire.ConsumeRequest(topic=topic, offset=-2, max_records=10))
    assert [record.value for record in part.records] == [str(number).encode() for number in range(10)]
    assert (part.next_offset, part.high_watermark, part.log_start_offset) == (10, 30, 0)
    end = stub.Consume(wire.ConsumeRequest(topic=topic, offset=-1))
    assert (list(end.records), end.next_offset) == ([], 30)
    (status,) = stub.Replicate(wire.ReplicateRequest(topics=[topic])).partitions
    assert (status.high_watermark, status.log_end_offset, list(status.partition.in_sync)) == (30, 30, [0])


@pytest.mark.parametrize(
    ("method", "request_", "status", "name"),
    [
        ("CreateTopic", wire.CreateTopicRequest(name="a/b"), "INVALID_ARGUMENT", "InvalidTopic"),
        ("DeleteTopic", wire.DeleteTopicRequest(name="not-there"), "NOT_FOUND", "UnknownTopicOrPartition"),
        ("Consume", wire.ConsumeRequest(topic="not-there"), "NOT_FOUND", "UnknownTopicOrPartition"),
        ("Produce", wire.ProduceRequest(topic="__consumer_offsets"), "INVALID_ARGUMENT", "InvalidTopic"),
        ("Poll", wire.PollRequest(group="g", member_id="m", member_epoch=3), "ABORTED", "UnknownMemberId"),
        (
            "Commit",
            wire.CommitRequest(group="g", offsets=[wire.Position(topic="no")]),
            "NOT_FOUND",
            "UnknownTopicOrPartition",
        ),
        ("Unsubscribe", wire.UnsubscribeRequest(group="g", member_id="m"), "ABORTED", "UnknownMemberId"),
        ("Subscribe", wire.SubscribeRequest(group="", topics=["t"]), "INVALID_ARGUMENT", "InvalidGroupId"),
    ],
)
def test_refusals_have_a_status_and_a_name(
    stub: generated.BrokerServiceStub, method: str, request_: object, status: str, name: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        getattr(stub, method)(request_)
    assert refused.value.code().name == status
    assert dict(refused.value.trailing_metadata())["tidemill-error"] == name


def test_a_batch_that_is_sent_twice_is_stored_once(stub: generated.BrokerServiceStub, topic: str) -> None:
    stub.CreateTopic(wire.CreateTopicRequest(name=topic, partitions=1))
    who = stub.InitProducer(wire.InitProducerRequest())
    sequence = wire.Sequence(producer_id=who.producer_id, producer_epoch=who.producer_epoch, first=0)
    batch = wire.Batch(partition=0, records=[wire.Record(value=b"x")] * 3, sequence=sequence)
    request = wire.ProduceRequest(topic=topic, batches=[batch])
    first, again = stub.Produce(request), stub.Produce(request)
    assert [one.base_offset for one in (*first.outcomes, *again.outcomes)] == [0, 0]
    batch.sequence.first = 9
    (hole,) = stub.Produce(wire.ProduceRequest(topic=topic, batches=[batch])).outcomes
    assert hole.error == "OutOfOrderSequence"
    (empty,) = stub.Produce(wire.ProduceRequest(topic=topic, batches=[wire.Batch(partition=0)])).outcomes
    assert empty.error == "InvalidRecord"
    assert stub.Consume(wire.ConsumeRequest(topic=topic, offset=-1)).next_offset == 3
