"""Clients that work for longer than their login lasts: they authenticate again on the open connection (KIP-368)."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.compat.programs import BUILD_S
from tests.compat.secured_clients import java
from tests.compat.secured_world import OWN_GROUP, USERS, SecuredWorld, secured_world, shared_topic

LOGIN_MS = 2_000
WORK_MS = 3 * LOGIN_MS
WAIT_S = 30.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredWorld]:
    with secured_world(tmp_path_factory.mktemp("world"), {"connections.max.reauth.ms": LOGIN_MS}) as running:
        running.add_topics([shared_topic(name, way) for name in ("java", "confluent-kafka") for way in USERS])
        yield running


@pytest.mark.timeout(BUILD_S)
def test_the_java_client(world: SecuredWorld, tmp_path: Path) -> None:
    way = "SCRAM-SHA-256"
    topic = shared_topic("java", way)
    with closing(java(tmp_path)) as program:
        found = program.ask(
            "repeat", world.login(way), topic, OWN_GROUP + topic, str(WORK_MS), wait_s=WORK_MS / 1000 + WAIT_S
        )
    sent, read, renewed, failed = map(int, found.split())
    assert sent == read > WORK_MS // LOGIN_MS
    assert renewed >= WORK_MS // LOGIN_MS - 1
    assert failed == 0


def test_confluent_kafka(world: SecuredWorld) -> None:
    from confluent_kafka import Consumer, Producer

    way = "SCRAM-SHA-512"
    errors: list[Any] = []
    statistics: list[dict[str, Any]] = []
    topic = shared_topic("confluent-kafka", way)
    login: dict[str, Any] = {**world.login(way).librdkafka(), "error_cb": errors.append}
    watching = {"statistics.interval.ms": 200, "stats_cb": lambda text: statistics.append(json.loads(text))}
    producer = Producer({**login, **watching})
    consumer = Consumer({**login, "group.id": OWN_GROUP + topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    sent = read = 0
    end = time.monotonic() + WORK_MS / 1000
    try:
        while time.monotonic() < end or (read < sent and time.monotonic() < end + WAIT_S):
            if time.monotonic() < end:
                producer.produce(topic, b"tea", on_delivery=lambda error, _: errors.append(error) if error else None)
                sent += 1
                producer.poll(0.005)
            message = consumer.poll(0.005)
            if message is not None:
                assert message.error() is None
                read += 1
        assert producer.flush(WAIT_S) == 0
    finally:
        consumer.close()
    assert (sent, errors) == (read, [])
    # The connection that carried the records was never lost: the login was renewed on it.
    leader = max(statistics[-1]["brokers"].values(), key=lambda each: int(each["tx"]))
    assert leader["disconnects"] == 0
    assert leader["req"]["SaslAuthenticate"] >= 2 * (WORK_MS // LOGIN_MS - 1)
