"""Handle orders with a hundred tasks of one event loop: the handler is a coroutine, nothing else changes.

Run it against `tidemill serve`: python examples/parallel_async.py
"""

import asyncio

from confluent_kafka import Producer

from tidemill import ParallelConsumer
from tidemill.client.parallel.record import ParallelRecord

BOOTSTRAP = "127.0.0.1:9092"
TOPIC = "example-parallel-async"
ORDERS = 500
WORK_S = 0.02


def produce() -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(ORDERS):
        producer.produce(TOPIC, key=f"user-{number % 100}", value=str(number))
    producer.flush(30)


async def handle(record: ParallelRecord) -> None:
    await asyncio.sleep(WORK_S)  # await client.post(...)
    if record.offset % 100 == 0:
        print(f"{record.partition}/{record.offset} {record.key!r} is done")


def main() -> None:
    produce()
    consumer = ParallelConsumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": "example-parallel-async"},
        [TOPIC],
        workers=100,
        max_records=ORDERS,  # leave it out to run until Ctrl-C
    )
    consumer.run(handle)
    print(f"{consumer.stats().completed} orders")


if __name__ == "__main__":
    main()
