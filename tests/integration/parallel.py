"""Shared by the tests of the parallel consumer: records, a log of handled records, and committed offsets."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tidemill.client.parallel.record import ParallelRecord
from tidemill.testing import Broker

WAIT_S = 60
INTERRUPTS_MAX = 5
INTERRUPT_S = 15


def fill(broker: Broker, topic: str, count: int, keys: int = 50) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for index in range(count):
        producer.produce(topic, b"%d" % index, key=b"k%d" % (index % keys), partition=index % keys % 2)
    assert producer.flush(WAIT_S) == 0


def committed(broker: Broker, group: str, topic: str) -> dict[int, tuple[int, str]]:
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    try:
        found = reader.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], WAIT_S)
    finally:
        reader.close()
    return {each.partition: (each.offset, each.metadata or "") for each in found}


def config(broker: Broker, group: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, **more}


class Book:
    """The records that handlers saw. Stops the consumer when it has seen enough."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._lock = threading.Lock()
        self.seen: list[tuple[int, bytes | None, int]] = []
        self.stop: Callable[[], None] = lambda: None

    def write(self, record: ParallelRecord) -> None:
        with self._lock:
            self.seen.append((record.partition, record.key, record.offset))
            if len(self.seen) >= self._enough:
                self.stop()

    def in_order(self) -> bool:
        last: dict[tuple[int, bytes | None], int] = {}
        for partition, key, offset in self.seen:
            if offset <= last.get((partition, key), -1):
                return False
            last[partition, key] = offset
        return True


def interrupt(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Send Ctrl-C to a process group until it has ended. On a busy machine two signals may be merged into one."""
    for _ in range(INTERRUPTS_MAX):
        os.killpg(process.pid, signal.SIGINT)
        try:
            return process.communicate(timeout=INTERRUPT_S)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("it did not end")
