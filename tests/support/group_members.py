"""Many consumers of one group, polled in turn, and their history."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

WAIT_S = 60
HEARTBEAT_MS = 200


def quick_groups(**more: str) -> dict[str, str]:
    """Broker settings for quick rebalances. Sessions stay long, because the machine may be busy."""
    return {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
        **more,
    }


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    operator = admin(bootstrap)  # it must outlive its futures
    for future in operator.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(WAIT_S)


def grow_topic(bootstrap: str, name: str, partitions: int) -> None:
    operator = admin(bootstrap)  # it must outlive its futures
    for future in operator.create_partitions([NewPartitions(name, partitions)]).values():
        future.result(WAIT_S)


def produce(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """`count` records to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(WAIT_S) == 0


class Crowd:
    """The members of one group, by name."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **config: Any) -> None:
        self.topics = topics
        self.members: dict[str, Consumer] = {}
        self.seen: Counter[tuple[str, int, int]] = Counter()
        self.rebalances: Counter[str] = Counter()
        self.lost: dict[str, set[int]] = {}
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 300,
            **config,
        }
        if config.get("group.protocol") != "consumer":
            self._config |= {"heartbeat.interval.ms": HEARTBEAT_MS}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for name in list(self.members):
            self.leave(name)

    def join(self, *names: str, **config: Any) -> None:
        for name in names:
            consumer = Consumer({**self._config, "client.id": name, **config})

            def assigned(_consumer: Consumer, _partitions: list[Any], who: str = name) -> None:
                self.rebalances[who] += 1

            def revoked(_consumer: Consumer, partitions: list[Any], who: str = name) -> None:
                self.lost.setdefault(who, set()).update(each.partition for each in partitions)

            consumer.subscribe(self.topics, on_assign=assigned, on_revoke=revoked)
            self.members[name] = consumer

    def leave(self, *names: str) -> None:
        for name in names:
            self.members.pop(name).close()

    def poll(self) -> None:
        for consumer in self.members.values():
            for message in consumer.consume(500, 0.01):
                if message.error() is None:
                    self.seen[message.topic(), message.partition(), message.offset()] += 1

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll until the condition holds."""
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, f"{what}: not within {WAIT_S} s; {self.shares()}"
            self.poll()

    def shares(self) -> dict[str, set[tuple[str, int]]]:
        return {
            name: {(each.topic, each.partition) for each in consumer.assignment()}
            for name, consumer in self.members.items()
        }

    def is_shared(self, total: int) -> bool:
        """Whether every partition has one member, and member counts differ by at most one."""
        sizes = [len(share) for share in self.shares().values()]
        return sum(sizes) == total == len(set().union(*self.shares().values())) and max(sizes) - min(sizes) <= 1

    def until_shared(self, total: int) -> None:
        self.until(lambda: self.is_shared(total), f"{total} partitions are shared by {sorted(self.members)}")
