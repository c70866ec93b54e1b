"""Records for later from any Kafka producer: on a topic with `tidemill.schedule.enable`, by headers alone."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.waiting import eventually

from tidemill import Message as TimedMessage
from tidemill import Timeline
from tidemill.client.kafka import KafkaClient, ProducerIdentity
from tidemill.model import topics as tidemill_topics
from tidemill.model.errors import InvalidRecord, OutOfOrderSequence
from tidemill.model.timeline_errors import BadTimelineName, StoreUnavailable
from tidemill.records.build import NewRecord, build_batch
from tidemill.scheduling import Scheduler
from tidemill.scheduling.core.delivery_headers import DELAY_MS
from tidemill.testing import Broker
from tidemill.timelines.dispatcher import Dispatcher

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    return _create(broker)


def _create(broker: Broker, **config: str) -> str:
    name = f"later-{uuid4().hex[:8]}"
    config = {"tidemill.schedule.enable": "true", **config}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, num_partitions=2, config=config)])[name].result(30)
    return name


def _producer(broker: Broker, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, **settings})


class Sent:
    """Delivery reports."""

    def __init__(self) -> None:
        self.errors: list[KafkaError] = []
        self.done = 0

    def __call__(self, error: KafkaError | None, _: Message) -> None:
        self.done += 1
        if error is not None:
            self.errors.append(error)


def _send(producer: Producer, topic: str, value: str, headers: Mapping[str, str], sent: Sent, **more: object) -> None:
    pairs = [(name, text.encode()) for name, text in headers.items()]
    producer.produce(topic, value.encode(), headers=pairs, on_delivery=sent, **more)


def _read(broker: Broker, topic: str, enough: Callable[[list[Message]], bool]) -> list[Message]:
    """Every record of the topic from the start, until there is enough."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": uuid4().hex})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
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


def _values(messages: list[Message]) -> list[str]:
    return [message.value().decode() for message in messages]


@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_when_they_are_due_and_not_before(broker: Broker, topic: str, idempotent: bool) -> None:
    producer = _producer(broker, **{"enable.idempotence": idempotent})
    sent = Sent()
    due_ms = time.time_ns() // 1_000_000 + 1_500
    for number in range(5):
        _send(producer, topic, f"now-{number}", {}, sent, partition=0)
        headers = {"tidemill-deliver-at": str(due_ms), "own": "kept"}
        _send(producer, topic, f"later-{number}", headers, sent, partition=0, key=b"k")
    assert producer.flush(LIMIT_S) == 0
    _send(producer, topic, "after", {"tidemill-delay-ms": "1"}, sent, partition=0)
    _send(producer, topic, "last", {}, sent, partition=0)
    assert producer.flush(LIMIT_S) == 0
    assert (sent.errors, sent.done) == ([], 12)
    early = _read(broker, topic, lambda got: "last" in _values(got))
    if time.time_ns() // 1_000_000 < due_ms:
        assert not [value for value in _values(early) if value.startswith("later")]
    got = _read(broker, topic, lambda got: len(got) == 12)
    assert sorted(_values(got)) == sorted(
        [f"now-{n}" for n in range(5)] + [f"later-{n}" for n in range(5)] + ["after", "last"]
    )
    offsets = [message.offset() for message in got]
    assert offsets == sorted(set(offsets))
    for message in got:
        if message.value().startswith(b"later"):
            assert message.timestamp()[1] >= due_ms
            assert (message.key(), message.partition(), dict(message.headers())["own"]) == (b"k", 0, b"kept")


def test_cancel_by_name(broker: Broker, topic: str) -> None:
    producer, sent = _producer(broker), Sent()
    for name in ("keep", "drop"):
        headers = {"tidemill-delay-ms": "3600000", "tidemill-schedule-id": name}
        _send(producer, topic, name, headers, sent, partition=1)
    producer.flush(LIMIT_S)
    with Timeline(broker.grpc, name=f"__schedule.{topic}") as timeline:
        assert {one.id for one in timeline.messages()} == {"keep", "drop"}
        _send(producer, topic, "", {"tidemill-cancel": "drop"}, sent, partition=1)
        _send(producer, topic, "", {"tidemill-cancel": "never there"}, sent, partition=1)
        producer.flush(LIMIT_S)
        assert sent.errors == []
        assert [one.id for one in timeline.messages()] == ["keep"]
        timeline.move("keep", 0)
    _send(producer, topic, "end", {}, sent, partition=1)
    producer.flush(LIMIT_S)
    assert sorted(_values(_read(broker, topic, lambda got: len(got) == 2))) == ["end", "keep"]


