"""A disk that is really full under the embedded ClickHouse: a small file system that the test mounts.

Only root may mount; without that, or where mounting is not allowed, the test says so and is left out.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.testing import Broker

WAIT_S = 60.0
DISK = "160m"
BALLAST_BYTES = 48 << 20
ROUNDS_MAX = 400
PER_ROUND = 20
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)], check=False, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


class Sender:
    def __init__(self, broker: Broker) -> None:
        config = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "compression.type": "none"}
        self._producer = Producer({**config, "message.timeout.ms": 3000, "retries": 0})
        self.acked: dict[int, bytes] = {}
        self.failed: list[str] = []

    def send(self, count: int) -> None:
        """Values that do not compress."""
        for _ in range(count):
            self._producer.produce("t", os.urandom(50_000), partition=0, on_delivery=self._reported)
        assert self._producer.flush(WAIT_S) == 0

    def _reported(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error.name()))  # type: ignore[attr-defined]  # the client has no types
        else:
            self.acked[message.offset()] = message.value()  # type: ignore[attr-defined]


def read(broker: Broker, end: int) -> dict[int, bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition("t", 0, 0)])
    seen: dict[int, bytes] = {}
    limit = time.monotonic() + WAIT_S
    while (end - 1) not in seen and time.monotonic() < limit:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None
            seen[message.offset()] = message.value()
    consumer.close()
    return seen


@pytest.mark.long
def test_a_full_disk_refuses_records_whole_and_takes_them_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    flags = {"streams": "chdb:", "grpc": "none"}
    with Broker(process=True, data_dir=small_disk / "data", flags=flags, settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(WAIT_S)
        sender = Sender(broker)
        for _ in range(ROUNDS_MAX):
            sender.send(PER_ROUND)
            if sender.failed:
                break
        print(f"{len(sender.acked)} acknowledged, then {sender.failed}")
        assert set(sender.failed) <= {"KAFKA_STORAGE_ERROR", "_MSG_TIMED_OUT"}, "a producer may try again"
        assert sender.failed
        before = dict(sender.acked)
        ballast.unlink()
        limit = time.monotonic() + WAIT_S
        while len(sender.acked) < len(before) + PER_ROUND:
            assert time.monotonic() < limit, "it does not go on"
            sender.send(1)
        broker.kill()
        broker.restart()
        assert read(broker, max(sender.acked) + 1) == sender.acked
        assert sorted(sender.acked) == list(range(len(sender.acked))), "no hole, and nothing of what was refused"
