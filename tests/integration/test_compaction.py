"""Compaction as applications meet it: a compacted topic through real clients, and the broker's own journals."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.waiting import eventually

from tidemill.testing import Broker

WAIT_S = 60
KEYS = 40
SETTINGS = {
    "tidemill.tend.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "4000",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.segment.bytes": "4000",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "60000",
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(process=True, settings=SETTINGS) as broker:
        yield broker


def create(broker: Broker, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, 1, config={**COMPACTED, **config})])[name].result(WAIT_S)


def read_all(broker: Broker, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """Every record that a read_committed consumer sees: offset, key, value."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        },
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[tuple[int, bytes, bytes | None]] = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, "the reader waits for ever"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return seen
        seen.append((message.offset(), message.key(), message.value()))


def table(records: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, bytes]:
    found = {key: value for _, key, value in records}
    return {key: value for key, value in found.items() if value is not None}


def files(broker: Broker, topic: str) -> list[Path]:
    return sorted((broker.data_dir / "streams" / topic / "0").glob("*.log"))


def size_bytes(broker: Broker, topic: str) -> int:
    size = 0
    for path in files(broker, topic):
        try:
            size += path.stat().st_size
        except FileNotFoundError:  # compacted away under our eyes
            continue
    return size


def is_small(broker: Broker, topic: str) -> bool:
    return size_bytes(broker, topic) < 12_000


def test_a_compacted_topic_keeps_the_last_value_of_each_key(broker: Broker) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    create(broker, "table")
    config = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1}
    plain = Producer({**config, "enable.idempotence": True, "batch.num.messages": 20})
    transactional = Producer({**config, "transactional.id": "table"})
    transactional.init_transactions(WAIT_S)
    wanted: dict[bytes, bytes] = {}
    written = 0
    for number in range(100):
        kind = chance.choice(["plain", "plain", "commit", "abort"])
        producer = plain if kind == "plain" else transactional
        if kind != "plain":
            transactional.begin_transaction()
        for index in range(30):
            key = b"%d" % chance.randrange(KEYS)
            value = None if chance.random() < 0.2 else b"value %d of %d" % (index, number)
            producer.produce("table", value, key)
            written += 1
            if kind != "abort":
                wanted[key] = value or b""
        if kind == "plain":
            assert plain.flush(WAIT_S) == 0
        elif kind == "commit":
            transactional.commit_transaction(WAIT_S)
        else:
            transactional.abort_transaction(WAIT_S)
        if number % 20 == 10:
            assert table(read_all(broker, "table")) == {key: value for key, value in wanted.items() if value}
    expected = {key: value for key, value in wanted.items() if value}
    eventually(lambda: len(read_all(broker, "table")) < written / 3, "nothing is compacted")
    records = read_all(broker, "table")
    assert [offset for offset, _, _ in records] == sorted({offset for offset, _, _ in records})
    assert table(records) == expected
    broker.kill()
    broker.restart()
    assert table(read_all(broker, "table")) == expected


def test_a_record_without_a_key_is_refused(broker: Broker) -> None:
    create(broker, "keyed")
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("keyed", b"no key", on_delivery=lambda error, _: failed.append(error))
    producer.produce("keyed", b"value", b"key")
    producer.flush(WAIT_S)
    assert [error.code() for error in failed] == [KafkaError.INVALID_RECORD]


def test_journals_of_offsets_and_transactions_stay_small(broker: Broker) -> None:
    bootstrap = broker.bootstrap_servers
    create(broker, "input", cleanup_policy="delete")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "busy", "enable.auto.commit": False})
    lasting = {"bootstrap.servers": bootstrap, "metadata.recovery.strategy": "none"}
    producer = Producer({**lasting, "transactional.id": "busy", "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    for number in range(300):
        consumer.commit(offsets=[TopicPartition("input", 0, number)], asynchronous=False)
        producer.begin_transaction()
        producer.produce("input", b"%d" % number, partition=0)
        producer.commit_transaction(WAIT_S)
    for topic in ("__consumer_offsets", "__transaction_state"):
        eventually(partial(is_small, broker, topic), f"{topic} grows")
    broker.kill()
    broker.restart()
    [found] = consumer.committed([TopicPartition("input", 0)], WAIT_S)
    assert found.offset == 299
    consumer.close()
    with pytest.raises(KafkaException) as raised:
        fence(bootstrap, producer)
    assert raised.value.args[0].fatal()


def fence(bootstrap: str, zombie: Producer) -> None:
    """What the journal knows of the transactional id fences its old producer, also after compaction and restart."""
    heir = Producer({"bootstrap.servers": bootstrap, "transactional.id": "busy"})
    heir.init_transactions(WAIT_S)
    zombie.begin_transaction()
    zombie.produce("input", b"of the zombie", partition=0)
    zombie.commit_transaction(WAIT_S)