@pytest.mark.parametrize(
    "headers",
    [
        {"tidemill-deliver-at": "soon"},
        {"tidemill-deliver-at": "-1"},
        {"tidemill-deliver-at": "253402300800000"},
        {"tidemill-delay-ms": ""},
        {"tidemill-delay-ms": "1", "tidemill-schedule-id": ""},
        {"tidemill-cancel": "x" * 201},
    ],
)
def test_wrong_headers_are_refused_and_nothing_is_stored(
    broker: Broker, topic: str, headers: Mapping[str, str]
) -> None:
    producer, sent = _producer(broker), Sent()
    _send(producer, topic, "wrong", headers, sent, partition=0)
    producer.flush(LIMIT_S)
    assert [error.code() for error in sent.errors] == [KafkaError.INVALID_RECORD]
    _send(producer, topic, "fine", {}, sent, partition=0)
    producer.flush(LIMIT_S)
    assert _values(_read(broker, topic, bool)) == ["fine"]


def test_a_transaction_cannot_hold_records_for_later(broker: Broker, topic: str) -> None:
    producer = _producer(broker, **{"transactional.id": uuid4().hex})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    sent = Sent()
    _send(producer, topic, "x", {"tidemill-delay-ms": "1"}, sent, partition=0)
    producer.flush(LIMIT_S)
    assert [error.code() for error in sent.errors] == [KafkaError.INVALID_RECORD]
    with suppress(KafkaException):
        producer.abort_transaction(LIMIT_S)


def test_a_topic_without_the_setting_ignores_the_headers(broker: Broker) -> None:
    topic = _create(broker, **{"tidemill.schedule.enable": "false"})
    producer, sent = _producer(broker), Sent()
    _send(producer, topic, "now", {"tidemill-delay-ms": "600000"}, sent, partition=0)
    producer.flush(LIMIT_S)
    assert _values(_read(broker, topic, bool)) == ["now"]


def test_a_deleted_topic_takes_its_waiting_records_along(broker: Broker, topic: str) -> None:
    producer, sent = _producer(broker), Sent()
    _send(producer, topic, "x", {"tidemill-delay-ms": "600000"}, sent, partition=0)
    producer.flush(LIMIT_S)
    with Timeline(broker.grpc) as timeline:
        assert f"__schedule.{topic}" in {one.name for one in timeline.timelines()}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.delete_topics([topic])[topic].result(30)
        ends = time.monotonic() + LIMIT_S
        while f"__schedule.{topic}" in {one.name for one in timeline.timelines()}:
            assert time.monotonic() < ends


def test_only_the_broker_fills_and_empties_the_timeline_of_a_topic(broker: Broker, topic: str) -> None:
    producer, sent = _producer(broker), Sent()
    _send(producer, topic, "x", {"tidemill-delay-ms": "600000"}, sent, partition=0)
    producer.flush(LIMIT_S)
    with Timeline(broker.grpc, name=f"__schedule.{topic}") as timeline:
        for change in (
            lambda: timeline.schedule([TimedMessage(b"no record", due=0)]),
            lambda: next(timeline.work(idle_ms=30_000)),
            lambda: timeline.create(lease_ms=1_000),
            timeline.delete,
        ):
            with pytest.raises(BadTimelineName, match="managed by the broker"):
                change()
        assert timeline.count() == 1
    with (
        Timeline(broker.grpc, name=f"__waiting.{topic}") as other,
        pytest.raises(BadTimelineName, match="managed by the broker"),
    ):
        other.create()


def test_exactly_once_through_kills() -> None:
    count = 300
    with Broker(process=True) as broker:
        topic = _create(broker)
        producer, sent = _producer(broker, **{"enable.idempotence": True}), Sent()
        start_ms = time.time_ns() // 1_000_000 + 1_500
        for number in range(count):
            headers = {"tidemill-deliver-at": str(start_ms + 5 * number)}
            _send(producer, topic, f"m{number}", headers, sent, partition=number % 2)
        assert producer.flush(LIMIT_S) == 0
        assert sent.errors == []
        for kill in range(2):
            _read(broker, topic, lambda got, kill=kill: len(got) >= 60 * (kill + 1))  # type: ignore[misc]
            broker.kill()
            broker.restart()
        with Timeline(broker.grpc, name=f"__schedule.{topic}") as timeline:
            _wait_until_empty(timeline)
        marker = Sent()
        for partition in range(2):
            _send(producer, topic, "end", {}, marker, partition=partition)
        producer.flush(LIMIT_S)
        got = _read(broker, topic, lambda got: _values(got).count("end") == 2)
        assert sorted(value for value in _values(got) if value != "end") == sorted(f"m{n}" for n in range(count))


