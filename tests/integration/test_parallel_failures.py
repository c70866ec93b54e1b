"""Failures of the parallel consumer: handlers, processes, brokers, limits, and impatient users."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import CollectorRegistry, generate_latest
from tests.integration.parallel import WAIT_S, Book, committed, config, fill, interrupt
from tests.support.waiting import eventually

from tidemill.client.parallel.consumer import ParallelConsumer
from tidemill.client.parallel.options import Halted, InvalidOption, Retry
from tidemill.client.parallel.record import ParallelRecord
from tidemill.testing import Broker

LIMIT_BYTES = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True, settings={"offset.metadata.max.bytes": str(LIMIT_BYTES)}) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^\w.-]", "_", request.node.name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(WAIT_S)
    return str(name)


def offsets(broker: Broker, topic: str) -> list[int]:
    return [offset for _, (offset, _) in sorted(committed(broker, topic, topic).items())]


def write_name(record: ParallelRecord) -> threading.Lock:
    """A handler for processes: it leaves a file, and returns what cannot be sent."""
    folder = Path(os.fsdecode(record.value or b""))
    (folder / f"{record.partition}-{record.offset}-{os.getpid()}").touch()
    return threading.Lock()


class Stubborn(Exception):
    """An error that can be made only with two arguments, so that it cannot be read from its bytes."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def raise_stubborn(_: ParallelRecord) -> None:
    raise Stubborn("no", "reply")


def end_the_process(_: ParallelRecord) -> None:
    os._exit(3)


def fill_with(broker: Broker, topic: str, values: list[str]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(WAIT_S) == 0


def test_processes_handle_records_and_end(broker: Broker, topic: str, tmp_path: Path) -> None:
    fill_with(broker, topic, [str(tmp_path)] * 20)
    ParallelConsumer(config(broker, topic), [topic], workers=2, executor="process", max_records=20).run(write_name)
    names = [path.name.split("-") for path in tmp_path.iterdir()]
    assert sorted((int(partition), int(offset)) for partition, offset, _ in names) == [
        (partition, offset) for partition in range(2) for offset in range(10)
    ]
    assert offsets(broker, topic) == [10, 10]
    pids = {int(pid) for _, _, pid in names}
    assert os.getpid() not in pids
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.parametrize(
    ("handler", "sentence"), [(raise_stubborn, "Stubborn.*no reply"), (end_the_process, "a worker process died")]
)
def test_values_that_processes_cannot_send_are_reported(
    broker: Broker, topic: str, handler: Callable[[ParallelRecord], None], sentence: str
) -> None:
    fill(broker, topic, 1)
    consumer = ParallelConsumer(
        config(broker, topic), [topic], workers=1, executor="process", retry=Retry(attempts=1), max_records=1
    )
    with pytest.raises(Halted, match=sentence):
        consumer.run(handler)


async def coroutine(_: ParallelRecord) -> None:
    """A handler of the wrong kind for processes."""


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [(lambda _: None, "use a function of a module"), (coroutine, "does not support async handlers")],
)
def test_handlers_that_no_process_can_run(handler: Callable[[ParallelRecord], Any], sentence: str) -> None:
    consumer = ParallelConsumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, ["t"], workers=1, executor="process"
    )
    with pytest.raises(InvalidOption, match=sentence):
        consumer.run(handler)


def raise_keyboard_interrupt(_: ParallelRecord) -> None:
    raise KeyboardInterrupt


async def cancel_itself(_: ParallelRecord) -> None:
    raise asyncio.CancelledError


def forget_to_await(record: ParallelRecord) -> Any:
    return coroutine(record)


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (raise_keyboard_interrupt, "the handler raised KeyboardInterrupt"),
        (cancel_itself, "the handler raised CancelledError"),
        (forget_to_await, "async def"),
    ],
)
def test_an_error_that_no_retry_fixes_halts(
    broker: Broker, topic: str, handler: Callable[[ParallelRecord], Any], sentence: str
) -> None:
    fill(broker, topic, 1)
    with pytest.raises(Halted, match=sentence):
        ParallelConsumer(config(broker, topic), [topic], workers=1).run(handler)
    assert max(offsets(broker, topic)) <= 0


def test_an_unknown_topic_halts(broker: Broker) -> None:
    settings = config(broker, "lost", **{"allow.auto.create.topics": False})
    with pytest.raises(Halted, match="cannot read no-such-topic"):
        ParallelConsumer(settings, ["no-such-topic"], workers=1).run(coroutine)


