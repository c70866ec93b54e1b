"""The broker that users test with."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.waiting import eventually

from tidemill import Message, StaleLease, Timeline, TimelineError, TopicProducer
from tidemill.model.errors import InvalidConfig
from tidemill.testing import Broker
from tidemill.testing.child import Child, ChildFailed

WAIT_S = 60
HOUR_S = 3_600


def produce(broker: Broker, topic: str, *values: bytes) -> None:
    from confluent_kafka import Producer

    errors = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * len(values)


def consume(broker: Broker, topic: str, count: int, group: str = "readers") -> list[bytes]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(count, WAIT_S)
        assert all(message.error() is None for message in messages)
        return [message.value() for message in messages]
    finally:
        consumer.close()


@pytest.mark.parametrize("process", [False, True])
def test_records_are_read_before_and_after_a_restart(process: bool) -> None:
    with Broker(process=process) as broker:
        produce(broker, "orders", b"1", b"2", b"3")
        assert consume(broker, "orders", 3) == [b"1", b"2", b"3"]
        broker.restart()
        produce(broker, "orders", b"4")
        assert consume(broker, "orders", 1) == [b"4"]
        folder = broker.data_dir
    assert not folder.exists()


def test_a_broker_stops_while_clients_are_connected() -> None:
    from confluent_kafka import Consumer

    with Broker() as broker:
        produce(broker, "orders", b"1")
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        assert len(consumer.consume(1, WAIT_S)) == 1
        broker.restart()
        produce(broker, "orders", b"2")
        assert [message.value() for message in consumer.consume(1, WAIT_S)] == [b"2"]
        consumer.close()


def test_a_given_folder_stays(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "mine") as broker:
        produce(broker, "orders", b"1")
    assert (tmp_path / "mine" / "clean-shutdown").exists()
    with Broker(data_dir=tmp_path / "mine") as broker:
        assert consume(broker, "orders", 1) == [b"1"]


def test_settings_reach_the_broker() -> None:
    from confluent_kafka.admin import AdminClient

    settings = {"num.partitions": 5, "auto.create.topics.enable": True}
    with Broker(settings=settings, flags={"http": "none", "streams": "memory:", "node-id": 7}) as broker:
        produce(broker, "orders", b"1")
        topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=WAIT_S).topics
        assert len(topics["orders"].partitions) == 5
        with pytest.raises(RuntimeError, match="http server is not open"):
            _ = broker.http


def test_a_start_that_fails_leaves_nothing() -> None:
    broken = Broker(settings={"num.partition": "1"})
    with pytest.raises(InvalidConfig), broken:
        pass
    assert not broken.data_dir.exists()
    broken = Broker(process=True, settings={"num.partition": "1"})
    with pytest.raises(ChildFailed, match=r"did you mean num\.partitions"):
        broken.start()
    assert not broken.data_dir.exists()


def test_a_broker_that_runs_is_not_started_again() -> None:
    with Broker() as broker:
        with pytest.raises(RuntimeError, match="already runs"):
            broker.start()
        produce(broker, "orders", b"1")
        broker.stop()
        broker.restart()  # with the same addresses, and a new folder
        produce(broker, "orders", b"1")


def test_a_process_that_ends_by_itself_is_reported() -> None:
    child = Child({"data-dir": "/proc/none", "kafka": "127.0.0.1:0", "grpc": "none", "http": "none"}, {})
    with pytest.raises(ChildFailed, match="cannot be used"):
        child.start()
    child.stop()


def test_a_process_that_was_killed_by_others_is_reported(tmp_path: Path) -> None:
    child = Child({"data-dir": str(tmp_path), "kafka": "127.0.0.1:0", "grpc": "none", "http": "none"}, {})
    child.start()
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildFailed, match="code -9"):
        child.stop()


def test_only_a_process_can_be_killed() -> None:
    with Broker() as broker, pytest.raises(RuntimeError, match="process=True"):
        broker.kill()


@pytest.mark.parametrize("attempt", [1, 2])
def test_every_test_finds_the_broker_new(tidemill_broker: Broker, attempt: int) -> None:
    from confluent_kafka.admin import AdminClient

    from tidemill import Timeline

    with Timeline(tidemill_broker.grpc, "reminders") as timeline:
        assert timeline.timelines() == []
        timeline.create()

    admin = AdminClient({"bootstrap.servers": tidemill_broker.bootstrap_servers})
    assert [name for name in admin.list_topics(timeout=WAIT_S).topics if not name.startswith("__")] == []
    assert admin.list_consumer_groups().result(WAIT_S).valid == []
    produce(tidemill_broker, "orders", b"%d" % attempt)
    assert consume(tidemill_broker, "orders", 1) == [b"%d" % attempt]


def test_time_passes_when_the_test_advances_it() -> None:
    with Broker() as broker, Timeline(broker.grpc, "reminders") as reminders:
        reminders.create(lease_ms=60_000)
        reminders.schedule([Message(b"tea", time.time() + HOUR_S), Message(b"tomorrow", time.time() + 24 * HOUR_S)])
        work = reminders.work(idle_ms=WAIT_S * 1_000)
        broker.advance(HOUR_S)
        first = next(work)
        assert (first.body, reminders.count()) == (b"tea", 2)
        broker.advance(61)  # the lease ends in it
        with pytest.raises(StaleLease):
            first.complete()
        again = next(work)
        assert (again.body, again.attempts) == (b"tea", 2)
        again.complete()
        assert [one.status for one in reminders.messages()] == ["waiting"]
        with pytest.raises(ValueError, match="only moves forward"):
            broker.advance(-1)
        broker.reset()
        reminders.create()
        reminders.schedule([Message(b"later", time.time() + HOUR_S)])
        assert [one.status for one in reminders.messages()] == ["waiting"]


def test_a_record_for_later_comes_when_its_time_has_passed() -> None:
    with Broker() as broker:
        later = {"tidemill.schedule.enable": "true"}
        with TopicProducer(broker.grpc, "orders", partitions=1, settings=later) as producer:
            producer.send(b"in a day", headers={"tidemill-delay-ms": b"%d" % (24 * HOUR_S * 1_000)})
            producer.send(b"now")
        broker.advance(24 * HOUR_S)
        assert consume(broker, "orders", 2) == [b"now", b"in a day"]


def test_the_clock_of_another_process_is_out_of_reach() -> None:
    with Broker(process=True) as broker, pytest.raises(RuntimeError, match="cannot be advanced"):
        broker.advance(1)


def test_a_paused_broker_answers_all_requests_after_it_resumes() -> None:
    with Broker(process=True) as broker, Timeline(broker.grpc, "reminders") as reminders:
        reminders.create()
        broker.pause()
        hasty = Timeline(broker.grpc, "reminders", connect_timeout_ms=200, timeout_ms=200)
        with hasty, pytest.raises(TimelineError, match="no broker answers"):
            hasty.count()
        with ThreadPoolExecutor(1) as waiting:
            patient = waiting.submit(reminders.count)
            with pytest.raises(TimeoutError):
                patient.result(0.2)
            broker.resume()
            assert patient.result(WAIT_S) == 0
        broker.pause()  # one that is paused can be stopped all the same
    with Broker() as broker, pytest.raises(RuntimeError, match="a broker in a thread cannot be paused"):
        broker.pause()
    with pytest.raises(RuntimeError, match="the broker is not running"):
        broker.resume()


PARENT = """
import time
from tidemill.testing import Broker
broker = Broker(process=True, data_dir={folder!r}).start()
print(broker._runner.pid, flush=True)
time.sleep(60)
"""


def test_a_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format(folder=str(tmp_path))], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        broker = Path("/proc", parent.stdout.readline().strip())
        assert broker.exists()
        parent.kill()
    eventually(lambda: not broker.exists(), "it still runs")
