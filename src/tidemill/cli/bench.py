"""`tidemill bench`: what a broker does on this machine, measured through the client that users run in production.

Three things: records as fast as they can be written, the same records read, and single records on their way from a
producer to a consumer. It speaks Kafka's protocol alone, so that other brokers are measured by the same program.
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
    told,
)
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json
from tidemill.cli.output import Advance, progress, remark, show
from tidemill.cli.produce import ACKS

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from tidemill.pipelines.core.broker import KafkaBroker

AT_ONCE = 1_000
FETCH_WAIT_MS = 10
MEGABYTE = 1_000_000
COLUMNS = ("what", "records", "seconds", "per_second", "mb_per_second", "p50_ms", "p99_ms")


class Load(NamedTuple):
    """What is sent where."""

    topic: str
    partitions: int
    records: int
    value: bytes
    acks: str


def bench(
    records: Annotated[int, typer.Option(help="Records that are written and read.", min=1)] = 100_000,
    size: Annotated[int, typer.Option(help="Bytes of a record.", min=0)] = 1_000,
    singles: Annotated[int, typer.Option(help="Records that go one by one, for the latency.", min=0)] = 500,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Partitions of the topic.", min=1, max=PARTITIONS_MAX)
    ] = 1,
    acks: Annotated[str, typer.Option(help="0, 1 or all.")] = "all",
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Measure a broker: writing, reading, and the way of one record to a consumer.

    It makes a topic of its own and deletes it at the end. Any Kafka broker can be measured, for a comparison on the
    same machine. The client works too, and on few cores takes its part of them.

    Example: tidemill bench --records 1000000 --size 100 --acks 1
    """
    if acks not in ACKS:
        raise WrongUse(f"--acks {acks} is none of {', '.join(ACKS)}")
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
    """The topic is there, and goes again whatever happens."""
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
            if number % AT_ONCE == 0:  # a bar that moves with each record would be what is measured
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
    """Records that are sent when the one before has arrived."""
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
    """A producer that gives up at the first record that was refused."""

    def __init__(self, load: Load, broker: "KafkaBroker", **more: Any) -> None:
        from confluent_kafka import Producer

        self._topic, self._value = load.topic, load.value
        self._producer: Producer = Producer(client_settings(broker, acks=load.acks, **{"linger.ms": 5, **more}))
        self._error: str | None = None

    def send(self, partition: int) -> None:
        """One record, as soon as there is room for it."""
        while True:
            try:
                with told(f"write to {self._topic}"):
                    self._producer.produce(self._topic, self._value, partition=partition, on_delivery=self._answered)
            except BufferError:
                self._producer.poll(TIMEOUT_S)
            else:
                break
        self._producer.poll(0)
        self._check()

    def finish(self) -> None:
        """Everything that was sent is answered."""
        left = self._producer.flush(TIMEOUT_S)
        self._check()
        if left:
            raise CommandFailed(f"{left:,} records were not answered within {TIMEOUT_S:g} s")

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
    """Where partition 0 ends."""
    from confluent_kafka import TopicPartition

    consumer = _consumer(load, broker)
    with told(f"ask for the end of {load.topic}"):
        _, end = consumer.get_watermark_offsets(TopicPartition(load.topic, 0), TIMEOUT_S)
    consumer.close()
    return int(end)


def _take(consumer: "Consumer", count: int, advance: Advance) -> None:
    """Read so many records."""
    while count:
        found = consumer.consume(min(count, AT_ONCE), TIMEOUT_S)
        if not found:
            raise CommandFailed(f"no record came within {TIMEOUT_S:g} s, and {count:,} are missing")
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
    """The value that this share of all do not exceed."""
    return ordered[ceil(share * len(ordered)) - 1]
