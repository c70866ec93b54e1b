"""The parallel consumer on a real broker: nothing lost, order of keys kept, nothing committed past a gap."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.integration.parallel import WAIT_S, Book, committed, config, fill
from tests.support.waiting import eventually

from tidemill.client.parallel.consumer import ParallelConsumer
from tidemill.client.parallel.metadata import decode
from tidemill.client.parallel.options import Halted, InvalidOption, Retry, TooManyErrors
from tidemill.client.parallel.record import ParallelRecord
from tidemill.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", ".").replace("]", "")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(WAIT_S)
    return str(name)


@pytest.mark.parametrize("tracking", ["partition", "sequence"])
@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_every_record_once_and_in_order(broker: Broker, topic: str, kind: str, tracking: str) -> None:
    fill(broker, topic, 1_000)
    book = Book(1_000)
    consumer = ParallelConsumer(config(broker, topic), [topic], workers=50, tracking=tracking)
    book.stop = consumer.stop

    def handle(record: ParallelRecord) -> None:
        time.sleep(0.001)
        book.write(record)

    async def handle_async(record: ParallelRecord) -> None:
        await asyncio.sleep(0.001)
        book.write(record)

    consumer.run(handle if kind == "threads" else handle_async)
    assert len(book.seen) == len(set(book.seen)) == 1_000
    assert book.in_order()
    assert {place: offset for place, (offset, _) in committed(broker, topic, topic).items()} == {0: 500, 1: 500}


def test_a_gap_is_not_committed_and_a_restart_does_only_what_was_open(broker: Broker, topic: str) -> None:
    fill(broker, topic, 200, keys=200)
    release = threading.Event()
    book = Book(199)

    def handle(record: ParallelRecord) -> None:
        if (record.partition, record.offset) == (0, 3):
            release.wait(WAIT_S)
            raise SystemExit("the process ends here")
        book.write(record)

    consumer = ParallelConsumer(config(broker, topic), [topic], workers=20, commit_interval_ms=50)
    book.stop = release.set
    with pytest.raises(Halted, match="SystemExit"):
        consumer.run(handle)
    offset, metadata = committed(broker, topic, topic)[0]
    assert offset == 3
    assert [(run.first, run.last) for run in decode(offset, metadata)] == [(4, 99)]

    again = Book(1)
    second = ParallelConsumer(config(broker, topic), [topic], workers=20)
    again.stop = second.stop
    second.run(again.write)
    assert again.seen == [(0, again.seen[0][1], 3)]
    assert second.stats().skipped == 96


def test_retries_do_not_hold_others_up_and_end_as_dead_letters(broker: Broker, topic: str) -> None:
    fill(broker, topic, 100, keys=100)
    tries: Counter[tuple[int, int]] = Counter()
    book = Book(99)

    def handle(record: ParallelRecord) -> None:
        if (record.partition, record.offset) == (1, 7):
            tries[record.partition, record.offset] += 1
            assert record.attempt == tries[record.partition, record.offset]
            raise ValueError("never works")
        book.write(record)

    dead = f"{topic}.dlq"
    consumer = ParallelConsumer(
        config(broker, topic), [topic], workers=10, retry=Retry(attempts=3, backoff_ms=20), dead_letter=dead
    )
    book.stop = consumer.stop
    consumer.run(handle)
    assert tries == {(1, 7): 3}
    assert consumer.stats().dead_letters == 1
    reader = Consumer(config(broker, "dlq-reader", **{"auto.offset.reset": "earliest"}))
    reader.assign([TopicPartition(dead, 0, 0)])
    letter = reader.poll(WAIT_S)
    reader.close()
    assert letter is not None
    headers = dict(letter.headers())
    assert headers["tidemill-offset"] == b"7"
    assert headers["tidemill-attempts"] == b"3"
    assert b"never works" in headers["tidemill-reason"]


@pytest.mark.parametrize(
    ("size", "reason"),
    [(1_040_000, "too long for the database"), (5, "no such file: caf\udce9.txt")],
    ids=["large", "odd"],
)
def test_a_record_is_buried_however_large_and_whatever_the_reason(
    broker: Broker, topic: str, size: int, reason: str
) -> None:
    """As large as the topic takes, which is more than librdkafka sends; names of files need not be UTF-8."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 2_000_000})
    producer.produce(topic, b"x" * size, partition=0)
    assert producer.flush(WAIT_S) == 0

    def handle(_: ParallelRecord) -> None:
        raise ValueError(reason)

    dead = f"{topic}.dlq"
    ParallelConsumer(
        config(broker, topic), [topic], workers=1, retry=Retry(attempts=1), dead_letter=dead, max_records=1
    ).run(handle)
    assert committed(broker, topic, topic)[0][0] == 1
    reader = Consumer(config(broker, "dlq-reader"))
    reader.assign([TopicPartition(dead, 0, 0)])
    letter = reader.poll(WAIT_S)
    reader.close()
    assert letter is not None
    assert len(letter.value() or b"") == size
    assert dict(letter.headers() or [])["tidemill-reason"].startswith(b"ValueError: " + reason[:12].encode())


