"""Settings of topics and what they do to records that real clients write; topics that go while clients use them."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from tests.integration.parallel import WAIT_S
from tests.support.waiting import eventually

from tidemill.records.compression import Codec
from tidemill.records.header import read_header
from tidemill.testing import Broker

YEAR_2001_MS = 1_000_000_000_000
LINGERING: dict[str, Any] = {"compression.type": "gzip", "linger.ms": 50}
CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
    "producer": Codec.GZIP,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "tidemill.tend.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
        "auto.create.topics.enable": "false",
    }
    with Broker(process=True, settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def create(admin: AdminClient, name: str, settings: dict[str, str] | None = None, partitions: int = 1) -> None:
    admin.create_topics([NewTopic(name, partitions, 1, config=settings or {})])[name].result(WAIT_S)


def write(broker: Broker, topic: str, values: list[bytes], *, stamp_ms: int = 0, **settings: Any) -> None:
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})

    def answered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error.str())

    for value in values:
        producer.produce(topic, value, partition=0, timestamp=stamp_ms, on_delivery=answered)
    assert producer.flush(WAIT_S) == 0
    assert failures == []


def read(broker: Broker, topic: str) -> list[Any]:
    """All records of partition 0."""
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    )
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Any] = []
    try:
        while (message := reader.poll(WAIT_S)) is not None and message.error() is None:
            found.append(message)
    finally:
        reader.close()
    return found


def ends(broker: Broker, topic: str) -> tuple[int, int]:
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    try:
        first, end = reader.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
    finally:
        reader.close()
    return first, end


@pytest.mark.parametrize("name", CODECS)
def test_batches_are_kept_in_the_topics_codec(broker: Broker, admin: AdminClient, name: str) -> None:
    topic, values = f"codec-{name}", [b"hello %d " % number * 20 for number in range(50)]
    create(admin, topic, {"compression.type": name})
    write(broker, topic, values, **LINGERING)
    [log] = (broker.data_dir / "streams").glob(f"{topic}*/0/*.log")
    assert read_header(log.read_bytes()).codec == CODECS[name]
    assert [message.value() for message in read(broker, topic)] == values
    kafka_python = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=1_000 * WAIT_S)
    try:
        kafka_python.assign([KafkaPythonPartition(topic, 0)])
        kafka_python.seek_to_beginning()
        assert [next(kafka_python).value for _ in values] == values
    finally:
        kafka_python.close()
    command = ["kcat", "-b", broker.bootstrap_servers, "-C", "-t", topic, "-e", "-q", "-D", ""]
    assert subprocess.run(command, capture_output=True, check=True, timeout=WAIT_S).stdout == b"".join(values)


def test_the_broker_stamps_records_where_the_topic_says_so(broker: Broker, admin: AdminClient) -> None:
    create(admin, "stamped", {"message.timestamp.type": "LogAppendTime"})
    write(broker, "stamped", [b"v"], stamp_ms=YEAR_2001_MS)
    [message] = read(broker, "stamped")
    kind, stamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert stamp_ms > YEAR_2001_MS


@pytest.mark.parametrize(
    ("limit", "kept_max"), [({"retention.bytes": "4000"}, 6), ({"retention.ms": "1000"}, 1)], ids=["size", "time"]
)
def test_retention_deletes_records_beyond_the_size_and_the_time(
    broker: Broker, admin: AdminClient, limit: dict[str, str], kept_max: int, request: pytest.FixtureRequest
) -> None:
    topic = f"retained-{request.node.callspec.id}"
    create(admin, topic, {"segment.bytes": "2000", **limit})
    write(broker, topic, [b"x" * 1_000] * 20, **{"batch.num.messages": 1})
    eventually(lambda: ends(broker, topic)[0] >= 20 - kept_max)
    first, end = ends(broker, topic)
    assert end == 20
    assert [message.offset() for message in read(broker, topic)] == list(range(first, end))
    eventually(lambda: len(list((broker.data_dir / "streams").glob(f"{topic}*/0/*.log"))) <= kept_max)


@pytest.mark.parametrize(
    "settings",
    [
        {"retention.ms": "soon"},
        {"cleanup.policy": "shred"},
        {"compression.type": "rar"},
        {"segment.bytes": "-5"},
        {"message.timestamp.type": "Yesterday"},
        {"retention.sm": "1"},
    ],
)
def test_an_invalid_topic_setting_is_rejected(admin: AdminClient, settings: dict[str, str]) -> None:
    with pytest.raises(KafkaException) as refused:
        create(admin, "refused", settings)
    assert refused.value.args[0].name() == "INVALID_CONFIG"
    assert next(iter(settings)) in refused.value.args[0].str()
    assert "refused" not in admin.list_topics(timeout=WAIT_S).topics


@pytest.mark.parametrize(("partitions", "error"), [(100_000, "POLICY_VIOLATION"), (0, "INVALID_PARTITIONS")])
def test_counts_of_partitions_are_bounded(admin: AdminClient, partitions: int, error: str) -> None:
    with pytest.raises(KafkaException) as refused:
        create(admin, "huge", partitions=partitions)
    assert refused.value.args[0].name() == error


def test_no_topic_comes_by_itself_where_that_is_off(broker: Broker, admin: AdminClient) -> None:
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 2_000})
    producer.produce("never-created", b"v", on_delivery=lambda error, _: failures.append(error.name()))
    assert producer.flush(WAIT_S) == 0
    assert len(failures) == 1
    assert "never-created" not in admin.list_topics(timeout=WAIT_S).topics


def test_clients_continue_with_a_topic_that_was_created_again(broker: Broker, admin: AdminClient) -> None:
    """A producer and a group that know the old topic find the new one of that name by themselves."""
    create(admin, "renewed")
    stop, old, new = threading.Event(), threading.Event(), threading.Event()
    text = [b"old"]
    quick = {"bootstrap.servers": broker.bootstrap_servers, "topic.metadata.refresh.interval.ms": 300}

    def produce() -> None:
        producer = Producer({**quick, "message.timeout.ms": 5_000, "topic.metadata.propagation.max.ms": 100})
        while not stop.is_set():
            with suppress(KafkaException):  # the client may know that the topic is gone; it asks again by itself
                producer.produce("renewed", text[0])
            producer.poll(0.05)
        producer.flush(WAIT_S)

    def consume() -> None:
        reader = Consumer({**quick, "group.id": "renewed", "auto.offset.reset": "earliest"})
        reader.subscribe(["renewed"])
        while not stop.is_set():
            message = reader.poll(0.1)
            if message is not None and message.error() is None:
                (new if message.value() == b"new" else old).set()
        reader.close()

    threads = [threading.Thread(target=work) for work in (produce, consume)]
    for thread in threads:
        thread.start()
    try:
        eventually(old.is_set)
        admin.delete_topics(["renewed"])["renewed"].result(WAIT_S)
        text[0] = b"new"
        create(admin, "renewed")
        eventually(new.is_set)
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
