"""Journals whose last bytes are damaged: everything that was acknowledged before them is there, and work goes on."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.support.group_members import WAIT_S, create_topic, quick_groups

from tidemill.testing import Broker

JOURNALS = ("__consumer_offsets", "__transaction_state")
HEADER_BYTES = 61
Damage = Callable[[bytes, random.Random], bytes]


def _noise(_: bytes, rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(1, 500))


def _zeros(_: bytes, rng: random.Random) -> bytes:
    return bytes(rng.randrange(1, 5000))


def _torn(log: bytes, rng: random.Random) -> bytes:
    """A batch that stops somewhere."""
    return log[: rng.randrange(1, HEADER_BYTES + 5)]


def _flipped(log: bytes, _: random.Random) -> bytes:
    """A whole batch with one wrong bit, which its checksum gives away."""
    size = 12 + int.from_bytes(log[8:12], "big")
    return log[: size - 1] + bytes([log[size - 1] ^ 1])


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(process=True, settings=quick_groups(), flags={"grpc": "none", "http": "none"}) as broker:
        create_topic(broker.bootstrap_servers, "t", 1)
        yield broker


def committed(broker: Broker) -> int:
    """What the group has committed, asked by a client of its own until the broker answers."""
    end = time.monotonic() + WAIT_S
    while True:
        asker = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
        try:
            return int(asker.committed([TopicPartition("t", 0)], WAIT_S)[0].offset)
        except KafkaException:
            assert time.monotonic() < end, "the broker does not answer"
        finally:
            asker.close()


def commit(broker: Broker, offset: int) -> None:
    member = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
    member.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    member.close()


def transact(broker: Broker, offset: int) -> None:
    """A transaction that moves the group."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer, member = Producer({**settings, "transactional.id": "x"}), Consumer({**settings, "group.id": "g"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("t", b"%d" % offset, partition=0)
    place = [TopicPartition("t", 0, offset)]
    producer.send_offsets_to_transaction(place, member.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)
    member.close()


def logs(folder: Path, topic: str) -> list[Path]:
    """The files of a journal that were written to."""
    return [path for path in sorted((folder / "streams" / topic).rglob("*.log")) if path.stat().st_size]


@pytest.mark.parametrize("damage", [_noise, _zeros, _torn, _flipped], ids=lambda damage: damage.__name__.strip("_"))
def test_a_damaged_end_of_a_journal_costs_nothing(broker: Broker, damage: Damage) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for offset in (10, 20):
        commit(broker, offset)
        transact(broker, offset + 1)
        broker.kill()
        for name in JOURNALS:
            written = logs(broker.data_dir, name)
            assert written, f"{name} was written to"
            for path in written:
                with path.open("r+b") as file:
                    log = file.read()
                    file.write(damage(log, rng))
        broker.restart()
        assert committed(broker) == offset + 1
    commit(broker, 30)
    transact(broker, 31)
    assert committed(broker) == 31
