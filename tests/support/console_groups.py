"""Groups for tests of the console: topics with records, and members of both protocols that commit on request."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.waiting import eventually

WAIT_S = 30.0
RECORDS = 10
CLASSIC, CONSUMER = "classic", "consumer"
ODD_NAME = "a/b <script>alert(1)</script>?x=1#y%2F é\"'"
"""A name of a group that is hostile to URLs and to HTML."""


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def fill(bootstrap: str, topic: str, *, partitions: int = 1, records: int = RECORDS, **access: Any) -> None:
    """Create a topic with some records in each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **access})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
    add(bootstrap, topic, partitions=partitions, records=records, **access)


def add(bootstrap: str, topic: str, *, partitions: int = 1, records: int = RECORDS, **access: Any) -> None:
    """Add records to each partition of a topic."""
    producer = Producer({"bootstrap.servers": bootstrap, **access})
    for partition in range(partitions):
        for number in range(records):
            producer.produce(topic, b"value %d" % number, b"key %d" % number, partition)
    assert producer.flush(WAIT_S) == 0


@contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str = CLASSIC, **options: Any) -> Iterator[Consumer]:
    """A consumer that has its partitions and commits nothing by itself."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.1) is not None, "the consumer reads")
        yield consumer
    finally:
        consumer.close()


def commit(consumer: Consumer, topic: str, offset: int, partition: int = 0) -> None:
    """Commit one offset as a member."""
    consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)


def read_some(bootstrap: str, group: str, topic: str, count: int, protocol: str = CLASSIC, **access: Any) -> None:
    """Let a group read and commit some records, and leave."""
    with member(bootstrap, group, topic, protocol, **access) as consumer:
        commit(consumer, topic, count)
