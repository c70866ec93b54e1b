"""Groups as applications see them through librdkafka, with the classic protocol and with KIP-848."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException, TopicPartition
from tests.compat.storage import Storage
from tests.support.group_members import WAIT_S, Crowd, admin, create_topic, grow_topic, produce, quick_groups

from tidemill.testing import Broker

PROTOCOLS = ("classic", "consumer")
PARTITIONS = 8


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True, settings=quick_groups()) as broker:
        yield broker


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "." for letter in request.node.name).strip(".")
    create_topic(broker.bootstrap_servers, name, PARTITIONS)
    return name


def crowd(broker: Broker, topic: str, protocol: str, **config: Any) -> Crowd:
    return Crowd(broker.bootstrap_servers, topic, [topic], **{"group.protocol": protocol}, **config)


def committed(broker: Broker, group: str, topic: str, partitions: int = PARTITIONS) -> list[int]:
    asker = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    try:
        places = asker.committed([TopicPartition(topic, index) for index in range(partitions)], WAIT_S)
        return [place.offset for place in places]
    finally:
        asker.close()


def test_members_come_and_go_and_nothing_is_left_out(broker: Broker, topic: str, protocol: str) -> None:
    produce(broker.bootstrap_servers, topic, PARTITIONS, 20)
    with crowd(broker, topic, protocol) as group:
        group.join("a")
        group.until_shared(PARTITIONS)
        group.join("b", "c")
        group.until_shared(PARTITIONS)
        group.join("d", "e", "f", "g", "h")
        group.until_shared(PARTITIONS)
        group.leave("a", "c", "d", "e", "f", "g")
        group.until_shared(PARTITIONS)
        produce(broker.bootstrap_servers, topic, PARTITIONS, 20)
        group.until(lambda: len(group.seen) == PARTITIONS * 40, "every record is seen")
        for consumer in group.members.values():
            consumer.commit(asynchronous=False)
        assert committed(broker, topic, topic) == [40] * PARTITIONS


def test_a_later_consumer_continues_at_the_committed_offsets(broker: Broker, topic: str, protocol: str) -> None:
    produce(broker.bootstrap_servers, topic, PARTITIONS, 10)
    with crowd(broker, topic, protocol) as first:
        first.join("a")
        first.until(lambda: len(first.seen) == PARTITIONS * 10, "every record is seen")
        first.members["a"].commit(asynchronous=False)
    produce(broker.bootstrap_servers, topic, PARTITIONS, 5)
    with crowd(broker, topic, protocol) as second:
        second.join("b", "c")
        second.until(lambda: len(second.seen) >= PARTITIONS * 5, "the rest is seen")
        assert {offset for _, _, offset in second.seen} == set(range(10, 15))


CHILD = """
import sys
from confluent_kafka import Consumer
bootstrap, group, topic, protocol = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol,
                     **({} if protocol == "consumer" else {"session.timeout.ms": 3000})})
consumer.subscribe([topic])
while len(consumer.assignment()) == 0:
    consumer.poll(0.1)
print("assigned", flush=True)
while True:
    consumer.poll(0.1)
