"""Records of Kafka producers that recur, move and follow the headers of other systems, by headers alone."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import Timeline
from tidemill.testing import Broker

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def create(broker: Broker, **config: str) -> str:
    name = f"later-{uuid4().hex[:8]}"
    config = {"tidemill.schedule.enable": "true", **config}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, num_partitions=1, config=config)])[name].result(30)
    return name


def send(broker: Broker, topic: str, value: str, **headers: str) -> None:
    """Produce one record; a refused one raises the broker's error."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    errors: list[KafkaException] = []
    producer.produce(
        topic,
        value.encode(),
        headers=[(name.replace("__", "-"), text.encode()) for name, text in headers.items()],
        on_delivery=lambda error, _: errors.append(KafkaException(error)) if error else None,
    )
    assert producer.flush(LIMIT_S) == 0
    if errors:
        raise errors[0]


def read(broker: Broker, topic: str, enough: Callable[[list[Message]], bool]) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": uuid4().hex})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[Message] = []
    ends = time.monotonic() + LIMIT_S
    try:
        while not enough(got) and time.monotonic() < ends:
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None
                got.append(message)
    finally:
        consumer.close()
    return got


def occurrences(messages: list[Message]) -> list[int]:
    """The due times of recurring records, from their marks."""
    marks = [dict(one.headers())["tidemill-message"].decode() for one in messages]
    return [int(mark.rpartition("~")[2]) for mark in marks if "~" in mark]


def waiting(broker: Broker, topic: str) -> dict[str, datetime]:
    with Timeline(broker.grpc, name=f"__schedule.{topic}") as timeline:
        return {one.id: one.due for one in timeline.messages()}


def test_a_record_recurs_until_its_count(broker: Broker) -> None:
    topic = create(broker)
    recurs = {"tidemill__every__ms": "1000", "tidemill__count": "3", "tidemill__schedule__id": "tick"}
    send(broker, topic, "tick", **recurs, own="kept")
    got = read(broker, topic, lambda got: len(got) == 3)
    dues = occurrences(got)
    assert [later - earlier for earlier, later in pairwise(dues)] == [1000, 1000]
    for message, due_ms in zip(got, dues, strict=True):
        assert (message.value(), dict(message.headers())["own"]) == (b"tick", b"kept")
        assert message.timestamp()[1] >= due_ms
    assert waiting(broker, topic) == {}


def test_a_schedule_is_listed_moved_and_cancelled_by_records(broker: Broker) -> None:
    topic = create(broker)
    named = {"tidemill__schedule__id": "daily"}
    send(broker, topic, "report", tidemill__cron="0 9 * * 1-5", tidemill__zone="Europe/Berlin", **named)
    send(broker, topic, "once", tidemill__delay__ms="3600000", tidemill__schedule__id="once")
    with Timeline(broker.grpc, name=f"__schedule.{topic}") as timeline:
        rules = {one.id: one.recurrence for one in timeline.messages()}
    assert rules["once"] is None
    assert rules["daily"] is not None
    assert (rules["daily"].cron, rules["daily"].zone) == ("0 9 * * 1-5", "Europe/Berlin")
    soon_ms = time.time_ns() // 1_000_000 + 700
    for name in ("daily", "once", "never there"):
        send(broker, topic, "", tidemill__move__to=str(soon_ms), tidemill__schedule__id=name)
    got = read(broker, topic, lambda got: len(got) == 2)
    assert sorted(one.value() for one in got) == [b"once", b"report"]
    assert all(one.timestamp()[1] >= soon_ms for one in got)
    (left,) = waiting(broker, topic).values()
    assert left > datetime.now(UTC)
    send(broker, topic, "", tidemill__cancel="daily")
    assert waiting(broker, topic) == {}
    for wrong in ("soon", "-1", "253402300800000"):
        with pytest.raises(KafkaException, match=r"(?i:record)"):
            send(broker, topic, "", **{"tidemill__move__to": wrong, **named})
    assert waiting(broker, topic) == {}


@pytest.mark.parametrize(
    ("alias", "value"),
    [
        ("__STARTDELIVERTIME", "{at_ms}"),
        ("__kafka_delay_timestamp", "{at_ms}"),
        ("x-delay", "900"),
        ("Nats-Schedule", "@at {at}"),
        ("Nats-Schedule", "@every 1s"),
        ("Nats-Schedule", "* * * * * *"),
        ("DELAY", "900ms"),
        ("AT", "{at}"),
        ("SCHEDULE", "* * * * * *"),
    ],
)
def test_headers_of_other_systems_work_where_a_topic_accepts_them(broker: Broker, alias: str, value: str) -> None:
    accepting, ignoring = create(broker, **{"tidemill.schedule.aliases": alias}), create(broker)
    due_ms = time.time_ns() // 1_000_000 + 900
    text = value.format(at_ms=due_ms, at=datetime.fromtimestamp(due_ms / 1_000, UTC).isoformat())
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    sent_ms = time.time_ns() // 1_000_000
    for topic in (accepting, ignoring):
        producer.produce(topic, b"value", headers=[(alias, text.encode())])
    assert producer.flush(LIMIT_S) == 0
    assert len(read(broker, ignoring, bool)) == 1
    first = read(broker, accepting, bool)[0]
    assert "tidemill-message" in dict(first.headers())
    if "at" in value:
        assert first.timestamp()[1] >= due_ms
    assert first.timestamp()[1] > sent_ms
    errors: list[object] = []
    wrong = [(alias, b"no such time")]
    producer.produce(accepting, b"", headers=wrong, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(LIMIT_S) == 0
    assert str(errors[0]) != "None"


def test_a_recurring_record_comes_once_for_each_time_through_kills() -> None:
    with Broker(process=True) as broker:
        topic = create(broker)
        recurs = {"tidemill__every__ms": "1000", "tidemill__missed": "all", "tidemill__schedule__id": "tick"}
        send(broker, topic, "tick", **recurs)
        for number in range(1, 4):
            with suppress(KafkaException):
                read(broker, topic, lambda got, number=number: len(got) >= number)  # type: ignore[misc] # bound now
            broker.kill()
            broker.restart()
        dues = occurrences(read(broker, topic, lambda got: len(got) >= 7))
        assert len(dues) >= 7
        assert all(later - earlier == 1_000 for earlier, later in pairwise(dues))
