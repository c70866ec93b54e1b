"""Producers over connections that break at the worst moments: every record once, in order; transactions whole."""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.compat.storage import Storage
from tests.support.cutting_proxy import Cut, CuttingProxy
from tests.support.group_members import WAIT_S, create_topic

from tidemill.testing import Broker

PARTITIONS = 3
RECORDS = 600
ROUND = 100
CUTS_MIN = 12
TRANSACTIONS = 40
KILLS = 3


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with CuttingProxy(random.Random(seed)) as proxy:
        yield proxy


@pytest.fixture
def broker(proxy: CuttingProxy) -> Iterator[Broker]:
    """A broker that sends its clients through the proxy."""
    with Broker(flags={"advertise": proxy.address}) as broker:
        proxy.target = broker.bootstrap_servers
        yield broker


def quick(bootstrap: str, **more: Any) -> dict[str, Any]:
    """Settings of a client that soon tries again."""
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        "retry.backoff.ms": 10,
        "log_level": 0,
        **more,
    }


def read_all(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    consumer = Consumer(quick(bootstrap, **{"group.id": "reader", "enable.partition.eof": True}))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen: dict[int, list[bytes]] = defaultdict(list)
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None, "the reader waits for ever"
        if message.error() is None:
            seen[message.partition()].append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return seen


@pytest.mark.usefixtures("broker")
def test_an_idempotent_producer_writes_every_record_once_and_in_order(proxy: CuttingProxy) -> None:
    proxy.cutting = False
    create_topic(proxy.address, "t", PARTITIONS)
    proxy.cutting = True
    errors: list[KafkaError | None] = []
    producer = Producer(quick(proxy.address, **{"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 5}))
    sent: dict[int, list[bytes]] = defaultdict(list)
    numbers = count()
    while len(errors) < RECORDS or sum(proxy.cuts.values()) < CUTS_MIN or not proxy.cuts[Cut.ANSWER_DROPPED]:
        for number in islice(numbers, ROUND):
            partition, value = number % PARTITIONS, b"%d" % number
            producer.produce("t", value, partition=partition, on_delivery=lambda error, _: errors.append(error))
            sent[partition].append(value)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
    print(f"{len(errors)} records, cuts: {dict(proxy.cuts)}")
    proxy.cutting = False
    assert {error for error in errors if error is not None} == set()
    assert read_all(proxy.address, "t") == sent


@pytest.mark.usefixtures("broker")
def test_a_transactional_producer_shows_each_transaction_whole_or_not_at_all(proxy: CuttingProxy) -> None:
    proxy.cutting = False
    create_topic(proxy.address, "t", PARTITIONS)
    proxy.cutting = True
    producer = Producer(quick(proxy.address, **{"transactional.id": "x", "linger.ms": 0}))
    persist(lambda: producer.init_transactions(WAIT_S))
    shown: dict[int, list[bytes]] = defaultdict(list)
    for number in count():
        if number >= TRANSACTIONS and sum(proxy.cuts.values()) >= CUTS_MIN:
            break
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("t", b"%d" % number, partition=partition)
        if transact(producer, commit=number % 3 > 0):
            for partition in range(PARTITIONS):
                shown[partition].append(b"%d" % number)
    print(f"{number} transactions, cuts: {dict(proxy.cuts)}")
    proxy.cutting = False
    assert read_all(proxy.address, "t") == shown


def persist(act: Callable[[], None]) -> None:
    """Do what may be done again until it is done."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            return act()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise


def transact(producer: Producer, *, commit: bool) -> bool:
    """End the transaction, as a program has to; whether it was committed."""
    if commit:
        try:
            persist(lambda: producer.commit_transaction(WAIT_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        else:
            return True
    persist(lambda: producer.abort_transaction(WAIT_S))
    return False


def test_an_idempotent_producer_is_not_disturbed_by_kills_of_the_broker(storage: Storage) -> None:
    """What was written before the kill and not acknowledged is sent again: the broker knows it, from its log."""
    with Broker(process=True, flags={**storage.flags, "grpc": "none", "http": "none"}) as broker:
        create_topic(broker.bootstrap_servers, "t", PARTITIONS)
        errors: list[KafkaError | None] = []
        more = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 5}
        producer = Producer(quick(broker.bootstrap_servers, **more))
        sent: dict[int, list[bytes]] = defaultdict(list)
        for kill in range(min(KILLS, storage.kills_max)):
            for number in range(kill * RECORDS, (kill + 1) * RECORDS):
                partition, value = number % PARTITIONS, b"%d" % number
                producer.produce("t", value, partition=partition, on_delivery=lambda error, _: errors.append(error))
                sent[partition].append(value)
            some_answered, end = len(errors) + ROUND, time.monotonic() + WAIT_S
            while len(errors) < some_answered:
                assert time.monotonic() < end, "nothing is answered"
                producer.poll(0.1)
            broker.kill()
            broker.restart()
        assert producer.flush(WAIT_S) == 0
        assert {error for error in errors if error is not None} == set()
        assert read_all(broker.bootstrap_servers, "t") == sent
