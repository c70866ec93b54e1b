"""Bugs of other brokers, tested with the clients that found them."""

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient
from tests.support.group_members import WAIT_S, admin, create_topic, produce, quick_groups

from tidemill.testing import Broker

NOTE_BYTES_MAX = 4096
NOT_COMMITTED = -1001


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=quick_groups()) as broker:
        yield broker


@pytest.fixture(scope="module")
def operator(broker: Broker) -> AdminClient:
    return admin(broker.bootstrap_servers)


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W+", ".", request.node.name).strip(".")
    create_topic(broker.bootstrap_servers, name, 2)
    return name


@pytest.fixture
def member(broker: Broker, topic: str) -> Iterator[Consumer]:
    """Commits for a group that is called as the topic."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings)
    yield consumer
    consumer.close()


def kcat_group(broker: Broker, group: str, topic: str, count: int, *more: str) -> list[str]:
    """What kcat reads as the only member of a group."""
    words = ["kcat", "-b", broker.bootstrap_servers, "-q", "-c", str(count), "-f", "%p:%s\\n", *more]
    done = subprocess.run(
        [*words, "-G", group, topic],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_kcat_as_a_group_continues_at_its_offsets(broker: Broker, strategy: str) -> None:
    topic = f"kcat-{strategy}"
    create_topic(broker.bootstrap_servers, topic, 2)
    more = ["-X", f"partition.assignment.strategy={strategy}", "-X", "auto.offset.reset=earliest"]
    produce(broker.bootstrap_servers, topic, 2, 3)
    assert kcat_group(broker, topic, topic, 6, *more) == [f"{part}:{number}" for part in (0, 1) for number in range(3)]
    produce(broker.bootstrap_servers, topic, 2, 1)
    assert kcat_group(broker, topic, topic, 2, *more) == ["0:0", "1:0"]


def code_of(raised: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(raised.value.args[0].code())


def test_notes_of_commits_come_back_and_are_bounded(topic: str, member: Consumer) -> None:
    note = "n" * (NOTE_BYTES_MAX - 1)  # this client sends a C string with its end
    member.commit(offsets=[TopicPartition(topic, 0, 5, note)], asynchronous=False)
    with pytest.raises(KafkaException) as raised:
        member.commit(offsets=[TopicPartition(topic, 0, 9, note + "nn")], asynchronous=False)
    assert code_of(raised) == KafkaError.OFFSET_METADATA_TOO_LARGE
    (found,) = member.committed([TopicPartition(topic, 0)], WAIT_S)
    assert (found.offset, found.metadata) == (5, note)


def test_a_deleted_topic_takes_its_commits_along(operator: AdminClient, topic: str, member: Consumer) -> None:
    place = TopicPartition(topic, 0, 5)
    member.commit(offsets=[place], asynchronous=False)
    operator.delete_topics([topic])[topic].result(WAIT_S)
    with pytest.raises(KafkaException) as raised:
        member.commit(offsets=[place], asynchronous=False)
    assert code_of(raised) == KafkaError.UNKNOWN_TOPIC_OR_PART
    operator.create_topics([NewTopic(topic, 2)])[topic].result(WAIT_S)
    (found,) = member.committed([TopicPartition(topic, 0)], WAIT_S)
    assert found.offset == NOT_COMMITTED, "the new topic of that name has other records"
    member.commit(offsets=[place], asynchronous=False)
    assert member.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset == 5


def delivery(broker: Broker, topic: str, key: bytes | None, value: bytes) -> str | None:
    """The name of the error that a record gets."""
    reported: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "message.max.bytes": 2_000_000})
    producer.produce(topic, value, key, partition=0, on_delivery=lambda error, _: reported.append(error))
    assert producer.flush(WAIT_S) == 0
    (error,) = reported
    return None if error is None else str(error.name())


def alter(operator: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    operator.incremental_alter_configs([change])[change].result(WAIT_S)


def test_the_topics_own_limit_of_a_batch_counts(broker: Broker, operator: AdminClient, topic: str) -> None:
    small, large = b"x" * 900, b"x" * 1_500_000
    assert delivery(broker, topic, None, large) == "MSG_SIZE_TOO_LARGE"
    alter(operator, topic, "max.message.bytes", "1000")
    assert delivery(broker, topic, None, small) is None
    assert delivery(broker, topic, None, small + small) == "MSG_SIZE_TOO_LARGE"
    alter(operator, topic, "max.message.bytes", "2000000")
    assert delivery(broker, topic, None, large) is None


def test_a_topic_that_becomes_compacted_refuses_records_without_key(
    broker: Broker, operator: AdminClient, topic: str
) -> None:
    assert delivery(broker, topic, None, b"v") is None
    alter(operator, topic, "cleanup.policy", "compact")
    assert delivery(broker, topic, None, b"v") == "INVALID_RECORD"
    assert delivery(broker, topic, b"k", b"v") is None


@pytest.mark.parametrize(
    ("total", "code"),
    [(2, KafkaError.INVALID_PARTITIONS), (1, KafkaError.INVALID_PARTITIONS), (3, None)],
    ids=["same", "fewer", "more"],
)
def test_partitions_can_only_become_more(operator: AdminClient, topic: str, total: int, code: int | None) -> None:
    growing = operator.create_partitions([NewPartitions(topic, total)])[topic]
    if code is None:
        growing.result(WAIT_S)
    else:
        with pytest.raises(KafkaException) as raised:
            growing.result(WAIT_S)
        assert code_of(raised) == code
        assert "partition" in raised.value.args[0].str(), "the error has the reason"
    found = operator.list_topics(topic, WAIT_S).topics[topic]
    assert len(found.partitions) == max(total, 2)


def test_defaults_are_shown_as_defaults(operator: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = operator.describe_configs([resource])[resource].result(WAIT_S)
    wanted = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
    }
    assert {name: found[name].value for name in wanted} == wanted
    assert all(found[name].is_default for name in wanted)


def test_directories_are_listed_with_their_room(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, 1, 5)
    asker = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        (node,) = asker.describe_log_dirs()
    finally:
        asker.close()
    (found,) = node["log_dirs"]
    assert found["log_dir"] == str(broker.data_dir / "streams")
    assert 0 < found["usable_bytes"] <= found["total_bytes"]
    (reported,) = [each for each in found["topics"] if each["name"] == topic]
    sizes = {part["partition_index"]: part["partition_size"] for part in reported["partitions"]}
    on_disk = sum(path.stat().st_size for path in (broker.data_dir / "streams" / topic / "0").glob("*.log"))
    assert sizes == {0: on_disk, 1: 0}
