"""The Kafka client against a running broker, next to other clients."""

import random
import socket
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cutting_proxy import CuttingProxy
from tests.support.raw_batches import NOW_MS, Numbered, batch, values_in
from tests.support.waiting import eventually

from tidemill.client.kafka import (
    EARLIEST,
    LATEST,
    BrokerUnreachable,
    ClientError,
    GroupOffset,
    KafkaClient,
    ProducerIdentity,
    coordinators,
)
from tidemill.client.kafka.apis import ClientApi
from tidemill.model.errors import (
    InvalidProducerEpoch,
    MessageTooLarge,
    OffsetOutOfRange,
    ProducerFenced,
    UnknownTopicOrPartition,
)
from tidemill.model.topics import TopicPartition
from tidemill.records.arrow import (
    CONSISTENT_RANDOM,
    MURMUR2_RANDOM,
    BatchProducer,
    Decoder,
    Encoder,
    load_kernels,
)
from tidemill.records.compression import Codec
from tidemill.testing import Broker

WAIT_S = 30
CUTS_MIN = 12
QUICK = {"socket.connection.setup.timeout.ms": "200"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[KafkaClient]:
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as raw:
        yield raw


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that is bound, without a listener."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def topic(broker: Broker) -> str:
    return new_topic(broker.bootstrap_servers)


def new_topic(servers: str, partitions: int = 2) -> str:
    name = f"t-{uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)
    return name


def test_batches_go_in_and_come_out(client: KafkaClient, topic: str) -> None:
    here, there = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert client.produce(here, batch("a", "b")).base_offset == 0
    assert client.produce(here, batch("c"), acks=1).base_offset == 2
    found = client.produce_all({here: batch("d"), there: batch("x")})
    assert {partition: each.base_offset for partition, each in found.items()} == {here: 3, there: 0}
    assert values_in(client, here) == ["a", "b", "c", "d"]
    assert values_in(client, here, start=2) == ["c", "d"]
    assert values_in(client, there) == ["x"]


def test_a_batch_without_a_response_arrives_too(client: KafkaClient, topic: str) -> None:
    here = TopicPartition(topic, 0)
    client.produce(here, batch("a"), acks=0)
    eventually(lambda: client.list_offsets({here: LATEST})[here].offset == 1)
    assert values_in(client, here) == ["a"]


def test_topics_are_found_by_name_and_pattern(client: KafkaClient, topic: str) -> None:
    assert client.metadata([topic])[topic].partitions == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert client.metadata([]) == {}
    assert set(client.topics(topic[:-1] + ".")) == {topic}
    assert set(client.topics(topic[1:-1])) == {topic}
    assert client.topics(f"^{topic[:-1]}$") == {}
    assert not any(name.startswith("__") for name in client.topics())


def test_offsets_are_found_by_time(client: KafkaClient, topic: str) -> None:
    here, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    client.produce(here, batch("a", "b", "c"))
    wanted = {EARLIEST: 0, LATEST: 3, NOW_MS + 1: 1, NOW_MS + 99: -1}
    for at, offset in wanted.items():
        assert client.list_offsets({here: at})[here].offset == offset
    assert client.list_offsets({empty: LATEST, here: LATEST})[empty].offset == 0
    assert client.list_offsets({}) == {}


def test_a_range_comes_in_pieces_with_one_request_ahead(client: KafkaClient, topic: str) -> None:
    here = TopicPartition(topic, 0)
    for number in range(30):
        client.produce(here, batch(f"{number}-" + "x" * 500))
    pieces = []
    for piece in client.read_range(here, 3, 27, max_bytes=2000):
        pieces.append(piece)
        assert client.list_offsets({here: LATEST})[here].offset == 30  # other requests may come in between
    assert len(pieces) > 3
    assert pieces[-1].next_offset >= 27
    next(client.read_range(here, 0, 30, max_bytes=600))  # what is left unread does not disturb what follows
    assert len(values_in(client, here)) == 30


def test_the_client_and_librdkafka_read_the_batches_of_each_other(
    client: KafkaClient, broker: Broker, topic: str
) -> None:
    here = TopicPartition(topic, 0)
    names = ("none", "gzip", "snappy", "lz4", "zstd")
    for name in names:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": name})
        producer.produce(topic, name.encode() * 20, partition=0, headers=[("h", b"1")])
        assert producer.flush(WAIT_S) == 0
    rows = pa.record_batch({"value": [f"own {codec.name}".encode() for codec in Codec]})
    for codec in Codec:
        for encoded in Encoder(rows, now_ms=NOW_MS, kernels=load_kernels("python")).batches(codec=codec):
            client.produce(here, encoded.batch)
    expected = values_in(client, here)
    assert expected[:5] == [name * 20 for name in names]
    assert consumed(broker, here, len(expected)) == expected


def test_batches_compressed_in_pieces_are_read_by_librdkafka(client: KafkaClient, broker: Broker, topic: str) -> None:
    here = TopicPartition(topic, 0)
    values = [f"{number} " * 100 for number in range(500)]
    rows = pa.record_batch({"value": values})
    for codec in Codec:
        for encoded in Encoder(rows, now_ms=NOW_MS, kernels=load_kernels("python")).batches(
            codec=codec, batch_bytes=50_000
        ):
            client.produce(here, encoded.batch)
    assert consumed(broker, here, len(Codec) * len(values)) == values * len(Codec)
    assert values_in(client, here) == values * len(Codec)


def consumed(broker: Broker, partition: TopicPartition, count: int) -> list[str]:
    from confluent_kafka import TopicPartition as Place

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": uuid4().hex})
    try:
        consumer.assign([Place(*partition, 0)])
        deadline = time.monotonic() + WAIT_S
        found: list[str] = []
        while len(found) < count and time.monotonic() < deadline:
            found += [message.value().decode() for message in consumer.consume(count - len(found), 1.0)]
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("partitioner", [CONSISTENT_RANDOM, MURMUR2_RANDOM])
def test_keys_go_where_librdkafka_puts_them(client: KafkaClient, broker: Broker, partitioner: str) -> None:
    name = new_topic(broker.bootstrap_servers, 7)
    keys = [b"key-%d" % number for number in range(60)]
    placed: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": partitioner})
    for key in keys:
        producer.produce(name, b"", key, on_delivery=lambda error, sent: placed.update({sent.key(): sent.partition()}))
    assert producer.flush(WAIT_S) == 0
    encoder = Encoder(pa.record_batch({"key": keys}), now_ms=NOW_MS, kernels=load_kernels("python"))
    ours = encoder.dealt(encoder.partitions(7, 0, partitioner), 7)
    assert {keys[row]: partition for partition, rows in ours.items() for row in rows} == placed


def test_a_group_without_members_keeps_offsets(client: KafkaClient, topic: str) -> None:
    group, here = uuid4().hex, TopicPartition(topic, 0)
    assert client.group_offsets(group) == {}
    client.commit_offsets(group, {here: GroupOffset(5, -1, "note")})
    assert client.group_offsets(group) == {here: GroupOffset(5, -1, "note")}
    assert client.group_offsets(group, [TopicPartition(topic, 1)]) == {}
    assert client.find_coordinator(group).port > 0


def test_a_batch_sent_twice_is_there_once(client: KafkaClient, topic: str) -> None:
    here = TopicPartition(topic, 0)
    identity = client.init_producer()
    sent = batch("a", identity=identity)
    client.produce(here, bytes(sent))
    client.produce(here, bytes(sent))
    client.produce(here, batch("b", identity=identity, sequence=1))
    assert values_in(client, here) == ["a", "b"]


def test_a_transaction_is_all_or_nothing(client: KafkaClient, topic: str) -> None:
    here, group, name = TopicPartition(topic, 0), uuid4().hex, uuid4().hex
    for number, commit in enumerate((True, False, True)):
        identity = client.init_producer(name)
        client.add_partitions(identity, [here])
        client.produce(here, batch(f"v{number}", identity=identity), transactional_id=name)
        client.commit_offsets_in(identity, group, {here: GroupOffset(number, -1, f"batch {number}")})
        if number == 2:
            assert values_in(client, here, committed=True) == ["v0"]  # nothing is visible before the end
        client.end_transaction(identity, commit=commit)
        assert client.group_offsets(group)[here].offset == (number if commit else 0)
    assert values_in(client, here, committed=True) == ["v0", "v2"]
    assert values_in(client, here) == ["v0", "v1", "v2"]


def test_a_writer_whose_id_was_taken_over_is_fenced(client: KafkaClient, topic: str) -> None:
    here, name = TopicPartition(topic, 0), uuid4().hex
    old = client.init_producer(name)
    client.add_partitions(old, [here])
    client.produce(here, batch("lost", identity=old), transactional_id=name)
    client.init_producer(name)
    with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        client.end_transaction(old, commit=True)
    assert values_in(client, here, committed=True) == []


def test_open_transactions_are_reported_by_brokers_that_can(
    client: KafkaClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, prefix = TopicPartition(topic, 0), uuid4().hex
    first, second, _ = (client.init_producer(f"{prefix}-{number}") for number in range(3))
    for identity in (first, second):
        client.add_partitions(identity, [here])
    assert client.open_transactions(prefix) == {f"{prefix}-0", f"{prefix}-1"}
    client.end_transaction(first, commit=False)
    assert client.open_transactions(f"{prefix}-") == {f"{prefix}-1"}
    monkeypatch.setattr(coordinators, "LIST_TRANSACTIONS", ClientApi(66, 99, 99))  # as a broker before Kafka 3.0
    assert client.open_transactions(prefix) == set()
    client.end_transaction(second, commit=False)


def test_arrow_batches_carry_their_writer(client: KafkaClient, topic: str) -> None:
    here, name = TopicPartition(topic, 0), uuid4().hex
    identity = client.init_producer(name)
    client.add_partitions(identity, [here])
    rows = pa.record_batch({"value": [f"{number}".encode() for number in range(100)]})
    encoder = Encoder(rows, now_ms=NOW_MS, kernels=load_kernels("python"))
    writer = BatchProducer(identity.producer_id, identity.producer_epoch, 0, transactional=True)
    batches = list(encoder.batches(batch_bytes=500, writer=writer))
    assert len(batches) > 1
    for encoded in batches:
        client.produce(here, encoded.batch, transactional_id=name)
    client.end_transaction(identity, commit=True)
    assert values_in(client, here, committed=True) == [f"{number}" for number in range(100)]


def test_a_pipe_keeps_the_order_of_batches_in_flight(client: KafkaClient, topic: str) -> None:
    writer = Numbered(client, topic, client.init_producer())
    writer.send(50)
    assert client.metadata([topic])  # others may ask in between
    writer.send(50)
    writer.pipe.drain()
    assert writer.written(client) == writer.wanted()


def test_a_pipe_over_connections_that_break_writes_every_batch_once() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with CuttingProxy(random.Random(seed)) as proxy, Broker(flags={"advertise": proxy.address}) as running:
        proxy.target = running.bootstrap_servers
        proxy.cutting = False
        quick = {"retry.backoff.ms": "5", "retry.backoff.max.ms": "20"}
        with KafkaClient({"bootstrap.servers": proxy.address, **quick}) as raw:
            writer = Numbered(raw, new_topic(proxy.address), raw.init_producer())
            proxy.cutting = True
            while writer.sent < 100 or sum(proxy.cuts.values()) < CUTS_MIN:
                writer.send(20)
            writer.pipe.drain()
            proxy.cutting = False
            print(f"{writer.sent} batches, cuts: {dict(proxy.cuts)}")
            assert writer.written(raw) == writer.wanted()


def test_a_pipe_outlasts_a_restart_of_the_broker() -> None:
    with Broker() as running, KafkaClient({"bootstrap.servers": running.bootstrap_servers}) as raw:
        writer = Numbered(raw, new_topic(running.bootstrap_servers), raw.init_producer())
        for _ in range(3):
            writer.send(7)
            running.restart()
        writer.send(7)
        writer.pipe.drain()
        assert writer.written(raw) == writer.wanted()


def test_batches_after_a_rejected_batch_are_not_written(client: KafkaClient, topic: str) -> None:
    identity = client.init_producer()
    writer = Numbered(client, topic, identity)
    writer.send(3)
    here = writer.partitions[0]
    writer.pipe.send({here: batch("x" * 2_000_000, identity=identity, sequence=3)})
    writer.pipe.send({here: batch("behind", identity=identity, sequence=4)})
    with pytest.raises(MessageTooLarge, match=r"^produce: "):
        writer.pipe.drain()
    assert values_in(client, here) == ["0", "1", "2"]


def test_an_error_of_the_client_is_one_line(client: KafkaClient, topic: str) -> None:
    here = TopicPartition(topic, 0)
    cases: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (UnknownTopicOrPartition, "there is no topic nowhere", lambda: client.metadata(["nowhere"])),
        (OffsetOutOfRange, f"fetch from offset 9: {here}: ", lambda: client.fetch(here, 9)),
        (MessageTooLarge, f"produce: {here}: ", lambda: client.produce(here, batch("x" * 2_000_000))),
        (ClientError, "'[' is not a regular expression: ", lambda: client.topics("[")),
        (
            ClientError,
            "the producer has no transactional id",
            lambda: client.add_partitions(ProducerIdentity(1, 0), []),
        ),
    ]
    for kind, line, call in cases:
        with pytest.raises(kind) as reported:
            call()
        assert str(reported.value).startswith(line)
        assert "\n" not in str(reported.value)


def test_an_address_without_a_listener_is_named(silent: str) -> None:
    with KafkaClient({"bootstrap.servers": silent, **QUICK}) as raw, pytest.raises(BrokerUnreachable) as reported:
        raw.topics()
    assert str(reported.value) == f"no broker answers at {silent}: connection refused"


def test_the_first_address_that_answers_is_enough(broker: Broker, silent: str) -> None:
    with KafkaClient({"bootstrap.servers": f"{silent},{broker.bootstrap_servers}", **QUICK}) as raw:
        assert isinstance(raw.topics(), dict)


def test_a_call_outlasts_a_restart_of_the_broker() -> None:
    with Broker() as running, KafkaClient({"bootstrap.servers": running.bootstrap_servers}) as raw:
        here = TopicPartition(new_topic(running.bootstrap_servers), 0)
        for number in range(20):
            raw.produce(here, batch(f"{number}-" + "x" * 500))
        decoder = Decoder(*here, columns=("offset",), kernels=load_kernels("python"))
        found: list[int] = []
        for piece in raw.read_range(here, 0, 20, max_bytes=1500):
            found += [at for rows in decoder.decode(piece.records) for at in rows["offset"].to_pylist()]
            if len(found) < 4:
                running.restart()
        assert found == list(range(20))
        running.restart()
        assert raw.produce(here, batch("after")).base_offset == 20
