"""A broker starts on a disk that is full: it serves reads, retention makes room, and writes resume."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage

import pytest

from tidemill.testing import Broker

SIZE = "size=64m"
RECORDS = 24_000
PIECE = b"x" * 4096
WAIT_S = 60
SETTINGS = {"tidemill.tend.interval.ms": "300"}
FLAGS = {"http": "none"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", SIZE, "tmpfs", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def _fill(place: Path) -> None:
    with (place / "ballast").open("wb", buffering=0) as file:
        for piece in (PIECE, b"x"):
            try:
                while file.write(piece):
                    pass
            except OSError:
                continue
    assert disk_usage(place).free == 0


def _produce(broker: Broker, count: int) -> int:
    """How many records were refused."""
    from confluent_kafka import Producer

    refused: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 3000, "log_level": 0})
    for _ in range(count):
        producer.produce(
            "orders", os.urandom(1000), on_delivery=lambda error, _: refused.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    return len(refused)


def _read(broker: Broker) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    count = 0
    while count < RECORDS:
        found = consumer.consume(1000, WAIT_S)
        assert found, f"nothing after {count} records"
        assert not any(message.error() for message in found)
        count += len(found)
    consumer.close()
    return count


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
@pytest.mark.parametrize("how", ["stop", pytest.param("kill", marks=pytest.mark.long)])
def test_a_broker_starts_on_a_full_disk(small_disk: Path, how: str) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

    broker = Broker(process=True, data_dir=small_disk / "data", flags=FLAGS, settings=SETTINGS).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("orders", 1, config={"segment.bytes": str(1 << 20)})])["orders"].result(WAIT_S)
        assert _produce(broker, RECORDS) == 0
        getattr(broker, how)()
        _fill(small_disk)
        broker = Broker(process=True, data_dir=small_disk / "data", flags=FLAGS, settings=SETTINGS).start()
        assert _read(broker) == RECORDS
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        change = ConfigEntry("retention.bytes", str(1 << 20), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[change])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while _produce(broker, 1):
            assert time.monotonic() < deadline, "retention made no room"
    finally:
        broker.stop()
