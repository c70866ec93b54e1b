"""Transactions as applications use them: exactly once through aborts and kills, fencing, timeouts, isolation."""

import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.copiers import COPIERS, Job
from tests.compat.storage import Storage
from tests.support.waiting import eventually

from tidemill.testing import Broker

WAIT_S = 60
PARTITIONS = 2
COUNT = 300
KILLS = 2


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        made.result(WAIT_S)


def fill(bootstrap: str, topic: str, count: int) -> dict[int, list[bytes]]:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    sent: defaultdict[int, list[bytes]] = defaultdict(list)
    for number in range(count):
        value = b"%d" % number
        producer.produce(topic, value, partition=number % PARTITIONS)
        sent[number % PARTITIONS].append(value)
    assert producer.flush(WAIT_S) == 0
    return sent


def read_all(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[int, list[bytes]]:
    """Everything that a reader sees, up to the end offset that it gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        },
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None, "the reader waits for ever"
        if message.error() is None:
            seen[message.partition()].append(message.value())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return seen


def transactional(bootstrap: str, name: str, **more: Any) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, **more})
    producer.init_transactions(WAIT_S)
    return producer


class Killer:
    """Kills the broker when the copier has got so far, and brings it back."""

    def __init__(self, broker: Broker, at: list[int]) -> None:
        self._broker = broker
        self._at = at
        self._reached = [threading.Event() for _ in at]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def progress(self, done: int) -> None:
        for at, reached in zip(self._at, self._reached, strict=True):
            if done >= at:
                reached.set()

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the broker was not killed as often as planned"

    def _run(self) -> None:
        for reached in self._reached:
            assert reached.wait(WAIT_S)
            self._broker.kill()
            self._broker.restart()


@pytest.mark.parametrize("client", COPIERS)
def test_a_copy_loop_is_exactly_once_over_aborts_and_kills(client: str, storage: Storage) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with Broker(process=True, flags=storage.flags) as broker:
        bootstrap = broker.bootstrap_servers
        create(bootstrap, "in", "out")
        sent = fill(bootstrap, "in", COUNT)
        killer = Killer(broker, sorted(chance.sample(range(1, COUNT * 3 // 4), min(KILLS, storage.kills_max))))
        COPIERS[client](Job(bootstrap, "in", "out", f"copy-{client}", COUNT, chance, killer.progress))
        killer.join()
        wanted = {partition: [b"copy of " + value for value in values] for partition, values in sent.items()}
        assert read_all(bootstrap, "out") == wanted


def test_readers_of_committed_records_do_not_see_an_open_transaction(broker: Broker) -> None:
    bootstrap = broker.bootstrap_servers
    create(bootstrap, "open")
    producer = transactional(bootstrap, "open")
    producer.begin_transaction()
    producer.produce("open", b"first", partition=0)
    producer.flush(WAIT_S)
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce("open", b"behind", partition=0)
    plain.produce("open", b"next", partition=1)
    plain.flush(WAIT_S)
    assert read_all(bootstrap, "open") == {0: [], 1: [b"next"]}
    assert read_all(bootstrap, "open", "read_uncommitted") == {0: [b"first", b"behind"], 1: [b"next"]}
    producer.commit_transaction(WAIT_S)
    assert read_all(bootstrap, "open") == {0: [b"first", b"behind"], 1: [b"next"]}


def test_aborted_records_are_never_shown(broker: Broker) -> None:
    bootstrap = broker.bootstrap_servers
    create(bootstrap, "aborted")
    producer = transactional(bootstrap, "aborted")
    wanted: dict[int, list[bytes]] = {0: [], 1: []}
    for number in range(20):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            value = b"%d" % number
            producer.produce("aborted", value, partition=partition)
            if number % 3:
                wanted[partition].append(value)
        producer.flush(WAIT_S)
        if number % 3:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    assert read_all(bootstrap, "aborted") == wanted
    assert len(read_all(bootstrap, "aborted", "read_uncommitted")[0]) == 20


def test_a_zombie_is_fenced(broker: Broker) -> None:
    bootstrap = broker.bootstrap_servers
    create(bootstrap, "zombie")
    zombie = transactional(bootstrap, "zombie")
    zombie.begin_transaction()
    zombie.produce("zombie", b"of the zombie", partition=0)
    zombie.flush(WAIT_S)
    heir = transactional(bootstrap, "zombie")
    heir.begin_transaction()
    heir.produce("zombie", b"of the heir", partition=0)
    heir.commit_transaction(WAIT_S)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(WAIT_S)
    assert raised.value.args[0].fatal()
    assert read_all(bootstrap, "zombie") == {0: [b"of the heir"], 1: []}


def test_a_transaction_that_its_producer_left_is_aborted_in_time(broker: Broker) -> None:
    bootstrap = broker.bootstrap_servers
    create(bootstrap, "left")
    left = transactional(bootstrap, "left", **{"transaction.timeout.ms": 1500, "message.timeout.ms": 1500})
    left.begin_transaction()
    left.produce("left", b"never ended", partition=0)
    left.flush(WAIT_S)
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce("left", b"behind it", partition=0)
    plain.flush(WAIT_S)
    eventually(lambda: read_all(bootstrap, "left")[0] == [b"behind it"], "the transaction does not time out")
    with pytest.raises(KafkaException):
        left.commit_transaction(WAIT_S)
    assert read_all(bootstrap, "left")[0] == [b"behind it"]


def test_a_timeout_beyond_the_brokers_limit_is_refused(broker: Broker) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "slow",
            "transaction.timeout.ms": 900_001,
        },
    )
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(WAIT_S)
    assert raised.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_offsets_of_a_transaction_become_visible_with_its_commit(broker: Broker) -> None:
    bootstrap = broker.bootstrap_servers
    create(bootstrap, "staged")
    fill(bootstrap, "staged", 10)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "staged",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        },
    )
    place = TopicPartition("staged", 0, 3)
    consumer.assign([TopicPartition("staged", 0, 0)])
    producer = transactional(bootstrap, "staged")

    def committed() -> int:
        offset: int = consumer.committed([place], WAIT_S)[0].offset
        return offset

    producer.begin_transaction()
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), WAIT_S)
    producer.abort_transaction(WAIT_S)
    assert committed() < 0
    producer.begin_transaction()
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)
    assert committed() == 3
    consumer.close()


def test_admin_tools_see_transactions_and_producers(broker: Broker) -> None:
    from kafka.admin import KafkaAdminClient
    from kafka.structs import TopicPartition as Place

    bootstrap = broker.bootstrap_servers
    create(bootstrap, "described")
    producer = transactional(bootstrap, "described")
    producer.begin_transaction()
    producer.produce("described", b"x", partition=1)
    producer.flush(WAIT_S)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        described = admin.describe_transactions(["described"])["described"]
        assert described.state.value == "Ongoing"
        assert described.topic_partitions == {Place("described", 1)}
        listed = [each.transactional_id for reported in admin.list_transactions().values() for each in reported]
        assert "described" in listed
        [writing] = admin.describe_producers([Place("described", 1)])[Place("described", 1)].active_producers
        assert (writing.producer_id, writing.current_transaction_start_offset) == (described.producer_id, 0)
    finally:
        admin.close()
    producer.commit_transaction(WAIT_S)