def test_too_many_errors_halt_loudly(broker: Broker, topic: str) -> None:
    fill(broker, topic, 50)

    def handle(record: ParallelRecord) -> None:
        raise RuntimeError("the database is gone")

    consumer = ParallelConsumer(config(broker, topic), [topic], workers=5, error_threshold=10, retry=Retry(attempts=99))
    with pytest.raises(TooManyErrors, match="the database is gone"):
        consumer.run(handle)
    assert consumer.stats().completed == 0


def test_exhausted_records_are_skipped(broker: Broker, topic: str) -> None:
    fill(broker, topic, 20)
    book = Book(19)

    def handle(record: ParallelRecord) -> None:
        if (record.partition, record.offset) == (0, 0):
            raise ValueError
        book.write(record)

    consumer = ParallelConsumer(config(broker, topic), [topic], retry=Retry(attempts=1), on_exhausted="skip", workers=4)
    book.stop = consumer.stop
    consumer.run(handle)
    assert committed(broker, topic, topic)[0][0] == 10


def test_two_consumers_share_and_take_over(broker: Broker, topic: str) -> None:
    """Handlers are held while partitions move, so that results of a lost partition come late: they are dropped."""
    fill(broker, topic, 600)
    everything, gate = Book(10**9), threading.Event()
    settings = config(broker, topic, **{"partition.assignment.strategy": "cooperative-sticky"})
    consumers = [ParallelConsumer(settings, [topic], workers=8, revoke_timeout_ms=100) for _ in range(2)]

    def handle(record: ParallelRecord) -> None:
        gate.wait(WAIT_S)
        everything.write(record)

    threads = [threading.Thread(target=consumer.run, args=(handle,)) for consumer in consumers]
    threads[0].start()
    eventually(lambda: consumers[0].stats().in_flight == 8)
    threads[1].start()
    eventually(lambda: [len(consumer.stats().assigned) for consumer in consumers] == [1, 1])
    gate.set()
    eventually(lambda: len({(partition, offset) for partition, _, offset in everything.seen}) == 600)
    consumers[0].stop()
    threads[0].join(WAIT_S)
    eventually(lambda: len(consumers[1].stats().assigned) == 2)
    consumers[1].stop()
    threads[1].join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert {place: offset for place, (offset, _) in committed(broker, topic, topic).items()} == {0: 300, 1: 300}


def test_a_slow_handler_stays_in_the_group(broker: Broker, topic: str) -> None:
    fill(broker, topic, 4, keys=4)
    book = Book(4)

    def handle(record: ParallelRecord) -> None:
        time.sleep(8)  # longer than max.poll.interval.ms: only polling meanwhile keeps the membership
        book.write(record)

    consumer = ParallelConsumer(
        config(broker, topic, **{"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000}), [topic], workers=4
    )
    book.stop = consumer.stop
    consumer.run(handle)
    assert len(book.seen) == 4
    assert consumer.stats().dropped == 0


def test_partitions_that_are_added_are_handled_too(broker: Broker, topic: str) -> None:
    fill(broker, topic, 10)
    book = Book(11)
    consumer = ParallelConsumer(
        config(broker, topic, **{"topic.metadata.refresh.interval.ms": 300}), [topic], workers=2
    )
    book.stop = consumer.stop
    thread = threading.Thread(target=consumer.run, args=(book.write,))
    thread.start()
    eventually(lambda: len(book.seen) == 10)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"new", partition=2)
    assert producer.flush(WAIT_S) == 0
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_finished_consumer_leaves_no_thread_and_no_open_file(broker: Broker, topic: str) -> None:
    fill(broker, topic, 50)

    def run_once(group: str) -> None:
        book = Book(50)
        consumer = ParallelConsumer(config(broker, group), [topic], workers=20)
        book.stop = consumer.stop
        consumer.run(book.write)

    run_once("first")
    threads, descriptors = threading.active_count(), open_files()
    run_once("second")
    eventually(lambda: threading.active_count() <= threads)
    eventually(lambda: open_files() <= descriptors)


def test_max_records_is_exact_and_the_next_run_continues(broker: Broker, topic: str) -> None:
    fill(broker, topic, 100)
    books = [Book(1_000), Book(1_000)]
    for book in books:
        ParallelConsumer(config(broker, topic), [topic], workers=20, max_records=50).run(book.write)
    seen = [each for book in books for each in book.seen]
    assert [len(book.seen) for book in books] == [50, 50]
    assert len(set(seen)) == 100
    assert sum(offset for offset, _ in committed(broker, topic, topic).values()) == 100


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"workers": 0}, "workers=0"),
        ({"ordering": "by colour"}, "ordering"),
        ({"tracking": "none"}, "tracking"),
        ({"executor": "magic"}, "executor"),
        ({"commit_every": 0}, "commit_every"),
        ({"on_exhausted": "shrug"}, "on_exhausted"),
        ({"max_records": 0}, "max_records=0"),
        ({"workers": "three"}, "workers='three' is not a whole number"),
        ({"retry": 3}, "retry=3 is not a Retry"),
        ({"dead_letter": "t"}, "dead_letter='t' is also in topics"),
    ],
)
def test_bad_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        ParallelConsumer({"bootstrap.servers": "x", "group.id": "g"}, ["t"], **options)


