"""`tidemill bench`: measures a broker on this machine through the client that users run in production.

It measures three things: write throughput, read throughput, and the latency of single records from a producer to a
consumer. It uses only the Kafka protocol, so that the same program can measure other brokers.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tidemill.cli.connection import (
    PARTITIONS_MAX,
    TIMEOUT_S,
    Bootstrap,
    Client,
    admin,
    answer,
    broker_at,
    client_settings,
    kafka_errors,
)
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json
from tidemill.cli.output import Advance, progress, remark, show
from tidemill.cli.produce import ACKS

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from tidemill.pipelines.spec.core.broker import KafkaBroker

AT_ONCE = 1_000
FETCH_WAIT_MS = 10
MEGABYTE = 1_000_000
COLUMNS = ("what", "records", "seconds", "per_second", "mb_per_second", "p50_ms", "p99_ms")


class Load(NamedTuple):
    """The records to send and their topic."""

    topic: str
    partitions: int
    records: int
    value: bytes
    acks: str


def bench(
    records: Annotated[int, typer.Option(help="Records to write and read.", min=1)] = 100_000,
    size: Annotated[int, typer.Option(help="Size of a record in bytes.", min=0)] = 1_000,
    singles: Annotated[int, typer.Option(help="Records to send one by one, for the latency.", min=0)] = 500,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Partitions of the topic.", min=1, max=PARTITIONS_MAX)
    ] = 1,
    acks: Annotated[str, typer.Option(help="0, 1 or all.")] = "all",
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Measure a broker: write throughput, read throughput, and the latency of single records.

    The command creates a topic and deletes it at the end. It can measure any Kafka broker, for a comparison on the same
    machine. The client shares the CPU with the broker, which matters on few cores.

    Example: tidemill bench --records 1000000 --size 100 --acks 1
    """
    if acks not in ACKS:
        raise WrongUse(f"--acks {acks} is not one of {', '.join(ACKS)}")
    load = Load(f"tidemill-bench-{secrets.token_hex(4)}", partitions, records, secrets.token_bytes(size), acks)
    broker = broker_at(bootstrap, access)
    with _topic(load, broker):
        spread = f"{partitions} partition{'s' if partitions != 1 else ''}"
        remark(f"{records:,} records of {size:,} bytes, {spread}, acks={acks}, at {broker.servers}")
        rows = [_write(load, broker), _read(load, broker)]
        if singles:
            rows.append(_one_by_one(load, broker, singles))
    show(rows, COLUMNS, as_json=as_json)


@contextmanager
def _topic(load: Load, broker: "KafkaBroker") -> Iterator[None]:
    """Create the topic, and delete it at the end, whatever happens."""
    from confluent_kafka.admin import NewTopic

    client = admin(broker)
    wanted = NewTopic(load.topic, num_partitions=load.partitions, replication_factor=-1)
    answer(client.create_topics([wanted])[load.topic], f"create {load.topic}")
    try:
        yield
    finally:
        answer(client.delete_topics([load.topic], operation_timeout=TIMEOUT_S)[load.topic], f"delete {load.topic}")


def _write(load: Load, broker: "KafkaBroker") -> dict[str, Any]:
    sender = _Sender(load, broker)
    began = perf_counter()
    with progress("writing", load.records) as advance:
        for number in range(load.records):
            sender.send(number % load.partitions)
            if number % AT_ONCE == 0:  # moving the bar for each record would distort the measurement
                advance(AT_ONCE)
        sender.finish()
    return _row(f"written, acks={load.acks}", load, perf_counter() - began)


def _read(load: Load, broker: "KafkaBroker") -> dict[str, Any]:
    consumer = _consumer(load, broker)
    began = perf_counter()
    with progress("reading", load.records) as advance:
        _take(consumer, load.records, advance)
    took_s = perf_counter() - began
    consumer.close()
    return _row("read", load, took_s)


def _one_by_one(load: Load, broker: "KafkaBroker", count: int) -> dict[str, Any]:
    """Send each record when the one before has arrived."""
    single = load._replace(partitions=1, records=count)
    consumer = _consumer(single, broker, at=_end(load, broker))
    sender = _Sender(single, broker, **{"linger.ms": 0})
    times_ms: list[float] = []
    with progress("one by one", count) as advance:
        for _ in range(count):
            began = perf_counter()
            sender.send(0)
            _take(consumer, 1, advance)
            times_ms.append((perf_counter() - began) * 1_000)
    sender.finish()
    consumer.close()
    times_ms.sort()
    row = _row("one by one", single, sum(times_ms) / 1_000)
    return {**row, "p50_ms": round(_share(times_ms, 0.5), 2), "p99_ms": round(_share(times_ms, 0.99), 2)}


class _Sender:
    """A producer that stops at the first record that fails."""

    def __init__(self, load: Load, broker: "KafkaBroker", **more: Any) -> None:
        from confluent_kafka import Producer

        self._topic, self._value = load.topic, load.value
        self._producer: Producer = Producer(client_settings(broker, acks=load.acks, **{"linger.ms": 5, **more}))
        self._error: str | None = None

    def send(self, partition: int) -> None:
        """Send one record. Waits while the client's queue is full."""
        while True:
            try:
                with kafka_errors(f"write to {self._topic}"):
                    self._producer.produce(self._topic, self._value, partition=partition, on_delivery=self._answered)
            except BufferError:
                self._producer.poll(TIMEOUT_S)
            else:
                break
        self._producer.poll(0)
        self._check()

    def finish(self) -> None:
        """Wait until the broker has answered everything."""
        left = self._producer.flush(TIMEOUT_S)
        self._check()
        if left:
            raise CommandFailed(f"the broker did not answer {left:,} records within {TIMEOUT_S:g} s")

    def _answered(self, error: Any, _: "Message") -> None:
        if error is not None:
            self._error = self._error or error.str()

    def _check(self) -> None:
        if self._error is not None:
            raise CommandFailed(f"write to {self._topic}: {self._error}")


def _consumer(load: Load, broker: "KafkaBroker", at: int = 0) -> "Consumer":
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "group.id": load.topic,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": FETCH_WAIT_MS,
    }
    consumer = Consumer(client_settings(broker, **settings))
    consumer.assign([TopicPartition(load.topic, number, at) for number in range(load.partitions)])
    return consumer


def _end(load: Load, broker: "KafkaBroker") -> int:
    """The end offset of partition 0."""
    from confluent_kafka import TopicPartition

    consumer = _consumer(load, broker)
    with kafka_errors(f"read the end offset of {load.topic}"):
        _, end = consumer.get_watermark_offsets(TopicPartition(load.topic, 0), TIMEOUT_S)
    consumer.close()
    return int(end)


def _take(consumer: "Consumer", count: int, advance: Advance) -> None:
    """Read this many records."""
    while count:
        found = consumer.consume(min(count, AT_ONCE), TIMEOUT_S)
        if not found:
            raise CommandFailed(f"no record arrived within {TIMEOUT_S:g} s, and {count:,} are missing")
        for message in found:
            if message.error() is not None:
                raise CommandFailed(f"read: {message.error().str()}")
        count -= len(found)
        advance(len(found))


def _row(what: str, load: Load, took_s: float) -> dict[str, Any]:
    return {
        "what": what,
        "records": load.records,
        "seconds": round(took_s, 2),
        "per_second": round(load.records / took_s),
        "mb_per_second": round(load.records * len(load.value) / took_s / MEGABYTE, 1),
    }


def _share(ordered: list[float], share: float) -> float:
    """The percentile: the value that this share of all does not exceed."""
    return ordered[ceil(share * len(ordered)) - 1]
