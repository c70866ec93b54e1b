"""Quotas in a cluster: every broker applies them, and replication is exempt."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_processes import WAIT_S, Brokers
from tests.support.waiting import eventually

from tidemill.client.kafka import KafkaClient
from tidemill.client.kafka.quotas import QuotaChange

EVERY_CLIENT = (("client-id", None),)
RECORD_BYTES = 100_000


@contextmanager
def quotas(brokers: Brokers, **values: float) -> Iterator[None]:
    """Quotas for every client id, set by one broker and removed by another one."""
    with KafkaClient({"bootstrap.servers": brokers.address(1)}) as client:
        assert client.alter_quotas([QuotaChange(EVERY_CLIENT, values)]) == [None]
    try:
        yield
    finally:
        with KafkaClient({"bootstrap.servers": brokers.address(2)}) as client:
            assert client.alter_quotas([QuotaChange(EVERY_CLIENT, dict.fromkeys(values))]) == [None]


def shown(brokers: Brokers, number: int) -> list[object]:
    with KafkaClient({"bootstrap.servers": brokers.address(number)}) as client:
        return [(each.owner, each.quotas) for each in client.quotas()]


def _shows(brokers: Brokers, number: int, wanted: Sequence[object]) -> bool:
    return shown(brokers, number) == wanted


def test_every_broker_follows_and_replication_is_exempt(brokers: Brokers) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic("limited", 1, 3, config={"min.insync.replicas": "3"})])["limited"].result(WAIT_S)
    with quotas(brokers, consumer_byte_rate=1, request_percentage=0.000001):
        for number in (1, 2, 3):
            wanted = [(EVERY_CLIENT, {"consumer_byte_rate": 1.0, "request_percentage": 0.000001})]
            eventually(partial(_shows, brokers, number, wanted), "not followed")
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all", "linger.ms": 0})
        for _ in range(5):
            record = os.urandom(RECORD_BYTES)
            producer.produce("limited", record, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT_S) == 0
        assert errors == [None] * 5
    eventually(lambda: all(shown(brokers, number) == [] for number in (1, 2, 3)), "still limited")