def test_a_handler_that_is_none_and_a_second_run(broker: Broker, topic: str) -> None:
    fill(broker, topic, 2)
    consumer = ParallelConsumer(config(broker, topic), [topic], workers=1, max_records=2)
    with pytest.raises(InvalidOption, match="is not a function"):
        consumer.run(None)  # type: ignore[arg-type]  # possible without type checks
    consumer.run(lambda _: None)
    with pytest.raises(InvalidOption, match="has already run"):
        consumer.run(lambda _: None)


def test_bad_config() -> None:
    for bad in (
        {"group.id": "g"},
        {"bootstrap.servers": "x"},
        {"bootstrap.servers": "x", "group.id": "g", "enable.auto.commit": True},
    ):
        with pytest.raises(InvalidOption):
            ParallelConsumer(bad, ["t"])
    with pytest.raises(InvalidOption, match="topics"):
        ParallelConsumer({"bootstrap.servers": "x", "group.id": "g"}, "orders")


CHILD = """
import os, sys, time, random
from tidemill.client.parallel.consumer import ParallelConsumer
bootstrap, topic, out, seed = sys.argv[1:]
draw = random.Random(int(seed))
book = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def handle(record):
    time.sleep(draw.random() * 0.004)
    os.write(book, b"%d %s %d\\n" % (record.partition, record.key, record.offset))
ParallelConsumer({"bootstrap.servers": bootstrap, "group.id": topic, "group.instance.id": "one"}, [topic], workers=20,
                 commit_interval_ms=50).run(handle)
"""


def test_kill_at_any_point_loses_nothing(broker: Broker, topic: str, tmp_path: Path) -> None:
    """kill -9 again and again: every record is handled, and the order of a key's first handling is kept."""
    fill(broker, topic, 2_000)
    out = tmp_path / "book"
    out.touch()
    runs = 0
    while count_distinct(out) < 2_000:
        runs += 1
        assert runs < 40, f"{count_distinct(out)} of 2,000 after {runs} runs"
        enough = min(2_000, count_distinct(out) + 100)
        child = start(broker, topic, out, runs)
        eventually(partial(at_least, out, enough))
        child.send_signal(signal.SIGKILL)
        child.wait(WAIT_S)
        for partition, (offset, _) in committed(broker, topic, topic).items():
            handled = {line[2] for line in lines(out) if line[0] == partition}
            assert set(range(max(offset, 0))) <= handled
    first: dict[tuple[int, bytes], int] = {}
    seen: set[tuple[int, int]] = set()
    for partition, key, offset in lines(out):
        if (partition, offset) not in seen:
            seen.add((partition, offset))
            assert offset > first.get((partition, key), -1)
            first[partition, key] = offset


def start(broker: Broker, topic: str, out: Path, seed: int) -> "subprocess.Popen[bytes]":
    """A consumer that is a static member: its heir need not wait until the group has noticed its death."""
    command = [sys.executable, "-c", CHILD, broker.bootstrap_servers, topic, str(out), str(seed)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def lines(out: Path) -> list[tuple[int, bytes, int]]:
    whole = out.read_bytes().rpartition(b"\n")[0]
    found = [line.split() for line in whole.splitlines()]
    return [(int(partition), key, int(offset)) for partition, key, offset in found]


def count_distinct(out: Path) -> int:
    return len({(partition, offset) for partition, _, offset in lines(out)})


def at_least(out: Path, count: int) -> bool:
    return count_distinct(out) >= count


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
