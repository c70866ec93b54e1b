"""Groups after kill -9 of the broker: acknowledged commits are there, members continue, and no offset goes back."""

import random
import struct
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.support.group_members import WAIT_S, Crowd, create_topic, produce, quick_groups

from tidemill.testing import Broker

PARTITIONS = 4
KILLS = 3
OFFSET_OF_G = b"\0\1\0\1g\0\1t\0\0\0\0"
GROUP_G = b"\0\2\0\1g"
NO_MEMBERS = b"\0\0\0\0"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(process=True, settings=quick_groups()) as broker:
        yield broker


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_go_on_after_a_kill(broker: Broker, protocol: str) -> None:
    create_topic(broker.bootstrap_servers, "t", PARTITIONS)
    with Crowd(broker.bootstrap_servers, "g", ["t"], **{"group.protocol": protocol}) as group:
        group.join("a", "b")
        group.until_shared(PARTITIONS)
        produce(broker.bootstrap_servers, "t", PARTITIONS, 10)
        group.until(lambda: len(group.seen) == PARTITIONS * 10, "every record is seen")
        for consumer in group.members.values():
            consumer.commit(asynchronous=False)
        shares = group.shares()
        broker.kill()
        broker.restart()
        group.seen.clear()
        produce(broker.bootstrap_servers, "t", PARTITIONS, 10)
        group.until(lambda: len(group.seen) >= PARTITIONS * 10, "the rest is seen")
        assert {offset for _, _, offset in group.seen} == set(range(10, 20))
        assert group.shares() == shares, "the broker remembers who had what"


def test_the_journal_is_a_topic_that_kafka_tools_can_read(broker: Broker) -> None:
    create_topic(broker.bootstrap_servers, "t", 1)
    with Crowd(broker.bootstrap_servers, "g", ["t"]) as group:
        group.join("a")
        group.until_shared(1)
        group.members["a"].commit(offsets=[TopicPartition("t", 0, 7, "note")], asynchronous=False)
    found: dict[bytes, bytes] = {}
    with Crowd(broker.bootstrap_servers, "reader", ["__consumer_offsets"]) as reader:
        reader.join("r")
        consumer = reader.members["r"]
        end = time.monotonic() + WAIT_S
        while not (OFFSET_OF_G in found and found.get(GROUP_G, b"").endswith(NO_MEMBERS)):
            assert time.monotonic() < end, f"found {sorted(found)}"
            for message in consumer.consume(100, 0.2):
                if message.error() is None:
                    found[message.key()] = message.value()
    version, offset, epoch, length = struct.unpack_from(">hqih", found[OFFSET_OF_G])
    assert (version, offset, epoch) == (3, 7, -1)
    assert found[OFFSET_OF_G][16 : 16 + length].rstrip(b"\0") == b"note"  # this client sends a C string with its end
    assert found[GROUP_G][:12] == b"\0\3\0\x08consumer"


def test_a_commit_that_was_acknowledged_is_never_lost(broker: Broker) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    create_topic(broker.bootstrap_servers, "t", 1)
    operator = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    acknowledged = 0
    try:
        for _ in range(KILLS):
            for _ in range(rng.randrange(1, 40)):
                place = TopicPartition("t", 0, acknowledged + 1, f"note {acknowledged + 1}")
                operator.commit(offsets=[place], asynchronous=False)
                acknowledged += 1
            broker.kill()
            broker.restart()
            assert _committed(operator, TopicPartition("t", 0)) == (acknowledged, f"note {acknowledged}")
    finally:
        operator.close()


def _committed(operator: Consumer, place: TopicPartition) -> tuple[int, str]:
    """The committed offset and its note, once the client has found the broker again."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            (found,) = operator.committed([place], WAIT_S)
        except KafkaException:
            assert time.monotonic() < end, "the broker is not found again"
        else:
            return found.offset, found.metadata
