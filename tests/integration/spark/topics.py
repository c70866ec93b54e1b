"""Creates, writes and reads topics of the tests with confluent-kafka."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

LIMIT_S = 60
"""The limit of every wait, for a machine that is several times busier and slower than ours."""


class Outside:
    """Another client of the same broker."""

    def __init__(self, servers: str, **login: str) -> None:
        self.servers = servers
        self.login = {"bootstrap.servers": servers} | {name.replace("_", "."): value for name, value in login.items()}
        self.admin = AdminClient(self.login)

    def create(self, topic: str, partitions: int = 2, **settings: str) -> str:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        self._done(self.admin.create_topics([NewTopic(topic, partitions, config=config)]))
        return topic

    def recreate(self, topic: str, partitions: int = 2) -> None:
        self._done(self.admin.delete_topics([topic]))
        self.create(topic, partitions)

    def grow(self, topic: str, total: int) -> None:
        self._done(self.admin.create_partitions([NewPartitions(topic, total)]))

    def forget(self, topic: str, before: dict[int, int]) -> None:
        wanted = [TopicPartition(topic, index, offset) for index, offset in before.items()]
        self._done(self.admin.delete_records(wanted))

    def write(self, topic: str, records: Iterable[dict[str, Any]], **settings: Any) -> None:
        producer = Producer({**self.login, "linger.ms": 5, **settings})
        for record in records:
            while True:
                try:
                    producer.produce(topic, **record)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(LIMIT_S) == 0

    def write_values(self, topic: str, values: Iterable[int], partition: int = 0) -> None:
        self.write(topic, ({"value": str(value), "partition": partition} for value in values))

    def read(self, topic: str) -> list[Message]:
        """All committed messages."""
        return list(self.messages(topic))

    def messages(self, topic: str) -> Iterator[Message]:
        """All committed messages, one at a time."""
        settings = {**self.login, "group.id": "outside", "enable.partition.eof": True}
        consumer = Consumer(settings | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
        partitions = consumer.list_topics(topic, LIMIT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        ended: set[int] = set()
        deadline = time.monotonic() + LIMIT_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"{topic} has no end"
            for message in consumer.consume(10_000, 0.2):
                if message.error() is None:
                    yield message
                else:
                    ended.add(message.partition())
        consumer.close()

    def values(self, topic: str) -> list[int]:
        return sorted(int(message.value()) for message in self.read(topic))

    def group(self, group: str) -> dict[int, int]:
        """Committed offsets by partition."""
        futures = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        offsets = futures[group].result(LIMIT_S).topic_partitions
        return {entry.partition: entry.offset for entry in offsets}

    @staticmethod
    def _done(futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(LIMIT_S)
