"""Brokers that are killed or paused while others share their servers: other brokers take over partitions and groups.

Two brokers agree by a real etcd; two servers own ranges of partitions (tests/support/clickhouse_front.py).
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.clickhouse_members import run_a_group_over_two_brokers_and_a_kill
from tests.support.clickhouse import Server, running
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.waiting import eventually

from tidemill.client.kafka import KafkaClient
from tidemill.model.topics import TopicPartition as Partition

WAIT_S = 60.0
PARTITIONS = 4
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
    "group.min.session.timeout.ms": "1000",
    "leader.imbalance.check.interval.seconds": "1",
}
AUDIT = (
    "SELECT partition, count() = uniqExact(offset) AND count() = max(offset) - min(offset) + 1 AND min(offset) = 0, "
    "count() FROM messages WHERE topic = '{0}' GROUP BY partition ORDER BY partition FORMAT TSV"
)


class World:
    def __init__(self, brokers: Brokers, servers: list[Server]) -> None:
        self.brokers = brokers
        self.servers = servers
        self.admin = AdminClient({"bootstrap.servers": brokers.bootstrap})

    def create(self, topic: str, partitions: int = PARTITIONS) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)

    def leaders(self, topic: str) -> list[int]:
        found = self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        return [found[index].leader for index in sorted(found)]

    def audit(self, topic: str) -> dict[int, int]:
        """How many records each partition has, on whichever server; without hole and without repetition."""
        counts = {}
        for server in self.servers:
            for line in server.ask(AUDIT.format(topic)).splitlines():
                partition, sound, count = line.split("\t")
                assert sound == "1", f"{topic}-{partition} has holes or repetitions"
                counts[int(partition)] = int(count)
        return counts

    def read(self, topic: str, count: int, partitions: int = PARTITIONS) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.brokers.bootstrap, "group.id": "reader"})
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        seen: list[int] = []
        end = time.monotonic() + WAIT_S
        while len(seen) < count and time.monotonic() < end:
            seen += [int(each.value()) for each in consumer.consume(count, 0.2) if each.error() is None]
        consumer.close()
        return seen

    def both_lead(self, topic: str) -> bool:
        return set(self.leaders(topic)) == {1, 2}

    def all_leaders(self) -> set[int]:
        topics = self.admin.list_topics(timeout=WAIT_S).topics.values()
        return {each.leader for topic in topics for each in topic.partitions.values()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("failover")
    with running(folder, 2) as servers:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        streams = f"clickhouse://{hosts}/tidemill?ranges=0-1,2-99"
        with running_brokers(2, SETTINGS, racks=False, streams=streams, session_ttl_ms="3000") as brokers:
            yield World(brokers, servers)


class Sender:
    """An idempotent producer that sends in a thread until it is stopped."""

    def __init__(self, world: World, topic: str) -> None:
        config = {"bootstrap.servers": world.brokers.bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**config, "retry.backoff.ms": 50, "topic.metadata.refresh.interval.ms": 300})
        self._topic = topic
        self._failed: list[object] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0
        assert self._failed == []

    def _run(self) -> None:
        while not self._ending.is_set():
            self._producer.produce(
                self._topic,
                b"%d" % self.count,
                partition=self.count % PARTITIONS,
                on_delivery=lambda error, _: self._failed.append(error) if error else None,
            )
            self.count += 1
            self._producer.poll(0.01)


def test_the_other_broker_takes_over_from_a_killed_one_until_it_returns(world: World) -> None:
    world.create("orders")
    eventually(lambda: world.both_lead("orders"), "both brokers lead")
    config = {"bootstrap.servers": world.brokers.bootstrap, "group.id": "mailers", "auto.offset.reset": "earliest"}
    member = Consumer({**config, "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 300})
    member.subscribe(["orders"])
    seen: list[int] = []

    def sees(count: int) -> bool:
        seen.extend(int(each.value()) for each in member.consume(500, 0.1) if each.error() is None)
        return len(seen) >= count

    with Sender(world, "orders") as sender:
        eventually(lambda: sees(20), "records are read before")
        member.commit(asynchronous=False)
        world.brokers.kill(2)
        eventually(lambda: world.leaders("orders") == [1] * PARTITIONS, "the other broker leads all")
        already = sender.count
        eventually(lambda: sees(already), "records are read after")
    eventually(lambda: sees(sender.count), "every record is read")
    member.commit(asynchronous=False)
    assert sorted(set(seen)) == list(range(sender.count))
    counts = world.audit("orders")
    assert sum(counts.values()) == sender.count
    committed = member.committed([TopicPartition("orders", index) for index in range(PARTITIONS)], WAIT_S)
    assert {each.partition: each.offset for each in committed} == counts
    member.close()
    world.brokers.start(2)
    eventually(lambda: world.all_leaders() == {1, 2}, "the broker that came back leads its share")
    assert sorted(world.read("orders", sender.count)) == list(range(sender.count))


def test_records_of_a_dead_broker_that_come_late_are_refused(world: World) -> None:
    """They were on their way when the broker was killed, and the next leader has given their offsets to others."""
    world.create("late")
    eventually(lambda: world.both_lead("late"), "both brokers lead")
    leaders = world.leaders("late")
    held = 0
    victim = leaders[held]
    other = 3 - victim
    old = Producer({"bootstrap.servers": world.brokers.address(victim), "linger.ms": 0, "acks": 1})
    world.servers[0].fault(hold=1)
    for number in range(100, 110):
        old.produce("late", b"%d" % number, partition=held)
    old.poll(1)
    world.brokers.kill(victim)
    old.purge()  # it would send them again, to the next leader
    eventually(lambda: world.leaders("late") == [other] * PARTITIONS, "the other broker leads all")
    new = Producer({"bootstrap.servers": world.brokers.address(other), "enable.idempotence": True})
    for number in range(5):
        new.produce("late", b"%d" % number, partition=held)
    new.poll(0.5)
    world.servers[0].fault(hold=0)
    assert new.flush(WAIT_S) == 0
    assert world.audit("late") == {held: 5}
    assert world.read("late", 5) == list(range(5))
    world.brokers.start(victim)


def test_a_broker_that_was_paused_writes_nothing_of_what_it_led(world: World) -> None:
    world.create("paused")
    eventually(lambda: world.both_lead("paused"), "both brokers lead")
    place = Partition("paused", world.leaders("paused").index(2))
    with KafkaClient({"bootstrap.servers": world.brokers.address(1)}) as client:
        world.brokers.pause(2)
        eventually(lambda: world.leaders("paused") == [1] * PARTITIONS, "the other broker leads all")
        producer = Producer({"bootstrap.servers": world.brokers.address(1), "enable.idempotence": True})
        for number in range(7):
            producer.produce("paused", b"%d" % number, partition=place.partition)
        assert producer.flush(WAIT_S) == 0
        world.brokers.resume(2)
        eventually(lambda: 2 in world.all_leaders(), "it is a member again and leads something")
        for number in range(7, 14):
            producer.produce("paused", b"%d" % number, partition=place.partition)
        assert producer.flush(WAIT_S) == 0
        assert client.list_offsets({place: -1})[place].offset == 14
    assert world.audit("paused") == {place.partition: 14}
    assert world.read("paused", 14) == list(range(14))


def test_a_group_over_two_brokers_and_a_kill(world: World) -> None:
    """The last one: a broker is not started again."""
    run_a_group_over_two_brokers_and_a_kill(world)
