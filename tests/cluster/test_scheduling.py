"""Records for later in a cluster: stored once by whoever leads their partition when their time comes."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.brokers import WAIT_S, Brokers, eventually, running_brokers
from tests.integration.command_line import CommandLine
from tests.postgres import running_postgres

from tidemill.broker.journals import java_hash
from tidemill.model.topics import WAITING_RECORDS

SCHEDULED = {"tidemill.schedule.enable": "true"}
RECORDS = 240
PARTITIONS = 3
SEATS = 8


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


@contextmanager
def running(store: str) -> Iterator[Brokers]:
    """Three brokers whose timelines are in a database that all share, or on the disk of each."""
    settings = {"tidemill.tend.interval.ms": "200"}
    if store == "embedded":
        with running_brokers(3, settings) as brokers:
            yield brokers
        return
    with running_postgres() as postgres, running_brokers(3, settings, timelines=postgres.new_database()) as brokers:
        yield brokers


def holder(brokers: Brokers, topic: str) -> int:
    """The broker that has what waits for a topic, where each has its own timelines."""
    return leader(brokers, WAITING_RECORDS, java_hash(topic) % SEATS)


@pytest.mark.parametrize("store", ["postgres", "embedded"])
def test_every_record_comes_once_although_its_leader_and_its_holder_are_killed(store: str) -> None:
    with running(store) as brokers:
        create(brokers, "later", copies=3)
        start_ms = time.time_ns() // 1_000_000 + 4_000
        send(brokers, "later", lambda number: start_ms + number * 25, RECORDS)
        victims = [leader(brokers, "later")]
        if store == "embedded" and holder(brokers, "later") not in victims:
            victims.append(holder(brokers, "later"))
        eventually(lambda: time.time_ns() // 1_000_000 > start_ms + 1_000, "time passes")
        for victim in victims:
            brokers.kill(victim)
            eventually(lambda lost=victim: leader(brokers, "later") not in (lost, -1), "nobody leads")  # type: ignore[misc]
            brokers.start(victim)
        found = values(brokers, "later", RECORDS)
        assert sorted(int(value) for value, _, _ in found) == list(range(RECORDS))
        assert all(stamp >= due_ms for _, due_ms, stamp in found), "a record came early"


def test_what_waits_on_the_disks_of_brokers_has_copies_like_its_topic_and_can_be_taken_back() -> None:
    with running_brokers(3) as brokers:
        create(brokers, "copied", copies=3, partitions=2)
        due_ms = time.time_ns() // 1_000_000 + 6_000
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True})
        for number in range(40):
            headers = {"tidemill-deliver-at": str(due_ms), "tidemill-schedule-id": f"id-{number}"}
            producer.produce("copied", f"{number}", partition=number % 2, headers=headers)
        assert producer.flush(WAIT_S) == 0
        for number in range(0, 40, 4):
            producer.produce("copied", b"", partition=1, headers={"tidemill-cancel": f"id-{number}"})
            again = {"tidemill-deliver-at": str(due_ms), "tidemill-schedule-id": f"id-{number + 1}"}
            producer.produce("copied", f"{number + 1}", partition=(number + 1) % 2, headers=again)
        assert producer.flush(WAIT_S) == 0
        brokers.kill(holder(brokers, "copied"))  # for good: what it had is elsewhere, too
        found = values(brokers, "copied", 30, partitions=2)
        assert sorted(int(value) for value, _, _ in found) == [number for number in range(40) if number % 4]
        assert all(stamp >= due for _, due, stamp in found)


def test_what_waits_for_a_topic_without_copies_follows_its_partition(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_brokers(2) as brokers:
        create(brokers, "alone", copies=1, partitions=1)
        first = leader(brokers, "alone")
        due_ms = time.time_ns() // 1_000_000 + 4_000
        send(brokers, "alone", lambda number: due_ms + number, 50, partitions=1)
        CommandLine(brokers.bootstrap, capsys, monkeypatch).fine(
            "topic", "reassign", "alone", "--replicas", f"{3 - first}"
        )
        eventually(lambda: leader(brokers, "alone") == 3 - first, "it did not move")
        assert time.time_ns() // 1_000_000 < due_ms, "the machine is too slow for this test"
        found = values(brokers, "alone", 50, partitions=1)
        assert sorted(int(value) for value, _, _ in found) == list(range(50))
        assert all(stamp >= due for _, due, stamp in found)
