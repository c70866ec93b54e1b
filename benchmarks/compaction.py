"""Compaction: MB/s of log, and the latency of producers of another topic meanwhile.

A topic without compaction is filled, then compaction is enabled. Producers of another topic send at a fixed rate,
before (`without`) and while compaction runs (`with`), in one run against one broker. The limit is a copy of the
same files.

python -m benchmarks.compaction [--mb 200] [--rate 200] [--full]
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from benchmarks import machine, peers
from benchmarks.latency import Spread
from benchmarks.throughput import create

SEGMENT_BYTES = 16 * 1024 * 1024
VALUE_BYTES = 1_000
COPIES_OF_EACH_KEY = 10
TEND_MS = 100
LIMIT_S = 600
PIECE_BYTES = 1024 * 1024


def fill(address: str, megabytes: int) -> int:
    """Write records of which compaction keeps one in ten; returns about the bytes that remain."""
    settings = {"segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01", "cleanup.policy": "delete"}
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("table", 1, 1, config=settings)])["table"].result(60)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "batch.size": 65_536, "acks": "1"})
    count = megabytes * 1_000_000 // VALUE_BYTES
    for number in range(count):
        while True:
            try:
                key = b"%d" % (number % (count // COPIES_OF_EACH_KEY))
                producer.produce("table", random.randbytes(VALUE_BYTES), key, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0
    return count // COPIES_OF_EACH_KEY * VALUE_BYTES


def compact(address: str) -> None:
    """Enable compaction of the topic."""
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "table", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address})
    admin.incremental_alter_configs([resource])[resource].result(60)


def paced(producer: Producer, rate: int, done: Callable[[], bool]) -> Spread:
    """Send at a fixed rate until `done`; returns the response times."""
    took: list[float] = []

    def answered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        took.append(message.latency() or 0.0)

    began, number = time.perf_counter(), 0
    while not done():
        while (left := began + number / rate - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce("orders", bytes(100), partition=0, on_delivery=answered)
        number += 1
    assert producer.flush(60) == 0
    return Spread.of(took)


def size_of(folder: Path) -> int:
    """Bytes in the segments; a file that is deleted meanwhile counts as 0."""
    total = 0
    for path in folder.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def copy_mb_s(folder: Path) -> float:
    """The limit: the same bytes, read and written once, and flushed."""
    began, total = time.perf_counter(), 0
    with tempfile.TemporaryFile(dir=folder) as target:
        for path in sorted(folder.glob("*.log")):
            with path.open("rb") as source:
                while piece := source.read(PIECE_BYTES):
                    total += target.write(piece)
        target.flush()
        os.fsync(target.fileno())
    return total / 1e6 / (time.perf_counter() - began)


def measure(address: str, folder: Path, megabytes: int, rate: int, seconds: float) -> None:
    create(address, "orders", 1)
    staying = fill(address, megabytes)
    before, limit = size_of(folder), copy_mb_s(folder)
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    until = time.monotonic() + 1
    paced(producer, rate, lambda: time.monotonic() > until)  # connects and warms the code up
    until = time.monotonic() + seconds
    without = paced(producer, rate, lambda: time.monotonic() > until)
    began = time.monotonic()
    compact(address)
    ended: list[float] = []

    def compacted() -> bool:
        if size_of(folder) < staying * 1.2 + SEGMENT_BYTES:
            ended.append(time.monotonic())
        return bool(ended) or time.monotonic() > began + LIMIT_S

    during = paced(producer, rate, compacted)
    assert ended, "compaction did not end"
    speed = (before - SEGMENT_BYTES) / 1e6 / (ended[0] - began)
    print(f"log {before / 1e6:.0f} MB before, {size_of(folder) / 1e6:.0f} MB after, in {ended[0] - began:.1f} s")
    print(f"compaction {speed:.1f} MB/s, {speed / limit:.2f}x of a copy of the same files ({limit:.0f} MB/s)")
    print(f"{'produce, acks=all':<20}{'p50 ms':>9}{'p99 ms':>9}")
    print(f"{'without compaction':<20}{without.p50:>9.2f}{without.p99:>9.2f}")
    print(f"{'with compaction':<20}{during.p50:>9.2f}{during.p99:>9.2f}")
    print(
        f"ratio with to without: p50 {during.p50 / without.p50:.2f}x, p99 {during.p99 / without.p99:.2f}x", flush=True
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mb", type=int, default=200, help="size of the log that is compacted")
    options.add_argument("--rate", type=int, default=200, help="records a second to the other topic")
    options.add_argument("--full", action="store_true", help="five times as much")
    chosen = options.parse_args()
    machine.head("compaction")
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as data:
        flags = ["--data-dir", data, "--set", f"tidemill.tend.interval.ms={TEND_MS}"]
        with peers.tidemill(*flags) as ours:
            folder = Path(data, "streams", "table", "0")
            measure(ours.address, folder, chosen.mb * (5 if chosen.full else 1), chosen.rate, 5)


if __name__ == "__main__":
    main()