def test_an_appended_message_is_not_appended_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(data_dir=tmp_path) as broker:
        topic = _create(broker)
        producer, sent = _producer(broker), Sent()
        with monkeypatch.context() as patched:
            patched.setattr(Dispatcher, "settle", _fails)
            _send(producer, topic, "once", {"tidemill-delay-ms": "1"}, sent, partition=0)
            producer.flush(LIMIT_S)
            assert _values(_read(broker, topic, bool)) == ["once"]
        broker.restart()
        with Timeline(broker.grpc, name=f"__schedule.{topic}") as timeline:
            _wait_until_empty(timeline)
        _send(producer, topic, "end", {}, sent, partition=0)
        producer.flush(LIMIT_S)
        assert _values(_read(broker, topic, lambda got: "end" in _values(got))) == ["once", "end"]


def test_a_batch_sent_again_after_its_record_was_delivered_is_not_scheduled_again(broker: Broker, topic: str) -> None:
    partition = tidemill_topics.TopicPartition(topic, 0)
    with (
        KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client,
        Timeline(broker.grpc, name=f"__schedule.{topic}") as timeline,
    ):
        identity = client.init_producer()
        batch = _batch(identity, 0, ("now", ()), ("later", ((DELAY_MS, b"1"),)))
        first = client.produce(partition, batch)
        assert sorted(_values(_read(broker, topic, lambda got: len(got) == 2))) == ["later", "now"]
        _wait_until_empty(timeline)
        assert client.produce(partition, batch).base_offset == first.base_offset
        _wait_until_empty(timeline)
        client.produce(partition, _batch(identity, 2, ("end", ())))
        assert sorted(_values(_read(broker, topic, lambda got: "end" in _values(got)))) == ["end", "later", "now"]


def test_a_batch_whose_rest_was_lost_after_its_record_was_delivered_is_not_scheduled_again(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = tidemill_topics.TopicPartition(topic, 0)
    with (
        KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client,
        Timeline(broker.grpc, name=f"__schedule.{topic}") as timeline,
    ):
        identity = client.init_producer()
        headers = ((DELAY_MS, b"1"), ("tidemill-schedule-id", b"natural"))
        batch = _batch(identity, 0, ("now", ()), ("later", headers))
        with monkeypatch.context() as patched:
            patched.setattr(Scheduler, "_append_rest", _ends)  # as if the broker had died here
            with pytest.raises(InvalidRecord):
                client.produce(partition, batch)
        assert _values(_read(broker, topic, bool)) == ["later"]
        _wait_until_empty(timeline)
        client.produce(partition, batch)
        client.produce(partition, _batch(identity, 2, ("again", headers), ("end", ())))  # the name is free again
        got = _values(_read(broker, topic, lambda got: {"again", "end"} <= set(_values(got))))
        assert sorted(got) == ["again", "end", "later", "now"]


def test_a_batch_out_of_order_schedules_nothing(broker: Broker, topic: str) -> None:
    partition = tidemill_topics.TopicPartition(topic, 0)
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        identity = client.init_producer()
        client.produce(partition, _batch(identity, 0, ("now", ())))
        with pytest.raises(OutOfOrderSequence):
            client.produce(partition, _batch(identity, 7, ("later", ((DELAY_MS, b"3600000"),))))
    with Timeline(broker.grpc) as timeline:
        assert f"__schedule.{topic}" not in {one.name for one in timeline.timelines()}


def _wait_until_empty(timeline: Timeline) -> None:
    eventually(lambda: timeline.count() == 0)


def _batch(
    identity: ProducerIdentity, sequence: int, *records: tuple[str, tuple[tuple[str, bytes | None], ...]]
) -> bytearray:
    now_ms = time.time_ns() // 1_000_000
    return build_batch(
        [NewRecord(None, value.encode(), headers, now_ms) for value, headers in records],
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=sequence,
    )


async def _ends(*_: object) -> None:
    raise InvalidRecord


async def _fails(*_: object) -> None:
    raise StoreUnavailable
