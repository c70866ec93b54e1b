"""p50 and p99 of a produce, and from produce to consume, at fixed rates, compared with Apache Kafka in one run.

python -m benchmarks.latency [--rates 100 1000] [--seconds 5] [--acks all]
"""

import argparse
import threading
import time
from typing import NamedTuple

from benchmarks import machine, peers
from benchmarks.throughput import brokers, create


class Spread(NamedTuple):
    """Percentiles in milliseconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, values_s: list[float]) -> "Spread":
        ordered = sorted(values_s)
        return cls(ordered[len(ordered) // 2] * 1e3, ordered[int(len(ordered) * 0.99)] * 1e3)


def measure(peer: peers.Peer, rate: int, seconds: int, acks: str) -> tuple[Spread, Spread]:
    topic = f"latency-{rate}"
    create(peer.address, topic, 1)
    count = rate * seconds
    end_to_end: list[float] = []
    reader = threading.Thread(target=_read, args=(peer.address, topic, count, end_to_end))
    reader.start()
    acknowledged = _write(peer.address, topic, rate, count, acks)
    reader.join(60)
    return Spread.of(acknowledged), Spread.of(end_to_end)


def _write(address: str, topic: str, rate: int, count: int, acks: str) -> list[float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "acks": acks, "linger.ms": 0})
    took: list[float] = []
    began = time.perf_counter()
    for index in range(count):
        due = began + index / rate
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        sent = time.perf_counter()
        producer.produce(
            topic, b"%.9f" % sent, partition=0, on_delivery=lambda _, __, at=sent: took.append(time.perf_counter() - at)
        )
    producer.flush(60)
    return took


def _read(address: str, topic: str, count: int, took: list[float]) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "latency", "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while len(took) < count:
        message = consumer.poll(60)
        if message is None:
            break
        if not message.error():
            took.append(time.perf_counter() - float(message.value()))
    consumer.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rates", type=int, nargs="+", default=[100, 1_000])
    options.add_argument("--seconds", type=int, default=5)
    options.add_argument("--acks", default="all")
    options.add_argument("--full", action="store_true", help="longer")
    chosen = options.parse_args()
    machine.head("latency")
    seconds = chosen.seconds * (4 if chosen.full else 1)
    with brokers() as running:
        print(f"{'rate/s':>7} {'broker':<10}{'produce p50 ms':>15}{'p99 ms':>9}{'end to end p50 ms':>19}{'p99 ms':>9}")
        for rate in chosen.rates:
            found = [measure(peer, rate, seconds, chosen.acks) for peer in running]
            for peer, (produced, seen) in zip(running, found, strict=True):
                print(
                    f"{rate:>7} {peer.name:<10}{produced.p50:>15.2f}{produced.p99:>9.2f}{seen.p50:>19.2f}{seen.p99:>9.2f}",
                    flush=True,
                )
            if len(found) == 2:
                (ours, ours_seen), (theirs, theirs_seen) = found
                print(
                    f"{rate:>7} ratio to Apache Kafka: produce p50 {ours.p50 / theirs.p50:.2f}x, end to end p50 {ours_seen.p50 / theirs_seen.p50:.2f}x"
                )


if __name__ == "__main__":
    main()
