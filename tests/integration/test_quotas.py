"""Real clients above their quotas: they slow down, and other clients do not notice."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaTopic
from kafka.errors import NodeNotReadyError, ThrottlingQuotaExceededError

from tidemill.client.kafka import KafkaClient
from tidemill.client.kafka.quotas import QuotaChange, QuotaOwner
from tidemill.testing import Broker

TIMEOUT_S = 30.0
MESSAGE_BYTES = 20_000
QUOTA = 200_000
SETTINGS = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
"""A client may send for one second at once."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS, flags={"grpc": "none", "http": "none"}) as running:
        yield running


def set_quotas(broker: Broker, owner: QuotaOwner, **quotas: float | None) -> None:
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        assert client.alter_quotas([QuotaChange(owner, quotas)]) == [None]


class Measured:
    """The throttle times that a client reports in its statistics."""

    def __init__(self) -> None:
        self.throttled_ms: list[int] = []

    def read(self, text: str) -> None:
        for each in json.loads(text)["brokers"].values():
            self.throttled_ms.append(each["throttle"]["max"])

    def settings(self, broker: Broker, client_id: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": client_id,
            "stats_cb": self.read,
            "statistics.interval.ms": 100,
            "log_level": 0,
            **more,
        }


def produced_s(broker: Broker, client_id: str, topic: str, count: int) -> tuple[float, Measured]:
    """How long a producer takes for so many messages, and what it was reported."""
    reported = Measured()
    made = Producer(reported.settings(broker, client_id, **{"linger.ms": 0, "batch.size": MESSAGE_BYTES}))
    made.list_topics(topic, timeout=TIMEOUT_S)
    errors: list[KafkaError | None] = []
    began = time.monotonic()
    for _ in range(count):
        made.produce(topic, os.urandom(MESSAGE_BYTES), on_delivery=lambda error, _: errors.append(error))
    assert made.flush(TIMEOUT_S) == 0
    took_s = time.monotonic() - began
    made.poll(0.2)
    assert errors == [None] * count
    return took_s, reported


def consumed_s(broker: Broker, client_id: str, topic: str, count: int) -> tuple[float, Measured]:
    """How long a consumer takes for so many messages, and what it was reported."""
    reported = Measured()
    settings = {"group.id": client_id, "fetch.message.max.bytes": QUOTA // 2}
    reader = Consumer(reported.settings(broker, client_id, **settings))
    try:
        reader.assign([TopicPartition(topic, 0, 0)])
        began, seen = time.monotonic(), 0
        while seen < count:
            message = reader.poll(TIMEOUT_S)
            assert message is not None
            assert message.error() is None
            seen += 1
        took_s = time.monotonic() - began
        reader.poll(0.2)
        return took_s, reported
    finally:
        reader.close()


def test_a_producer_keeps_to_its_quota_and_another_one_does_not_notice(broker: Broker) -> None:
    set_quotas(broker, (("client-id", "loud"),), producer_byte_rate=QUOTA)
    total = 4 * QUOTA
    count = total // MESSAGE_BYTES
    with ThreadPoolExecutor(2) as pool:
        loud = pool.submit(produced_s, broker, "loud", "loud", count)
        quiet = pool.submit(produced_s, broker, "quiet", "quiet", count)
        loud_s, loud_reported = loud.result()
        quiet_s, quiet_reported = quiet.result()
    burst = QUOTA
    assert total - burst - MESSAGE_BYTES * 1.1 <= QUOTA * loud_s  # never faster than the quota
    assert max(loud_reported.throttled_ms) > 0
    assert max(quiet_reported.throttled_ms, default=0) == 0
    assert quiet_s < loud_s / 2


def test_a_consumer_keeps_to_its_quota(broker: Broker) -> None:
    count = 4 * QUOTA // MESSAGE_BYTES
    produced_s(broker, "writer", "read", count)
    set_quotas(broker, (("client-id", "reader"),), consumer_byte_rate=QUOTA)
    slow_s, slow_reported = consumed_s(broker, "reader", "read", count)
    fast_s, fast_reported = consumed_s(broker, "other", "read", count)
    assert QUOTA * slow_s >= 2.5 * QUOTA
    assert max(slow_reported.throttled_ms) > 0
    assert max(fast_reported.throttled_ms, default=0) == 0
    assert fast_s < slow_s / 2


def test_a_quota_of_the_user_wins_over_one_of_the_client_id(broker: Broker) -> None:
    set_quotas(broker, (("user", "ANONYMOUS"), ("client-id", "both")), producer_byte_rate=100 * QUOTA)
    set_quotas(broker, (("client-id", "both"),), producer_byte_rate=1)
    try:
        _, reported = produced_s(broker, "both", "precedence", 3)
        assert max(reported.throttled_ms, default=0) == 0
    finally:
        set_quotas(broker, (("user", "ANONYMOUS"), ("client-id", "both")), producer_byte_rate=None)


def test_too_many_new_topics_are_an_error_for_clients_that_know_it(broker: Broker) -> None:
    set_quotas(broker, (("client-id", "creator"),), controller_mutation_rate=2)
    address = broker.bootstrap_servers
    with closing(KafkaAdminClient(bootstrap_servers=address, client_id="creator")) as admin:
        admin.create_topics([KafkaTopic("one", 4, 1)])
        with pytest.raises(ThrottlingQuotaExceededError) as refused:
            admin.create_topics([KafkaTopic("two", 4, 1)])
        assert refused.value.retriable
        with pytest.raises(NodeNotReadyError):  # the client waits for as long as it was reported
            admin.create_topics([KafkaTopic("two", 4, 1)])
    older = AdminClient({"bootstrap.servers": address, "client.id": "creator"})  # librdkafka does not know the error
    made = older.create_topics([NewTopic("three", 4, 1)], operation_timeout=0)
    assert made["three"].exception(TIMEOUT_S) is None


def test_metadata_requests_are_limited_by_the_time_that_they_take(broker: Broker) -> None:
    set_quotas(broker, (("client-id", "curious"),), request_percentage=0.01)
    reported = Measured()
    client = Producer(reported.settings(broker, "curious"))
    for _ in range(3):
        client.list_topics(timeout=TIMEOUT_S)
    client.poll(0.3)
    assert max(reported.throttled_ms) > 0
