"""Handle orders with fifty threads, in the order of their keys; what keeps failing becomes a dead letter.

Run it against `tidemill serve`: python examples/parallel_sync.py
"""

import time

from confluent_kafka import Producer

from tidemill import ParallelConsumer, Retry
from tidemill.client.parallel.record import ParallelRecord

BOOTSTRAP = "127.0.0.1:9092"
TOPIC = "example-parallel-sync"
ORDERS = 200
WORK_S = 0.02


def produce() -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(ORDERS):
        producer.produce(TOPIC, key=f"user-{number % 40}", value=str(number))
    producer.flush(30)


def handle(record: ParallelRecord) -> None:
    time.sleep(WORK_S)  # a database, a web service
    if record.value == b"13":
        raise ValueError("nobody takes order 13")


def main() -> None:
    produce()
    consumer = ParallelConsumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": "example-parallel-sync"},
        [TOPIC],
        workers=50,
        retry=Retry(attempts=3, backoff_ms=20),
        dead_letter=f"{TOPIC}.dlq",
        max_records=ORDERS,  # leave it out to run until Ctrl-C
    )
    began = time.perf_counter()
    consumer.run(handle)
    took_s = time.perf_counter() - began
    stats = consumer.stats()
    print(f"{stats.completed} orders in {took_s:.1f} s, one by one {ORDERS * WORK_S:.1f} s")
    print(f"{stats.retries} tried again, {stats.dead_letters} dead letters")


if __name__ == "__main__":
    main()
