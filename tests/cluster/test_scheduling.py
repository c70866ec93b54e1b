"""Records for later in a cluster: stored once by whoever leads their partition when their time comes."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.cluster.brokers import WAIT_S, Brokers, eventually, running_brokers
from tests.integration.command_line import CommandLine
from tests.postgres import running_postgres

SCHEDULED = {"tidemill.schedule.enable": "true"}
RECORDS = 240
PARTITIONS = 3


def create(brokers: Brokers, name: str, copies: int, partitions: int = PARTITIONS) -> None:
    topic = NewTopic(name, partitions, replication_factor=copies, config=SCHEDULED)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([topic])[name].result(WAIT_S)


def send(brokers: Brokers, topic: str, due_ms: Callable[[int], int], count: int, partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True})
    errors: list[object] = []
    for number in range(count):
        producer.produce(
            topic,
            f"{number}",
            partition=number % partitions,
            headers={"tidemill-deliver-at": str(due_ms(number))},
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert not errors


def values(brokers: Brokers, topic: str, enough: int, partitions: int = PARTITIONS) -> list[tuple[str, int, int]]:
    """Value, due time and time stamp of every record, until there are enough and no more come."""
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[tuple[str, int, int]] = []
    ends = time.monotonic() + WAIT_S
    quiet = 0
    try:
        while time.monotonic() < ends and quiet < 5:
            record = consumer.poll(0.2)
            quiet = quiet + 1 if record is None and len(found) >= enough else 0
            if record is not None and record.error() is None:
                due_ms = int(dict(record.headers())["tidemill-deliver-at"])
                found.append((record.value().decode(), due_ms, record.timestamp()[1]))
    finally:
        consumer.close()
    return found


def leader(brokers: Brokers, topic: str, index: int = 0) -> int:
    metadata = AdminClient({"bootstrap.servers": brokers.bootstrap}).list_topics(topic, timeout=WAIT_S)
    return int(metadata.topics[topic].partitions[index].leader)


def test_every_record_comes_once_although_its_leader_and_its_holder_are_killed() -> None:
    with (
        running_postgres() as postgres,
        running_brokers(3, {"tidemill.tend.interval.ms": "200"}, timelines=postgres.new_database()) as brokers,
    ):
        create(brokers, "later", copies=3)
        start_ms = time.time_ns() // 1_000_000 + 3_000
        send(brokers, "later", lambda number: start_ms + number * 25, RECORDS)
        victim = leader(brokers, "later")
        eventually(lambda: time.time_ns() // 1_000_000 > start_ms + 1_000, "time passes")
        brokers.kill(victim)
        eventually(lambda: leader(brokers, "later") not in (victim, -1), "nobody leads")
        brokers.start(victim)
        found = values(brokers, "later", RECORDS)
        assert sorted(int(value) for value, _, _ in found) == list(range(RECORDS))
        assert all(stamp >= due_ms for _, due_ms, stamp in found), "a record came early"


def test_what_waits_on_one_disk_follows_its_partition_and_is_refused_where_the_partition_has_copies(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_brokers(2) as brokers:
        with pytest.raises(KafkaException, match="run timelines on PostgreSQL"):
            create(brokers, "copied", copies=2)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        admin.create_topics([NewTopic("plain", 1, replication_factor=2)])["plain"].result(WAIT_S)
        entry = ConfigEntry("tidemill.schedule.enable", "true", incremental_operation=AlterConfigOpType.SET)
        altered = ConfigResource(ResourceType.TOPIC, "plain", incremental_configs=[entry])
        with pytest.raises(KafkaException, match="run timelines on PostgreSQL"):
            admin.incremental_alter_configs([altered])[altered].result(WAIT_S)

        create(brokers, "alone", copies=1, partitions=1)
        holder = leader(brokers, "alone")
        due_ms = time.time_ns() // 1_000_000 + 4_000
        send(brokers, "alone", lambda number: due_ms + number, 50, partitions=1)
        CommandLine(brokers.bootstrap, capsys, monkeypatch).fine(
            "topic", "reassign", "alone", "--replicas", f"{3 - holder}"
        )
        eventually(lambda: leader(brokers, "alone") == 3 - holder, "it did not move")
        assert time.time_ns() // 1_000_000 < due_ms, "the machine is too slow for this test"
        found = values(brokers, "alone", 50, partitions=1)
        assert sorted(int(value) for value, _, _ in found) == list(range(50))
        assert all(stamp >= due for _, due, stamp in found)
