"""A broker under churn: whatever clients open and close, its descriptors and its memory stay the same."""

import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from tidemill import Message, Timeline
from tidemill.testing import Broker

WARM_ROUNDS = 2
ROUNDS = 3
CONNECTIONS = 100
TOPICS = 3
RECORDS = 200
WAIT_S = 60
SETTLE_S = 0.5
GROWTH_BYTES_MAX = 40 << 20
"""Loose: allocators keep memory; a leak of one connection or topic per round is caught by the descriptors."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(process=True, data_dir=tmp_path / "data") as running:
        yield running


def _process(data_dir: Path) -> psutil.Process:
    (found,) = [each for each in psutil.Process().children() if str(data_dir) in each.cmdline()]
    return found


def _connect(address: str, greeting: bytes = b"") -> None:
    host, port = address.rsplit(":", 1)
    opened = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS)]
    for each in opened:
        each.sendall(greeting)
        each.close()


def _use_topics(broker: Broker) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    names = [f"topic-{number}" for number in range(TOPICS)]
    for made in admin.create_topics([NewTopic(name, 1, config={"segment.bytes": "16384"}) for name in names]).values():
        made.result(WAIT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 10, "log_level": 0})
    for name in names:
        for _ in range(RECORDS):
            producer.produce(name, os.urandom(500))
    assert producer.flush(WAIT_S) == 0
    for gone in admin.delete_topics(names).values():
        gone.result(WAIT_S)


def _use_group(broker: Broker) -> None:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("kept", 0, 1)], asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.delete_consumer_groups(["g"])["g"].result(WAIT_S)


def _use_timeline(broker: Broker) -> None:
    with Timeline(broker.grpc, name="line", group="g") as timeline:
        timeline.create(lease_ms=30_000)
        timeline.schedule([Message(b"x", time.time() + 3600) for _ in range(RECORDS)])
        assert sum(bar.count for bar in timeline.histogram(time.time(), time.time() + 7200)) == RECORDS
        timeline.delete()


def _round(broker: Broker) -> None:
    _connect(broker.bootstrap_servers)
    _connect(broker.grpc, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    _connect(broker.http.removeprefix("http://"), b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with urlopen(f"{broker.http}/metrics") as answer:
        answer.read()
    _use_topics(broker)
    _use_group(broker)
    _use_timeline(broker)


def _descriptors(process: psutil.Process) -> Counter[str]:
    """What the process has open, by kind; sockets of clients are closed a moment after the client went."""
    found: Counter[str] = Counter()
    for each in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            found[str(each.readlink()).split(":[")[0]] += 1
        except OSError:
            continue
    return found


def _settled(process: psutil.Process, wanted: Counter[str]) -> Counter[str]:
    deadline = time.monotonic() + WAIT_S
    while (found := _descriptors(process)) - wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_descriptors_and_memory_do_not_grow(broker: Broker, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    process = _process(tmp_path / "data")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic("kept", 1)])["kept"].result(WAIT_S)
    for _ in range(WARM_ROUNDS):
        _round(broker)
    time.sleep(SETTLE_S)
    known = _descriptors(process)
    memory = process.memory_info().rss
    for _ in range(ROUNDS):
        _round(broker)
    grown = _settled(process, known) - known
    assert not grown, f"after {ROUNDS} more rounds: {dict(grown)}"
    assert process.memory_info().rss - memory < GROWTH_BYTES_MAX
