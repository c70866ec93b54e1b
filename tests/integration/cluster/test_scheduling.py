"""Scheduled records in a cluster: stored once, by the leader of their partition at the due time."""

import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_processes import WAIT_S, Brokers, running_brokers
from tests.support.postgres import running_postgres
from tests.support.waiting import eventually

from tidemill.model.topics import WAITING

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
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "unused", "enable.auto.commit": False})
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
        eventually(lambda: leader(brokers, "later") not in (victim, -1), "no broker leads")
        brokers.start(victim)
        found = values(brokers, "later", RECORDS)
        assert sorted(int(value) for value, _, _ in found) == list(range(RECORDS))
        assert all(stamp >= due_ms for _, due_ms, stamp in found), "a record came early"


OWN = {"tidemill.tend.interval.ms": "200", "tidemill.waiting.topic.num.partitions": "1"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def fail_over(brokers: Brokers, topic: str) -> None:
    """Kill the leader of the first partition, wait for the next leader, and start the killed one again."""
    victim = leader(brokers, topic)
    brokers.kill(victim)
    eventually(lambda: leader(brokers, topic) not in (victim, -1), "no broker leads")
    brokers.start(victim)


@pytest.fixture(scope="module")
def own() -> Iterator[Brokers]:
    """Three brokers, each with timelines of its own."""
    with running_brokers(3, OWN) as brokers:
        yield brokers


def test_without_shared_timelines_every_record_comes_once_although_leader_and_keeper_are_killed(own: Brokers) -> None:
    create(own, "later", copies=3)
    start_ms = now_ms() + 3_000
    send(own, "later", lambda number: start_ms + number * 50, RECORDS)
    for number, topic in enumerate(("later", WAITING, WAITING), 1):
        eventually(lambda: now_ms() > start_ms + number * 3_000, "time passes")  # noqa: B023 -- used at once
        fail_over(own, topic)
    found = values(own, "later", RECORDS)
    assert sorted(int(value) for value, _, _ in found) == list(range(RECORDS))
    assert all(stamp >= due_ms for _, due_ms, stamp in found), "a record came early"


def test_waiting_records_are_found_and_cancelled_by_name_on_every_broker(own: Brokers) -> None:
    create(own, "named", copies=3, partitions=1)
    due_ms = now_ms() + 20_000
    producer = Producer({"bootstrap.servers": own.bootstrap})
    errors: list[object] = []

    def produce(value: str, **headers: str) -> None:
        named = {f"tidemill-{name.replace('_', '-')}": text for name, text in headers.items()}
        report = lambda error, _: errors.append(error) if error else None  # noqa: E731 -- one line of a helper
        producer.produce("named", value, partition=0, headers=named, on_delivery=report)
        assert producer.flush(WAIT_S) == 0
        assert not errors

    for name in ("kept", "dropped", "dropped late"):
        produce(name, deliver_at=str(due_ms), schedule_id=name)
    produce("kept again", deliver_at=str(due_ms), schedule_id="kept")
    produce("", cancel="dropped")
    fail_over(own, WAITING)
    produce("kept once more", deliver_at=str(due_ms), schedule_id="kept")
    produce("", cancel="dropped late")
    assert now_ms() < due_ms, "the machine is too slow for this test"
    assert [value for value, _, _ in values(own, "named", 1, partitions=1)] == ["kept"]


def test_a_topic_of_the_same_name_does_not_get_what_waited_for_the_one_before(own: Brokers) -> None:
    create(own, "again", copies=3, partitions=1)
    send(own, "again", lambda _: now_ms() + 6_000, 20, partitions=1)
    ends_ms = now_ms() + 6_000
    admin = AdminClient({"bootstrap.servers": own.bootstrap})
    admin.delete_topics(["again"])["again"].result(WAIT_S)
    eventually(lambda: _created(own, "again"), "the name is not free")
    send(own, "again", lambda number: ends_ms + number, 3, partitions=1)
    found = values(own, "again", 3, partitions=1)
    assert sorted(due_ms for _, due_ms, _ in found) == [ends_ms, ends_ms + 1, ends_ms + 2]


def _created(brokers: Brokers, name: str) -> bool:
    try:
        create(brokers, name, copies=3, partitions=1)
    except KafkaException:
        return False
    return True


def test_brokers_that_differ_in_where_timelines_are_take_no_records_for_later() -> None:
    with running_postgres() as postgres, running_brokers(2) as brokers:
        brokers.stop(2)
        brokers.start(2, timelines=postgres.new_database())
        with pytest.raises(KafkaException, match="give all of them the same --timelines"):
            create(brokers, "mixed", copies=2)


def test_a_recurring_record_comes_once_for_each_time_although_brokers_are_killed(own: Brokers) -> None:
    create(own, "recurring", copies=3, partitions=1)
    producer = Producer({"bootstrap.servers": own.bootstrap, "enable.idempotence": True})
    headers = {"tidemill-every-ms": "1000", "tidemill-missed": "all", "tidemill-deliver-at": str(now_ms() + 500)}
    producer.produce("recurring", "tick", partition=0, headers=headers)
    assert producer.flush(WAIT_S) == 0
    for topic in (WAITING, "recurring"):
        started_ms = now_ms()
        eventually(lambda: now_ms() > started_ms + 1_500, "time passes")  # noqa: B023 -- used at once
        fail_over(own, topic)
    found = marks(own, "recurring", 8)
    dues = [int(mark.rpartition("~")[2]) for mark in found]
    assert len(dues) >= 8
    assert [later - earlier for earlier, later in pairwise(dues)] == [1_000] * (len(dues) - 1)


def marks(brokers: Brokers, topic: str, enough: int) -> list[str]:
    """The marks of the records of a partition, as soon as there are enough."""
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    ends = time.monotonic() + WAIT_S
    try:
        while len(found) < enough and time.monotonic() < ends:
            record = consumer.poll(0.2)
            if record is not None and record.error() is None:
                found.append(dict(record.headers())["tidemill-message"].decode())
    finally:
        consumer.close()
    return found
