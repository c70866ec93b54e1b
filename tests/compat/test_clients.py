"""One scenario, every client: what an application writes is what an application reads, byte for byte."""

import random
import time
from collections.abc import Iterator

import pytest
from tests.compat.clients import CLIENTS, CODECS, Client, Confluent, Sent

from tidemill.testing import Broker

# An hour ago: older records would be retention's to delete.
BASE_MS = time.time_ns() // 1_000_000 - 3_600_000
MANY = 100_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True) as broker:
        yield broker


@pytest.fixture(params=CLIENTS, ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, broker: Broker) -> Client:
    made: Client = request.param(broker.bootstrap_servers)
    return made


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    name = f"{request.function.__name__}.{client.name}"
    client.create_topic(name, 3)
    return name


def plain(count: int) -> list[Sent]:
    return [Sent(f"k{index}".encode(), f"value {index}".encode(), (), BASE_MS + index) for index in range(count)]


def test_admin(client: Client) -> None:
    name = f"admin.{client.name}"
    client.create_topic(name, 2)
    assert name in client.topics()
    client.delete_topic(name)
    assert name not in client.topics()


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(client: Client, codec: str, broker: Broker) -> None:
    name = f"codec.{codec}.{client.name}"
    client.create_topic(name, 1)
    sent = plain(200)
    client.produce(name, 0, sent, codec=codec)
    for reader in (client, Confluent(broker.bootstrap_servers)):
        seen = reader.consume(name, 0, 0, len(sent))
        assert [(each.offset, each.key, each.value) for each in seen] == [
            (offset, each.key, each.value) for offset, each in enumerate(sent)
        ]


def test_keys_headers_nulls_and_times(client: Client, topic: str) -> None:
    sent = [
        Sent(None, b"no key", (), BASE_MS),
        Sent(b"gone", None, (), BASE_MS + 1),
        Sent(b"", b"", (), BASE_MS + 2),
        Sent(b"k", "Grüße".encode(), (("trace", b"1"), ("trace", b"2"), ("empty", b"")), BASE_MS + 3),
    ]
    client.produce(topic, 1, sent)
    seen = client.consume(topic, 1, 0, len(sent))
    assert [(each.value, each.headers, each.timestamp) for each in seen] == [
        (each.value, each.headers, each.timestamp) for each in sent
    ]
    # kcat prints a missing key and an empty one alike.
    assert [each.key or None for each in seen] == [each.key or None for each in sent]


def test_idempotent(client: Client, topic: str) -> None:
    sent = plain(500)
    client.produce(topic, 0, sent, idempotent=True)
    client.produce(topic, 0, sent, idempotent=True)
    assert client.offsets(topic, 0) == (0, 1_000)
    assert [each.value for each in client.consume(topic, 0, 0, 1_000)] == [each.value for each in sent * 2]


def test_from_every_kind_of_offset(client: Client, topic: str) -> None:
    sent = [Sent(None, b"%d" % index, (), BASE_MS + 10 * index) for index in range(300)]
    client.produce(topic, 2, sent)
    assert client.offsets(topic, 2) == (0, 300)
    assert client.offsets(topic, 0) == (0, 0)
    # 117 is inside a batch: reading starts at that record, not at the batch's first.
    assert [each.offset for each in client.consume(topic, 2, 117, 183)] == list(range(117, 300))
    assert client.offset_at(topic, 2, BASE_MS + 1_234) == 124
    assert client.offset_at(topic, 2, BASE_MS - 5) == 0
    assert client.offset_at(topic, 2, BASE_MS + 10_000_000) in {None, 300}


def test_a_hundred_thousand_records_over_a_kill(broker: Broker) -> None:
    """Byte for byte, with a kill -9 in between: acks=all means that the disk has them."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    sent = [
        Sent(draw.randbytes(draw.randrange(8)) or None, draw.randbytes(draw.randrange(200)), (), BASE_MS)
        for _ in range(MANY)
    ]
    client = Confluent(broker.bootstrap_servers)
    client.create_topic("many", 1)
    client.produce("many", 0, sent, codec="lz4", idempotent=True)
    broker.kill()
    broker.restart()
    seen = client.consume("many", 0, 0, MANY)
    assert [(each.key, each.value) for each in seen] == [(each.key, each.value) for each in sent]
    assert [each.offset for each in seen] == list(range(MANY))
