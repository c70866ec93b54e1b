"""MB/s, records/s, processor time per GB and memory, compared with Apache Kafka and a socket that writes a file.

    python -m benchmarks.throughput [--full] [--mb 200]

librdkafka produces the load, in a separate process. Every row of one case is measured in the same run on the same disk.
"""

import argparse
import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks import machine, peers

VALUE_SIZES = (100, 1024)
BATCH_BYTES = (16_384, 1_000_000)
ACKS = ("1", "all")
PARTITIONS = (1, 12)


class Case(NamedTuple):
    """One combination of sizes, acks and partitions."""

    size: int
    batch: int
    acks: str
    partitions: int


class Figure(NamedTuple):
    """The results of one broker in one case."""

    produce_mb_s: float
    consume_mb_s: float
    cpu_s_per_gb: float
    resident_mb: float


def cases(full: bool) -> Iterator[Case]:
    if full:
        yield from itertools.starmap(Case, itertools.product(VALUE_SIZES, BATCH_BYTES, ACKS, PARTITIONS))
    else:
        yield Case(1024, 16_384, "all", 1)
        yield Case(1024, 1_000_000, "1", 12)
        yield Case(100, 16_384, "1", 1)


def measure(peer: peers.Peer, case: Case, total_bytes: int) -> Figure:
    topic = f"t{case.size}-{case.batch}-{case.acks}-{case.partitions}"
    create(peer.address, topic, case.partitions)
    count = total_bytes // case.size
    before = peer.cpu_s()
    wrote_s = produce(peer.address, topic, case, count)
    read_s = consume(peer.address, topic, case.partitions, count)
    used = peer.cpu_s() - before
    return Figure(
        total_bytes / wrote_s / 1e6, total_bytes / read_s / 1e6, used / (total_bytes / 1e9), peer.resident_mb()
    )


def create(address: str, topic: str, partitions: int, login: Mapping[str, str] | None = None) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({**(login or {}), "bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def produce(address: str, topic: str, case: Case, count: int, login: Mapping[str, str] | None = None) -> float:
    from confluent_kafka import Producer

    producer = Producer(
        {
            **(login or {}),
            "bootstrap.servers": address,
            "acks": case.acks,
            "batch.size": case.batch,
            "linger.ms": 5,
            "message.max.bytes": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 << 10,
        },
    )
    value = bytes(case.size)
    failed: list[object] = []
    began = time.perf_counter()
    for index in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=index // 200 % case.partitions, on_delivery=_noting(failed))
                break
            except BufferError:
                producer.poll(0.05)
        if not index & 0xFFF:
            producer.poll(0)
    left = producer.flush(120)
    assert not left and not failed, (left, failed[:1])
    return time.perf_counter() - began


def _noting(failed: list[object]) -> object:
    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    return delivered


def consume(address: str, topic: str, partitions: int, count: int, login: Mapping[str, str] | None = None) -> float:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings = {"group.id": "bench", "enable.auto.commit": False, "fetch.max.bytes": 50 << 20}
    consumer = Consumer({**(login or {}), "bootstrap.servers": address, **settings})
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    left = count
    while left:
        got = consumer.consume(min(left, 10_000), 60)
        assert got, f"{left} records are missing"
        left -= len(got)
    took = time.perf_counter() - began
    consumer.close()
    return took


@contextmanager
def brokers(*flags: str) -> Iterator[list[peers.Peer]]:
    """Tidemill with these flags, and Apache Kafka if available."""
    with peers.tidemill(*flags) as ours, peers.kafka() as theirs:
        yield [ours] + ([theirs] if theirs else [])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true", help="every combination")
    options.add_argument("--mb", type=int, default=200, help="payload of each case")
    chosen = options.parse_args()
    machine.head("throughput")
    total_bytes = chosen.mb * 1_000_000
    with brokers() as running:
        print(
            f"{'case':<44}{'broker':<10}{'produce MB/s':>13}{'records/s':>11}{'consume MB/s':>13}{'cpu s/GB':>10}{'RSS MB':>8}{'of the limit':>13}"
        )
        for case in cases(chosen.full):
            limit, _ = peers.sink_rate(bytes(case.batch), total_bytes)
            name = f"{case.size} B, batch {case.batch}, acks={case.acks}, {case.partitions} partitions"
            print(f"{name:<44}{'limit':<10}{limit:>13.0f}")
            figures = [measure(peer, case, total_bytes) for peer in running]
            for peer, each in zip(running, figures, strict=True):
                rate = each.produce_mb_s * 1e6 / case.size
                print(
                    f"{'':<44}{peer.name:<10}{each.produce_mb_s:>13.0f}{rate:>11.0f}{each.consume_mb_s:>13.0f}"
                    f"{each.cpu_s_per_gb:>10.1f}{each.resident_mb:>8.0f}{each.produce_mb_s / limit:>12.2f}x",
                    flush=True,
                )
            if len(figures) == 2:
                ours, theirs = figures
                print(
                    f"{'':<44}ratio to Apache Kafka: produce {ours.produce_mb_s / theirs.produce_mb_s:.2f}x, "
                    f"consume {ours.consume_mb_s / theirs.consume_mb_s:.2f}x, cpu {ours.cpu_s_per_gb / theirs.cpu_s_per_gb:.2f}x",
                )


if __name__ == "__main__":
    main()