"""


@pytest.fixture(scope="module")
def impatient(storage: Storage) -> Iterator[Broker]:
    """A broker with short sessions."""
    short = {"group.min.session.timeout.ms": "3000", "group.consumer.session.timeout.ms": "3000"}
    with Broker(process=True, flags=storage.flags, settings=quick_groups(**short)) as broker:
        yield broker


def test_a_member_that_dies_is_replaced_after_its_session(impatient: Broker, protocol: str) -> None:
    broker, topic = impatient, f"orders.{protocol}"
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    arguments = [broker.bootstrap_servers, topic, topic, protocol]
    child = subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "assigned\n"
        with crowd(broker, topic, protocol) as group:
            group.join("a")
            group.until(lambda: len(group.shares()["a"]) == PARTITIONS // 2, "a has its half")
            child.kill()
            group.until_shared(PARTITIONS)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()  # type: ignore[union-attr]  # it was opened as a pipe


def test_a_member_that_is_paused_is_passed_over_and_comes_back(impatient: Broker) -> None:
    topic = "paused"
    create_topic(impatient.bootstrap_servers, topic, PARTITIONS)
    config = {"session.timeout.ms": 3_000, "max.poll.interval.ms": 3_000}
    with crowd(impatient, topic, "classic", **config) as group:
        group.join("a", "b")
        group.until_shared(PARTITIONS)
        paused = group.members.pop("b")
        group.until_shared(PARTITIONS)
        group.members["b"] = paused
        group.until_shared(PARTITIONS)


def test_a_static_member_that_restarts_starts_no_rebalance(broker: Broker, topic: str, protocol: str) -> None:
    with crowd(broker, topic, protocol) as group:
        group.join("a", **{"group.instance.id": "one"})
        group.join("b", **{"group.instance.id": "two"})
        group.until_shared(PARTITIONS)
        before, calls = group.shares(), group.rebalances["a"]
        group.lost.clear()
        group.leave("b")
        group.join("b", **{"group.instance.id": "two"})
        group.until(lambda: group.shares() == before, "b has what it had")
        assert group.rebalances["a"] == calls
        assert not group.lost.get("a")


def test_a_pattern_finds_topics_that_are_made_later(broker: Broker, topic: str, protocol: str) -> None:
    create_topic(broker.bootstrap_servers, f"other.{topic}", 1)
    with Crowd(
        broker.bootstrap_servers, topic, [f"^{topic.replace('.', '[.]')}.*"], **{"group.protocol": protocol}
    ) as group:
        group.join("a", "b")
        group.until_shared(PARTITIONS)
        create_topic(broker.bootstrap_servers, f"{topic}.later", 2)
        group.until_shared(PARTITIONS + 2)


def test_new_partitions_are_shared_out(broker: Broker, topic: str) -> None:
    with crowd(broker, topic, "consumer") as group:
        group.join("a", "b")
        group.until_shared(PARTITIONS)
        group.lost.clear()
        grow_topic(broker.bootstrap_servers, topic, PARTITIONS + 4)
        group.until_shared(PARTITIONS + 4)
        assert not any(group.lost.values()), "no member had to give anything up for it"


@pytest.mark.parametrize("assignor", ["uniform", "range", "roundrobin"])
def test_the_broker_assigns_as_it_is_asked(broker: Broker, topic: str, assignor: str) -> None:
    with crowd(broker, topic, "consumer", **{"group.remote.assignor": assignor}) as group:
        group.join("a", "b", "c")
        group.until_shared(PARTITIONS)
        operator = admin(broker.bootstrap_servers)
        described = operator.describe_consumer_groups([topic])[topic].result(WAIT_S)
        assert (described.type, described.partition_assignor) == (ConsumerGroupType.CONSUMER, assignor)
        assert described.state == ConsumerGroupState.STABLE
        shares = {member.client_id: member.assignment.topic_partitions for member in described.members}
        assert {name: {(each.topic, each.partition) for each in share} for name, share in shares.items()} == (
            group.shares()
        )
        assert all(
            len(member.assignment.topic_partitions) == len(member.target_assignment.topic_partitions)
            for member in described.members
        )


def test_cooperative_members_keep_unmoved_partitions(broker: Broker, topic: str) -> None:
    with crowd(broker, topic, "classic", **{"partition.assignment.strategy": "cooperative-sticky"}) as group:
        group.join("a")
        group.until_shared(PARTITIONS)
        kept = group.shares()["a"]
        group.join("b")
        group.until_shared(PARTITIONS)
        assert group.shares()["a"] < kept
        assert len(group.lost["a"]) == PARTITIONS // 2, "it gave up only what the other got"
        group.join("c", "d")
        group.until_shared(PARTITIONS)
        group.leave("b", "c")
        group.until_shared(PARTITIONS)


def test_a_group_in_the_hands_of_an_operator(broker: Broker, topic: str, protocol: str) -> None:
    operator = admin(broker.bootstrap_servers)
    with crowd(broker, topic, protocol) as group:
        group.join("a")
        group.until_shared(PARTITIONS)
        group.members["a"].commit(offsets=[TopicPartition(topic, 0, 7, "a note")], asynchronous=False)
        with pytest.raises(KafkaException, match=r"NON_EMPTY_GROUP|Group is not empty|not empty"):
            operator.delete_consumer_groups([topic])[topic].result(WAIT_S)
        listed = {each.group_id: each for each in operator.list_consumer_groups().result(WAIT_S).valid}
        assert listed[topic].state == ConsumerGroupState.STABLE
        assert listed[topic].type == ConsumerGroupType[protocol.upper()]
    assert committed(broker, topic, topic) == [7] + [-1001] * (PARTITIONS - 1)
    empty = operator.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(WAIT_S).valid
    assert topic in {each.group_id for each in empty}
    operator.delete_consumer_groups([topic])[topic].result(WAIT_S)
    assert committed(broker, topic, topic) == [-1001] * PARTITIONS
    with pytest.raises(KafkaException):
        operator.delete_consumer_groups([topic])[topic].result(WAIT_S)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_running_group_changes_its_protocol_and_back(broker: Broker, topic: str, strategy: str) -> None:
    """A rolling restart: each member comes back with the other protocol; nothing is left out on the way."""
    old = {"group.protocol": "classic", "partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200}
    new = {"group.protocol": "consumer"}
    produce(broker.bootstrap_servers, topic, PARTITIONS, 10)
    with Crowd(broker.bootstrap_servers, topic, [topic], **new) as group:
        group.join("a", "b", **old)
        group.until_shared(PARTITIONS)
        for name in "ab":
            group.leave(name)
            group.join(name, **new)
            group.until_shared(PARTITIONS)
        for name in "ab":
            group.leave(name)
            group.join(name, **old)
            group.until_shared(PARTITIONS)
        produce(broker.bootstrap_servers, topic, PARTITIONS, 10)
        group.until(lambda: len(group.seen) == PARTITIONS * 20, "every record is seen")
