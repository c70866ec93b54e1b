"""Share groups with a real client: librdkafka's share consumer, against a broker in a process of its own."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.support.group_members import create_topic

from tidemill.testing import Broker

WAIT_S = 60
SETTINGS = {"group.share.record.lock.duration.ms": "1000", "group.share.heartbeat.interval.ms": "200"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS, process=True) as broker:
        yield broker


def configure(bootstrap: str, group: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in {"share_auto_offset_reset": "earliest", **settings}.items()
    ]
    operator = AdminClient({"bootstrap.servers": bootstrap})
    for future in operator.incremental_alter_configs(
        [ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)]
    ).values():
        future.result(WAIT_S)


def produce(bootstrap: str, topic: str, count: int) -> set[bytes]:
    values = {f"v{number}".encode() for number in range(count)}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "batch.num.messages": 7})
    for value in sorted(values):
        producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0
    return values


def consumer(bootstrap: str, group: str, topic: str, **settings: Any) -> ShareConsumer:
    made = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    made.subscribe([topic])
    return made


def polled(members: list[ShareConsumer], done: Callable[[], bool]) -> Iterator[tuple[ShareConsumer, Message]]:
    end = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < end, "the records did not come"
        for member in members:
            for message in member.poll(timeout=0.2):
                assert message.error() is None, message.error()
                yield member, message


def explicit() -> dict[str, str]:
    return {"share.acknowledgement.mode": "explicit"}


def test_members_share_one_partition(broker: Broker) -> None:
    create_topic(broker.bootstrap_servers, "shared", 1)
    configure(broker.bootstrap_servers, "sharers")
    values = produce(broker.bootstrap_servers, "shared", 200)
    members = [consumer(broker.bootstrap_servers, "sharers", "shared") for _ in range(3)]
    seen: Counter[bytes] = Counter()
    for _, message in polled(members, lambda: len(seen) == len(values)):
        seen[message.value() or b""] += 1
    for member in members:
        member.close()
    assert seen == Counter(values)


def test_released_records_come_again_and_rejected_ones_do_not(broker: Broker) -> None:
    create_topic(broker.bootstrap_servers, "again", 1)
    configure(broker.bootstrap_servers, "again")
    values = produce(broker.bootstrap_servers, "again", 30)
    member = consumer(broker.bootstrap_servers, "again", "again", **explicit())
    seen: Counter[bytes] = Counter()
    counts: set[tuple[int, int]] = set()
    released = {value for value in values if value.endswith(b"3")}
    for each, message in polled([member], lambda: sum(seen.values()) == len(values) + len(released)):
        value = message.value() or b""
        seen[value] += 1
        counts.add((seen[value], message.delivery_count() or 0))
        is_first = seen[value] == 1
        kind = AcknowledgeType.REJECT if value.endswith(b"4") else AcknowledgeType.ACCEPT
        each.acknowledge(message, AcknowledgeType.RELEASE if value in released and is_first else kind)
    member.commit_sync(WAIT_S)
    member.close()
    assert counts == {(1, 1), (2, 2)}
    late = consumer(broker.bootstrap_servers, "again", "again")
    assert not list(late.poll(timeout=2.0))
    late.close()


def test_a_record_whose_lock_ends_goes_to_another_member(broker: Broker) -> None:
    create_topic(broker.bootstrap_servers, "locks", 1)
    configure(broker.bootstrap_servers, "locks")
    values = produce(broker.bootstrap_servers, "locks", 5)
    slow = consumer(broker.bootstrap_servers, "locks", "locks", **explicit())
    held: list[Message] = []
    for _, message in polled([slow], lambda: len(held) == len(values)):
        held.append(message)
    quick = consumer(broker.bootstrap_servers, "locks", "locks")
    seen: set[bytes] = set()
    for _, message in polled([quick], lambda: seen == values):
        assert message.delivery_count() == 2
        seen.add(message.value() or b"")
    quick.close()
    slow.close()


def test_acknowledgements_survive_a_crash() -> None:
    with Broker(settings=SETTINGS, process=True) as first:
        create_topic(first.bootstrap_servers, "kept", 1)
        configure(first.bootstrap_servers, "kept")
        values = produce(first.bootstrap_servers, "kept", 40)
        member = consumer(first.bootstrap_servers, "kept", "kept", **explicit())
        done: set[bytes] = set()
        seen: set[bytes] = set()
        for each, message in polled([member], lambda: seen == values):
            value = message.value() or b""
            seen.add(value)
            if value[-1] % 2:
                each.acknowledge(message)
                done.add(value)
            else:
                each.acknowledge(message, AcknowledgeType.RELEASE)
        assert all(error is None for error in member.commit_sync(WAIT_S).values())
        first.kill()
        first.restart()
        later = consumer(first.bootstrap_servers, "kept", "kept")
        again: set[bytes] = set()
        for _, message in polled([later], lambda: again == values - done):
            again.add(message.value() or b"")
        later.close()
        member.close()
    assert not again & done


def test_aborted_records_are_not_delivered_to_readers_of_committed_ones(broker: Broker) -> None:
    create_topic(broker.bootstrap_servers, "committed", 1)
    configure(broker.bootstrap_servers, "committed", share_isolation_level="read_committed")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "shares"})
    producer.init_transactions(WAIT_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce("committed", f"{number}".encode())
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(WAIT_S)
    member = consumer(broker.bootstrap_servers, "committed", "committed")
    seen: list[bytes] = []
    for _, message in polled([member], lambda: len(seen) == 3):
        seen.append(message.value() or b"")
    assert not list(member.poll(timeout=1.0))
    member.close()
    assert seen == [b"0", b"2", b"4"]


def test_a_released_record_waits_for_its_backoff(broker: Broker) -> None:
    create_topic(broker.bootstrap_servers, "polite", 1)
    configure(broker.bootstrap_servers, "polite", tidemill_share_retry_backoff_ms="1500")
    values = produce(broker.bootstrap_servers, "polite", 10)
    member = consumer(broker.bootstrap_servers, "polite", "polite", **explicit())
    released_s, waited_s = 0.0, 0.0
    order: list[bytes] = []
    for each, message in polled([member], lambda: len(order) == len(values) + 1):
        value = message.value() or b""
        if value == b"v0" and not released_s:
            each.acknowledge(message, AcknowledgeType.RELEASE)
            released_s = time.monotonic()
        else:
            each.acknowledge(message)
            waited_s = time.monotonic() - released_s
        order.append(value)
    member.close()
    assert order[-1] == b"v0"
    assert waited_s >= 1.5
