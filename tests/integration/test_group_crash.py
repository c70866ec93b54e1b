"""Groups over kill -9 of the broker: what was acknowledged is there, members go on, nothing committed comes back."""

import random
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.compat.crowd import WAIT_S, Crowd, create_topic, produce, quick_groups

from tidemill.testing import Broker

PARTITIONS = 4
KILLS = 3


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
