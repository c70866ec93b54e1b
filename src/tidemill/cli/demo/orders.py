"""A seeded stream of orders: the same seed gives the same orders, only their times differ."""

import json
import random
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from confluent_kafka import KafkaError, Message, Producer

TOPIC = "orders"
PARTITIONS = 2
ITEMS = {"tea": 4.5, "coffee": 6.9, "honey": 8.25, "bread": 3.2, "cheese": 11.4, "apples": 2.75, "candles": 14.0}
CUSTOMERS = 500
QUANTITY_MAX = 5
TICK_S = 0.05
FLUSH_S = 60.0
QUIET = 0
"""librdkafka's log level for clients whose broker stops at the same time."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order of a customer."""

    id: int
    item: str
    price: float
    quantity: int
    customer: str
    at: str


def draw(choice: random.Random, number: int, at: datetime) -> Order:
    """The next order."""
    item = choice.choice(list(ITEMS))
    price = round(ITEMS[item] * choice.uniform(0.9, 1.1), 2)
    quantity = choice.randint(1, QUANTITY_MAX)
    customer = f"customer-{choice.randrange(CUSTOMERS):03}"
    return Order(number, item, price, quantity, customer, at.isoformat(timespec="milliseconds"))


class Orders:
    """Writes orders at a given rate until `stop`."""

    def __init__(self, servers: str, rate: float, seed: int) -> None:
        self.written = 0
        self.failed = 0
        self._rate = rate
        self._random = random.Random(seed)  # noqa: S311 - demo data, no security
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "acks": "all", "log_level": QUIET})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-orders", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def stop(self) -> None:
        """Stop writing. All written orders are counted when this returns."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.flush(FLUSH_S)

    def _run(self) -> None:
        began, number = time.monotonic(), 0
        while not self._stopping.wait(TICK_S):
            until = int((time.monotonic() - began) * self._rate)
            while number < until and not self._stopping.is_set():
                number += 1
                self._write(draw(self._random, number, datetime.now(UTC)))
            self._producer.poll(0)

    def _write(self, order: Order) -> None:
        value = json.dumps(asdict(order)).encode()
        while True:
            try:
                self._producer.produce(TOPIC, value, order.customer.encode(), on_delivery=self._delivered)
            except BufferError:  # the queue is full: wait for the broker
                self._producer.poll(TICK_S)
            else:
                return

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.written += 1
        else:
            self.failed += 1
