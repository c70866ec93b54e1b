"""Clients of two families that run at the same time: idempotent producers, and consumers in groups."""

import asyncio
import faulthandler
import logging
import threading
import time
from collections.abc import Callable, Mapping

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.chaos.history import SEPARATOR, History, Read, Sent

DELIVERY_S = 120
STOP_S = 30.0
SETTINGS = {"socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 1000, "log_level": 0}


def value_of(producer: str, partition: int, number: int) -> bytes:
    """A value that only this producer sends, once."""
    return SEPARATOR.join([producer.encode(), b"%d" % partition, b"%d" % number])


class Workload:
    """All clients that use the cluster while faults happen."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float) -> None:
        self.history = History()
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._pause_s = 1 / rate
        self._lock = threading.Lock()
        self._sending = threading.Event()
        self._consuming = threading.Event()
        self._producers: list[threading.Thread] = []
        self._consumers: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def start(self) -> None:
        """Start one producer and two consumers of each family."""
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs every injected fault
        for name in ("librdkafka", "aiokafka"):
            self.history.polled[name] = []
        self._begin("librdkafka", self._producers, self._produce_librdkafka)
        self._begin("aiokafka", self._producers, lambda: asyncio.run(self._produce_aiokafka()))
        for _ in range(2):
            self._begin("librdkafka", self._consumers, self._consume_librdkafka)
        self._begin("aiokafka", self._consumers, lambda: asyncio.run(self._consume_aiokafka()))

    def stop_sending(self) -> None:
        """Wait until every send has an outcome."""
        self._sending.set()
        for thread in self._producers:
            thread.join(DELIVERY_S + 30)
            assert not thread.is_alive(), "a producer does not end"

    def stop_consuming(self, within_s: float = 60.0) -> list[str]:
        """Wait until both groups have read everything, then stop the consumers. Returns those that do not stop."""
        end = time.monotonic() + within_s
        while time.monotonic() < end and not all(self._has_everything(group) for group in self.history.polled):
            time.sleep(0.2)
        self._consuming.set()
        for thread in self._consumers:
            thread.join(60)
        stuck = [thread.name for thread in self._consumers if thread.is_alive()]
        logging.getLogger("aiokafka").setLevel(logging.NOTSET)  # other tests in this process read its log
        if stuck:
            faulthandler.dump_traceback()
        return [f"{name}: {self._group(name)}" for name in stuck]

    def _group(self, name: str) -> str:
        """The coordinator's view of a group, to explain a consumer that does not stop."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, **SETTINGS})
        found = admin.describe_consumer_groups([name])[name].result(30)
        return f"the group is {found.state.name} with {len(found.members)} members at broker {found.coordinator.id}"

    def acknowledged(self) -> list[Sent]:
        """The sends acknowledged so far."""
        with self._lock:
            return list(self.history.acknowledged.values())

    def read_everything(self, copies: Mapping[str, str]) -> None:
        """Read the whole log and its copies with a consumer outside of any group."""
        self.history.final = self._read(self._topic)
        self.history.copies = {copier: self._read(topic) for copier, topic in copies.items()}

    def _read(self, topic: str) -> list[Read]:
        """Every committed record of a topic."""
        group = {"group.id": "final", "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **group, **SETTINGS})
        consumer.assign([TopicPartition(topic, index, 0) for index in range(self._partitions)])
        left = set(range(self._partitions))
        rows: list[Read] = []
        deadline = time.monotonic() + 120
        while left and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            index, error = message.partition() or 0, message.error()
            if error is None:
                rows.append(Read(index, message.offset() or 0, message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(index)
        consumer.close()
        assert not left, f"partitions {left} of {topic} cannot be read to their end"
        return rows

    def _begin(self, name: str, home: list[threading.Thread], work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - the run raises it at its end
                self.failures.append(error)

        home.append(threading.Thread(target=run, name=name, daemon=True))
        home[-1].start()

    def _has_everything(self, group: str) -> bool:
        with self._lock:
            seen = {row.value for rows in self.history.polled[group] for row in rows}
            return self.history.acknowledged.keys() <= seen

    def _acknowledge(self, value: bytes, partition: int, offset: int | None) -> None:
        with self._lock:
            self.history.unknown.discard(value)
            self.history.acknowledged[value] = Sent(partition, offset, time.monotonic())

    def _sent(self, value: bytes) -> None:
        with self._lock:
            self.history.unknown.add(value)

    def _produce_librdkafka(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": DELIVERY_S * 1000,
                "request.timeout.ms": 5000,
                **SETTINGS,
            }
        )

        def done(error: object, message: object) -> None:
            if error is None:
                self._acknowledge(message.value(), message.partition(), message.offset())  # type: ignore[attr-defined]

        number = 0
        while not self._sending.is_set():
            for partition in range(self._partitions):
                value = value_of("librdkafka", partition, number)
                self._sent(value)
                producer.produce(self._topic, value, partition=partition, on_delivery=done)
            number += 1
            end = time.monotonic() + self._pause_s * self._partitions
            while (left := end - time.monotonic()) > 0:
                producer.poll(min(left, 0.05))
        producer.flush(DELIVERY_S)

    async def _produce_aiokafka(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            acks="all",
            request_timeout_ms=DELIVERY_S * 1000,
            metadata_max_age_ms=2000,
            retry_backoff_ms=50,
        )
        await producer.start()
        await producer.partitions_for(self._topic)  # otherwise a later send could overtake one that waits for metadata
        pending: set[asyncio.Task[None]] = set()

        async def send(value: bytes, partition: int) -> None:
            reported = await producer.send(self._topic, value, partition=partition)
            found = await reported
            self._acknowledge(value, found.partition, found.offset)

        try:
            number = 0
            while not self._sending.is_set():
                for partition in range(self._partitions):
                    value = value_of("aiokafka", partition, number)
                    self._sent(value)
                    task = asyncio.ensure_future(send(value, partition))
                    pending.add(task)
                    task.add_done_callback(pending.discard)
                number += 1
                await asyncio.sleep(self._pause_s * self._partitions)
            await asyncio.gather(*pending, return_exceptions=True)
        finally:
            await producer.stop()

    def _rows(self, group: str) -> list[Read]:
        """A new list for the records of one consumer until its partitions change."""
        rows: list[Read] = []
        with self._lock:
            self.history.polled[group].append(rows)
        return rows

    def _consume_librdkafka(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "librdkafka",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "auto.commit.interval.ms": 500,
                **SETTINGS,
            }
        )
        rows = [self._rows("librdkafka")]

        def begin(_: object, __: object) -> None:
            rows[0] = self._rows("librdkafka")

        consumer.subscribe([self._topic], on_assign=begin, on_revoke=begin, on_lost=begin)
        while not self._consuming.is_set():
            try:
                message = consumer.poll(0.2)
            except KafkaException:
                continue
            if message is not None and not message.error():
                row = Read(message.partition() or 0, message.offset() or 0, message.value() or b"")
                with self._lock:
                    rows[0].append(row)
        consumer.close()

    async def _consume_aiokafka(self) -> None:
        await asyncio.gather(*(self._consume_one_aiokafka() for _ in range(2)))

    async def _consume_one_aiokafka(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
            auto_commit_interval_ms=500,
            metadata_max_age_ms=2000,
            request_timeout_ms=10_000,
            retry_backoff_ms=50,
        )
        fresh = _Fresh(self)
        await consumer.start()
        consumer.subscribe([self._topic], listener=fresh)
        try:
            while not self._consuming.is_set():
                try:
                    found = await consumer.getmany(timeout_ms=200)
                except AioKafkaError:
                    continue
                for part, messages in found.items():
                    got = [Read(part.partition, message.offset, message.value or b"") for message in messages]
                    with self._lock:
                        fresh.rows.extend(got)
        finally:
            await _stop(consumer)


async def _stop(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer in spite of two bugs of aiokafka 0.14 that no broker can avoid.

    A stopping consumer does not look up its coordinator again, so one that has lost it commits forever. And a consumer
    that was about to fetch again after an error raises its own cancellation.
    """
    try:
        async with asyncio.timeout(STOP_S):
            await consumer.stop()
    except TimeoutError:
        if consumer._coordinator.coordinator_id is not None:
            raise  # it knows its coordinator, which does not answer
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise


class _Fresh(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Begins a new list whenever the assignment changes."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.rows = workload._rows("aiokafka")

    async def on_partitions_revoked(self, revoked: object) -> None:
        """Begin a new list."""
        self.rows = self._workload._rows("aiokafka")

    async def on_partitions_assigned(self, assigned: object) -> None:
        """Begin a new list."""
        self.rows = self._workload._rows("aiokafka")
