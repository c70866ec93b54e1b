"""Transactions: throughput relative to plain produce on the same broker, compared with Apache Kafka in one run.

python -m benchmarks.transactions [--full]
"""

import argparse
import time

from confluent_kafka import Producer

from benchmarks import machine, peers
from benchmarks.throughput import brokers, create

VALUE = bytes(1024)


def rate(peer: peers.Peer, total: int, each: int) -> float:
    """Records a second, committed every `each` records; 0 means without transactions."""
    topic = f"txn-{each}"
    create(peer.address, topic, 3)
    settings = {"bootstrap.servers": peer.address, "linger.ms": 5, "enable.idempotence": True}
    if each:
        settings["transactional.id"] = topic
    producer = Producer(settings)
    if each:
        producer.init_transactions(60)
    began = time.perf_counter()
    for start in range(0, total, each or total):
        if each:
            producer.begin_transaction()
        for index in range(start, min(total, start + (each or total))):
            while True:
                try:
                    producer.produce(topic, VALUE, partition=index % 3)
                    break
                except BufferError:
                    producer.poll(0.05)
        if each:
            producer.commit_transaction(60)
    assert producer.flush(60) == 0
    return total / (time.perf_counter() - began)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true")
    total = 100_000 if options.parse_args().full else 20_000
    machine.head("transactions")
    with brokers() as running:
        for peer in running:
            plain = rate(peer, total, 0)
            print(f"{peer.name:<10}plain{plain:>12,.0f} records/s")
            for each in (1_000, 100):
                found = rate(peer, total if each > 100 else total // 4, each)
                print(f"{peer.name:<10}by {each:>5}{found:>9,.0f} records/s, {found / plain:.2f}x of plain", flush=True)


if __name__ == "__main__":
    main()
