"""The Kafka server with common clients, in cases that `tests/compat` does not cover."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer

from tidemill.testing import Broker

LIMIT_S = 60
NUMBERS = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"log.segment.bytes": "1000000"}, flags={"grpc": "none", "http": "none"}) as started:
        yield started


@pytest.fixture(scope="module")
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"server-{next(NUMBERS)}"
    admin.create_topics([NewTopic(name, 2)])[name].result(LIMIT_S)
    return name


def produce(broker: Broker, topic: str, values: list[bytes], **settings: Any) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(LIMIT_S) == 0
    assert errors == [None] * len(values)


def consume(broker: Broker, topic: str, expected: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes] = []
    try:
        while len(values) < expected:
            found = consumer.poll(LIMIT_S)
            assert found is not None, f"only {len(values)} records came"
            assert found.error() is None
            values.append(found.value())
    finally:
        consumer.close()
    return values


def test_records_of_every_size_keep_their_order(broker: Broker, topic: str) -> None:
    values = [b"%d:" % number + b"x" * (number * 7919 % 60_000) for number in range(400)]
    produce(
        broker, topic, values, **{"linger.ms": 0, "max.in.flight.requests.per.connection": 50, "batch.size": 70_000}
    )
    assert consume(broker, topic, len(values)) == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acks(broker: Broker, topic: str, acks: str) -> None:
    values = [b"%d" % number for number in range(1000)]
    produce(broker, topic, values, **{"acks": acks, "batch.num.messages": 10})
    assert consume(broker, topic, len(values)) == values


def test_a_message_that_is_too_large_is_refused_and_the_next_is_not(broker: Broker, topic: str) -> None:
    failures: list[Any] = []
    settings = {"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 5_000_000, "log_level": 0}
    producer = Producer(settings)
    producer.produce(topic, b"x" * 2_000_000, partition=0, on_delivery=lambda error, _: failures.append(error.name()))
    assert producer.flush(LIMIT_S) == 0
    assert failures == ["MSG_SIZE_TOO_LARGE"]
    produce(broker, topic, [b"small"])
    assert consume(broker, topic, 1) == [b"small"]


def test_settings_by_the_admin_client(admin: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(LIMIT_S)
    assert found["segment.bytes"].value == "1000000"
    assert found["segment.bytes"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(LIMIT_S)
    assert admin.describe_configs([resource])[resource].result(LIMIT_S)["retention.ms"].value == "12345"
    wrong = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.sm", "1", incremental_operation=AlterConfigOpType.SET)],
    )
    with pytest.raises(KafkaException, match=r"retention\.ms"):
        admin.incremental_alter_configs([wrong])[wrong].result(LIMIT_S)
    node = ConfigResource(ResourceType.BROKER, "0")
    assert admin.describe_configs([node])[node].result(LIMIT_S)["num.partitions"].value == "1"


def test_offsets_partitions_and_records_by_the_admin_client(broker: Broker, admin: AdminClient, topic: str) -> None:
    produce(broker, topic, [b"v"] * 10, **{"batch.num.messages": 1})
    part = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        request = admin.list_offsets({part: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        return int(request[part].result(LIMIT_S).offset)

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (0, 10)
    assert offset(OffsetSpec.for_timestamp(1)) == 0
    assert 0 <= offset(OffsetSpec.max_timestamp()) < 10
    before = TopicPartition(topic, 0, 4)
    assert admin.delete_records([before])[before].result(LIMIT_S).low_watermark == 4
    assert offset(OffsetSpec.earliest()) == 4
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(LIMIT_S)
    assert len(admin.list_topics(topic, LIMIT_S).topics[topic].partitions) == 5
    admin.delete_topics([topic])[topic].result(LIMIT_S)
    assert topic not in admin.list_topics(timeout=LIMIT_S).topics


def test_the_cluster_by_the_admin_client(admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(LIMIT_S)
    assert [node.id for node in cluster.nodes] == [0]
    assert cluster.controller.id == 0
    assert cluster.cluster_id


def test_a_topic_is_created_by_its_first_use(broker: Broker) -> None:
    produce(broker, "made-by-use", [b"v"])
    assert consume(broker, "made-by-use", 1) == [b"v"]


def test_kafka_python_with_sessions_and_many_partitions(broker: Broker, admin: AdminClient) -> None:
    """kafka-python opens a fetch session, and its producer is idempotent."""
    name = "sessions"
    admin.create_topics([NewTopic(name, 12)])[name].result(LIMIT_S)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    consumer = KafkaConsumer(
        name,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=None,
        auto_offset_reset="earliest",
        consumer_timeout_ms=LIMIT_S * 1000,
    )
    seen: list[tuple[int, int]] = []
    try:
        for turn in range(5):
            for partition in range(12):
                producer.send(name, b"%d" % turn, partition=partition)
            producer.flush(LIMIT_S)
            for _ in range(12):
                record = next(consumer)
                seen.append((record.partition, int(record.value)))
    finally:
        consumer.close()
        producer.close()
    assert sorted(seen) == [(partition, turn) for partition in range(12) for turn in range(5)]


async def test_aiokafka_waits_for_later_records(broker: Broker, topic: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, fetch_max_wait_ms=60_000)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    values = []
    async with asyncio.timeout(LIMIT_S):
        await consumer.start()
        await producer.start()
        try:
            part = AioPartition(topic, 0)
            consumer.assign([part])
            await consumer.seek_to_beginning(part)
            for number in range(5):
                waiting = asyncio.create_task(consumer.getone())
                await asyncio.sleep(0.01)
                await producer.send_and_wait(topic, b"%d" % number, partition=0)
                values.append((await waiting).value)
        finally:
            await producer.stop()
            await consumer.stop()
    assert values == [b"0", b"1", b"2", b"3", b"4"]


def kcat(broker: Broker, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap_servers, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return done.stdout


def test_kcat(broker: Broker, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "1", "-K", ":", "-z", "gzip", text="a:1\nb:2\n")
    listed = json.loads(kcat(broker, "-L", "-J"))
    assert {"topic": topic} in [{"topic": each["topic"]} for each in listed["topics"]]
    assert kcat(broker, "-C", "-t", topic, "-p", "1", "-e", "-q", "-o", "beginning", "-f", "%k=%s;") == "a=1;b=2;"
    assert f"{topic} [1] offset 2" in kcat(broker, "-Q", "-t", f"{topic}:1:-1")
