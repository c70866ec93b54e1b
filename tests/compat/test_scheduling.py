"""Responses to producers of scheduled records: each record gets an offset that no other record has.

An answer to Produce names the offset of the first record of a batch, and clients count on from there. So every record
of a batch must have a place of its own, also the ones that come later, behind it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.testing import Broker

WAIT_S = 60
DELAY = [("tidemill-delay-ms", b"500")]
Record = tuple[bytes, Sequence[tuple[str, bytes]]]
LATER: list[Record] = [(b"later-%d" % number, DELAY) for number in range(5)]
MIXED: list[Record] = [(b"now-0", []), (b"later-0", DELAY), (b"later-1", DELAY), (b"now-1", []), (b"later-2", DELAY)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"later-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, config={"tidemill.schedule.enable": "true"})])[name].result(WAIT_S)
    return name


class Confluent:
    """confluent-kafka: what its delivery reports say."""

    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], *, idempotent: bool) -> list[int]:
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 200, "enable.idempotence": idempotent}
        producer = Producer(settings)
        reported: list[int] = []
        for value, headers in records:
            producer.produce(
                topic,
                value,
                partition=0,
                headers=list(headers),
                on_delivery=lambda _, sent: reported.append(sent.offset()),
            )
        assert producer.flush(WAIT_S) == 0
        return reported

    def consume(self, bootstrap: str, topic: str, start: int, count: int) -> dict[bytes, int]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "auto.offset.reset": "error"})
        consumer.assign([TopicPartition(topic, 0, start)])
        seen: dict[bytes, int] = {}
        try:
            while len(seen) < count:
                [message] = consumer.consume(1, WAIT_S)
                assert message.error() is None
                seen[message.value()] = message.offset()
        finally:
            consumer.close()
        return seen


class Aiokafka:
    """aiokafka: what its RecordMetadata says."""

    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], *, idempotent: bool) -> list[int]:
        async def send() -> list[int]:
            async with AIOKafkaProducer(
                bootstrap_servers=bootstrap, linger_ms=200, enable_idempotence=idempotent
            ) as producer:
                sent = [await producer.send(topic, value, partition=0, headers=list(h)) for value, h in records]
                return [(await one).offset for one in sent]

        return asyncio.run(send())

    def consume(self, bootstrap: str, topic: str, start: int, count: int) -> dict[bytes, int]:
        async def read() -> dict[bytes, int]:
            place = AioTopicPartition(topic, 0)
            seen: dict[bytes, int] = {}
            async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
                consumer.assign([place])
                consumer.seek(place, start)
                while len(seen) < count:
                    message = await asyncio.wait_for(consumer.getone(), WAIT_S)
                    seen[message.value] = message.offset
            return seen

        return asyncio.run(read())


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("records", [LATER, MIXED], ids=["later", "mixed"])
@pytest.mark.parametrize("client", [Confluent, Aiokafka])
def test_each_record_for_later_is_acknowledged_with_a_place_of_its_own(
    broker: Broker, topic: str, client: Callable[[], Confluent | Aiokafka], records: Sequence[Record], idempotent: bool
) -> None:
    clients = client()
    reported = clients.produce(broker.bootstrap_servers, topic, records, idempotent=idempotent)
    assert reported == list(range(len(records)))  # one batch: the first offsets of the topic
    seen = clients.consume(broker.bootstrap_servers, topic, reported[0], len(records))
    _check(records, reported, seen)


def _check(records: Sequence[Record], reported: Sequence[int], seen: Mapping[bytes, int]) -> None:
    """What was stored at once is where it was said to be; what came later is behind all that was said."""
    for (value, headers), offset in zip(records, reported, strict=True):
        if headers:
            assert seen[value] > reported[-1]
        else:
            assert seen[value] == offset


@pytest.mark.parametrize("client", [Confluent, Aiokafka])
def test_a_record_is_scheduled_again_by_one_batch(
    broker: Broker, topic: str, client: Callable[[], Confluent | Aiokafka]
) -> None:
    """Cancelled and scheduled again: what counts is the order, not how the client makes batches of it."""
    clients = client()
    name = ("tidemill-schedule-id", b"tea")
    far: Record = (b"far", [("tidemill-delay-ms", b"600000"), name])
    again: list[Record] = [(b"", [("tidemill-cancel", b"tea")]), (b"soon", [*DELAY, name])]
    clients.produce(broker.bootstrap_servers, topic, [far], idempotent=False)
    clients.produce(broker.bootstrap_servers, topic, again, idempotent=False)
    assert list(clients.consume(broker.bootstrap_servers, topic, 0, 1)) == [b"soon"]
