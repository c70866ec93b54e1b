"""Groups on two ClickHouse servers, each of them killed in turn: groups of the other one continue."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.clickhouse import Server, running

from tidemill.coordinator.journal import java_hash
from tidemill.testing import Broker

WAIT_S = 60.0
OFFSET_PARTITIONS = 4
SERVERS = 2
SETTINGS = {
    "offsets.topic.num.partitions": str(OFFSET_PARTITIONS),
    "tidemill.tend.interval.ms": "500",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Server], Broker]]:
    with running(tmp_path_factory.mktemp("clickhouse"), SERVERS) as servers:
        hosts = ",".join(server.name for server in servers)
        flags = {"streams": f"clickhouse://{hosts}/tidemill"}  # without ranges: the first fifty partitions are one's
        with Broker(process=True, flags=flags, settings=SETTINGS) as broker:
            yield servers, broker


def group_on(server: int) -> str:
    """A group whose coordinator's partition is on this server."""
    return next(
        name
        for name in (f"group-{number}" for number in range(1000))
        if (java_hash(name) & 0x7FFFFFFF) % OFFSET_PARTITIONS % SERVERS == server
    )


def read_and_commit(broker: Broker, group: str, topic: str, partition: int) -> tuple[bytes, int]:
    """Join the group, read one record, commit it, and ask for the committed offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None and message.partition() == partition:
                consumer.commit(message, asynchronous=False)
                found = consumer.committed([TopicPartition(topic, partition)], timeout=WAIT_S)
                return message.value(), found[0].offset
        raise AssertionError(f"{group} read nothing of {topic}-{partition} within {WAIT_S} s")
    finally:
        consumer.close()


def send(broker: Broker, topic: str, partition: int, value: bytes) -> None:
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    producer.produce(topic, value, partition=partition, on_delivery=lambda e, _: failed.append(e) if e else None)
    assert producer.flush(WAIT_S) == 0
    assert failed == []


@pytest.mark.parametrize("down", range(SERVERS), ids=["first server", "second server"])
def test_with_one_server_down_groups_on_the_other_join_read_and_commit(
    world: tuple[list[Server], Broker], down: int
) -> None:
    servers, broker = world
    topic, alive = f"spread-{down}", 1 - down
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = NewTopic(topic, SERVERS, 1, config={"tidemill.spread.servers": str(SERVERS)})
    admin.create_topics([wanted])[topic].result(WAIT_S)
    for partition in range(SERVERS):
        send(broker, topic, partition, b"before")
    assert read_and_commit(broker, group_on(alive), topic, alive) == (b"before", 1)
    servers[down].kill()
    try:
        send(broker, topic, alive, b"after")
        assert read_and_commit(broker, group_on(alive), topic, alive) == (b"after", 2)
    finally:
        servers[down].start()
    assert read_and_commit(broker, group_on(down), topic, down) == (b"before", 1)


def test_the_servers_of_a_topic_are_chosen_once(world: tuple[list[Server], Broker]) -> None:
    _, broker = world
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = NewTopic("too-wide", 2, 1, config={"tidemill.spread.servers": str(SERVERS + 1)})
    with pytest.raises(Exception, match="more than the 2 ClickHouse servers"):
        admin.create_topics([wanted])["too-wide"].result(WAIT_S)
    with Broker() as plain:
        admin = AdminClient({"bootstrap.servers": plain.bootstrap_servers})
        with pytest.raises(Exception, match="applies to topics on ClickHouse servers"):
            admin.create_topics([wanted])["too-wide"].result(WAIT_S)
