"""A shop on three brokers for pages of the console: topics with traffic, groups that read and lag, and timelines.

Its clients run in threads until the world ends. What they write comes from a seed, so two worlds show the same names.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_processes import Brokers, running_brokers

from tidemill import Message, Timeline

ANY = "127.0.0.1:0"
WAIT_S = 60.0
HOUR_S = 3_600
TICK_S = 0.25
SEED = 20
REMINDERS = 1_500
REMINDERS_LATE = 12
GOODS = ("teapot", "kettle", "cup", "saucer", "tray", "strainer")
CITIES = ("Oslo", "Bergen", "Malmö", "Turku", "Aarhus", "Tartu")
TOPICS = (
    NewTopic("orders", 6, 3, config={"min.insync.replicas": "2"}),
    NewTopic("payments", 3, 3, config={"min.insync.replicas": "2"}),
    NewTopic("clicks", 3, 2, config={"retention.ms": "86400000"}),
    NewTopic("customers", 2, 3, config={"cleanup.policy": "compact"}),
    NewTopic("orders.dlq", 1, 3),
    NewTopic("revenue", 2, 3),
    NewTopic("newsletters", 1, 3, config={"tidemill.schedule.enable": "true"}),
)


class Shop:
    """The clients of the shop at the brokers."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self._random = Random(SEED)
        self._orders = 0

    def url(self, number: int) -> str:
        """The address of a broker's console."""
        return f"http://{self.brokers.servers[number]['http']}"

    def fill(self) -> None:
        """Create the topics and write the first records, groups and messages."""
        admin = AdminClient({"bootstrap.servers": self.brokers.bootstrap})
        for future in admin.create_topics(list(TOPICS)).values():
            future.result(WAIT_S)
        producer = self._producer()
        for _ in range(40):
            self.sell(producer)
        self._pay()
        for number in range(9):
            producer.produce("orders.dlq", b'{"error": "no such city"}', b"order-%d" % number)
        assert producer.flush(WAIT_S) == 0
        self._remember()

    def sell(self, producer: Producer) -> None:
        """Some orders, clicks and customers."""
        for _ in range(5):
            self._orders += 1
            city = self._random.choice(CITIES)
            order = {
                "order": self._orders,
                "item": self._random.choice(GOODS),
                "quantity": self._random.randint(1, 6),
                "city": city,
                "price": round(self._random.uniform(9, 90), 2),
            }
            key = f"customer-{self._random.randint(1, 300)}"
            producer.produce("orders", json.dumps(order).encode(), key, headers={"source": b"web", "trace": b"5f2c"})
            producer.produce("customers", json.dumps({"city": city}).encode(), key)
        for _ in range(20):
            producer.produce("clicks", b'{"page": "/goods/%d"}' % self._random.randint(1, 40))
        producer.poll(0)

    def _pay(self) -> None:
        producer = self._producer({"transactional.id": "checkout"})
        producer.init_transactions(WAIT_S)
        for number in range(6):
            producer.begin_transaction()
            for each in range(4):
                producer.produce("payments", b'{"amount": %d}' % (10 + each), f"order-{number}")
            if number == 4:
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)

    def _remember(self) -> None:
        now = time.time()
        with Timeline(str(self.brokers.servers[1]["grpc"]), "reminders") as opened:
            opened.create()
            opened.schedule([self._reminder(number, now) for number in range(REMINDERS)])
        with Timeline(str(self.brokers.servers[2]["grpc"]), "retries") as opened:
            opened.create()
            opened.schedule([Message(b'{"attempt": 2}', now + 60 * each, f"retry-{each}") for each in range(40)])

    def _reminder(self, number: int, now: float) -> Message:
        late = number < REMINDERS_LATE
        # Most people want their tea at noon: a hump makes a histogram with a shape.
        ahead = -30.0 * number if late else max(30.0, self._random.gauss(7, 3.5) * HOUR_S)
        body = json.dumps({"say": "tea is ready", "customer": self._random.randint(1, 300)})
        return Message(body.encode(), now + ahead, f"reminder-{number}", f"customer-{number % 300}".encode())

    def _producer(self, options: dict[str, Any] | None = None) -> Producer:
        return Producer({"bootstrap.servers": self.brokers.bootstrap, "client.id": "shop", **(options or {})})

    def keep_selling(self, stop: threading.Event) -> None:
        """Write at a rate that rises and falls, until `stop`."""
        producer = self._producer()
        while not stop.wait(TICK_S * self._random.uniform(0.5, 2)):
            self.sell(producer)
        producer.flush(WAIT_S)

    def keep_reading(
        self, stop: threading.Event, group: str, topic: str, wait_s: float, options: dict[str, Any]
    ) -> None:
        """Read as a member of a group, with a pause after each poll, until `stop`."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.brokers.bootstrap,
                "group.id": group,
                "client.id": f"{group}-1",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                **options,
            }
        )
        consumer.subscribe([topic])
        while not stop.is_set():
            consumer.consume(10, TICK_S)
            stop.wait(wait_s)
        consumer.close()

    def keep_reminding(self, stop: threading.Event) -> None:
        """Deliver reminders slowly, and hold a few of them, until `stop`."""
        with Timeline(str(self.brokers.servers[1]["grpc"]), "reminders") as opened:
            while not stop.is_set():
                for number, lease in enumerate(opened.work(consumer_id="courier-1", max_in_flight=6, idle_ms=1_000)):
                    if number % 4:
                        lease.complete()
                    if stop.wait(0.4):
                        break

    def report_nightly(self) -> None:
        """A group that has read everything once and has left."""
        consumer = Consumer(
            {"bootstrap.servers": self.brokers.bootstrap, "group.id": "nightly-report", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["payments"])
        deadline = time.monotonic() + WAIT_S
        while not consumer.consume(100, 1.0):
            if time.monotonic() > deadline:
                raise TimeoutError("the nightly report has read nothing")
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            raise AssertionError(f"the nightly report could not commit: {error}") from error
        consumer.close()


@contextmanager
def running_shop(timelines: str = "sqlite:") -> Iterator[Shop]:
    """The brokers and the clients of the shop, during the block."""
    with ExitStack() as opened:
        brokers = opened.enter_context(running_brokers(grpc=ANY, http=ANY, timelines=timelines))
        shop = Shop(brokers)
        shop.fill()
        shop.report_nightly()
        stop = threading.Event()
        work: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (shop.keep_selling, ()),
            (shop.keep_reminding, ()),
            (shop.keep_reading, ("billing", "orders", 0.0, {})),
            (shop.keep_reading, ("warehouse", "orders", 1.5, {})),
            (shop.keep_reading, ("search-indexer", "clicks", 0.1, {"group.protocol": "consumer"})),
        ]
        threads = [threading.Thread(target=each, args=(stop, *more)) for each, more in work]
        for thread in threads:
            thread.start()
        try:
            yield shop
        finally:
            stop.set()
            for thread in threads:
                thread.join()