def test_a_missing_topic_halts_also_in_a_group_of_the_newer_protocol(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.client.parallel.consumer.MISSING_S", 0.1)
    settings = {**config(broker, "newer"), "group.protocol": "consumer"}
    with pytest.raises(Halted, match="cannot read not-there: there is no such topic"):
        ParallelConsumer(settings, ["not-there", "^pattern"], workers=1).run(print)


def test_a_topic_that_may_be_created_is_waited_for(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Mock()
    monkeypatch.setattr("tidemill.client.parallel.consumer.log", log)
    more = {"allow.auto.create.topics": True, "topic.metadata.refresh.interval.ms": 200}
    consumer = ParallelConsumer({**config(broker, "creator"), **more}, ["comes-later"], workers=1, max_records=1)
    seen: list[bytes | None] = []
    running = threading.Thread(target=consumer.run, args=(lambda record: seen.append(record.value),))
    running.start()
    try:
        eventually(lambda: bool(log.warning.called))
        fill(broker, "comes-later", 1)
        running.join(WAIT_S)
    finally:
        consumer.stop()
        running.join(WAIT_S)
    assert len(seen) == 1


def test_metadata_beyond_the_brokers_limit_is_left_out(broker: Broker, topic: str) -> None:
    """Every second key is held back: the runs of what is complete need more than the broker takes."""
    count = 2_000
    fill(broker, topic, count, keys=count)
    release = threading.Event()
    book = Book(count)

    def handle(record: ParallelRecord) -> None:
        if record.offset % 7 == 3 or record.offset % 11 == 5:
            release.wait(WAIT_S)
        book.write(record)

    consumer = ParallelConsumer(
        config(broker, topic), [topic], workers=600, commit_every=100, commit_interval_ms=50, metadata_bytes_max=100_000
    )
    book.stop = consumer.stop
    thread = threading.Thread(target=consumer.run, args=(handle,))
    thread.start()
    eventually(lambda: consumer.stats().beyond_gap > count // 2)
    eventually(lambda: set(consumer.stats().committed.values()) == {3})
    release.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert offsets(broker, topic) == [count // 2, count // 2]


def test_consumers_share_a_registry(broker: Broker, topic: str) -> None:
    fill(broker, topic, 10)
    registry = CollectorRegistry()
    for group in ("one", "two"):
        settings = config(broker, f"{topic}-{group}")
        ParallelConsumer(settings, [topic], workers=2, max_records=10, registry=registry).run(lambda _: None)
    text = generate_latest(registry).decode()
    for group in ("one", "two"):
        assert f'tidemill_parallel_completed_total{{group="{topic}-{group}"}} 10.0' in text
        assert f'tidemill_parallel_in_flight{{group="{topic}-{group}"}} 0.0' in text
    assert text.count("# TYPE tidemill_parallel_completed_total counter") == 1


def test_a_broker_restart_while_working_loses_nothing() -> None:
    with Broker(process=True) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("work", 2, 1)])["work"].result(WAIT_S)
        fill(broker, "work", 600)
        gate, book = threading.Event(), Book(10**9)

        def handle(record: ParallelRecord) -> None:
            if record.offset >= 100:
                gate.wait(WAIT_S)
            book.write(record)

        settings = config(broker, "work", **{"reconnect.backoff.max.ms": 200})
        consumer = ParallelConsumer(settings, ["work"], workers=8, commit_interval_ms=100)
        thread = threading.Thread(target=consumer.run, args=(handle,))
        thread.start()
        try:
            eventually(lambda: consumer.stats().in_flight == 8)
            broker.restart()
            gate.set()
            eventually(lambda: len({(partition, offset) for partition, _, offset in book.seen}) == 600)
            eventually(lambda: set(consumer.stats().committed.values()) == {300})
        finally:
            consumer.stop()
            thread.join(WAIT_S)
        assert not thread.is_alive()
        assert offsets(broker, "work") == [300, 300]


PROGRAM = """
import sys, time
from pathlib import Path
from tidemill import ParallelConsumer

def handle(record):
    Path(sys.argv[3], str(record.offset)).touch()
    time.sleep(600)

if __name__ == "__main__":
    consumer = ParallelConsumer(
        {"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]}, [sys.argv[2]], workers=2, executor=sys.argv[4]
    )
    consumer.run(handle)
    print("ended", flush=True)
"""


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_second_signal_forces_the_end(broker: Broker, topic: str, tmp_path: Path, executor: str) -> None:
    """The signals go to the whole group of processes, as those of a terminal."""
    fill(broker, topic, 1)
    marks, program = tmp_path / "marks", tmp_path / "program.py"
    marks.mkdir()
    program.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, str(program), broker.bootstrap_servers, topic, str(marks), executor],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        eventually(lambda: process.poll() is not None or any(marks.iterdir()))
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.5)  # two signals at the same moment are one
        assert process.poll() is None
        out, errors = interrupt(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, errors
    assert out == "ended\n"
    assert "partitions_assigned" in errors
    assert "Traceback" not in errors
    assert offsets(broker, topic)[0] <= 0
