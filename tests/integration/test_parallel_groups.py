"""The parallel consumer in every kind of group: members join and leave while they work, and nothing is lost."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.integration.parallel import WAIT_S, Book, committed, config, fill
from tests.support.waiting import eventually

from tidemill.client.parallel.consumer import ParallelConsumer
from tidemill.client.parallel.record import ParallelRecord
from tidemill.testing import Broker

RECORDS = 2_000
LIMIT = 20
KINDS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    # A static member says no farewell: its partition is free when its session ends.
    "static": {"group.instance.id": "worker-{}", "session.timeout.ms": 6_000},
    "consumer": {"group.protocol": "consumer"},
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True, settings={"group.consumer.heartbeat.interval.ms": "500"}) as broker:
        yield broker


def member(broker: Broker, kind: str, topic: str, number: int) -> ParallelConsumer:
    settings = {name: str(value).format(number) for name, value in KINDS[kind].items()}
    return ParallelConsumer(config(broker, topic, **settings), [topic], workers=8, commit_interval_ms=200)


@pytest.mark.parametrize("kind", KINDS)
def test_members_come_and_go_while_working(broker: Broker, kind: str) -> None:
    """The second joins in the middle of the work, the first leaves before its end."""
    topic = f"work-{kind}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(WAIT_S)
    fill(broker, topic, RECORDS)
    book, hurry = Book(10**9), threading.Event()

    def handle(record: ParallelRecord) -> None:
        if not hurry.is_set():
            time.sleep(0.02)
        book.write(record)

    consumers = [member(broker, kind, topic, number) for number in range(2)]
    threads = [threading.Thread(target=consumer.run, args=(handle,)) for consumer in consumers]
    threads[0].start()
    try:
        eventually(lambda: len(book.seen) > 20)
        threads[1].start()
        eventually(lambda: [len(consumer.stats().assigned) for consumer in consumers] == [1, 1])
        consumers[0].stop(drain=False)
        threads[0].join(WAIT_S)
        hurry.set()
        eventually(lambda: [offset for offset, _ in committed(broker, topic, topic).values()] == [RECORDS // 2] * 2)
    finally:
        hurry.set()
        for consumer in consumers:
            consumer.stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert len({(partition, offset) for partition, _, offset in book.seen}) == RECORDS


@pytest.mark.parametrize("kind", ["eager", "cooperative", "consumer"])
def test_a_partition_that_comes_while_others_are_paused_keeps_none_of_them_so(broker: Broker, kind: str) -> None:
    topic = f"grows-{kind}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
    fill(broker, topic, LIMIT * 10, keys=1)
    settings = {**KINDS[kind], "topic.metadata.refresh.interval.ms": 300}
    consumer = ParallelConsumer(
        config(broker, topic, **settings), [topic], workers=4, max_in_flight=LIMIT, revoke_timeout_ms=100
    )
    begin = threading.Event()
    thread = threading.Thread(target=consumer.run, args=(lambda _: begin.wait(WAIT_S),))
    thread.start()
    try:
        eventually(lambda: consumer.stats().waiting >= LIMIT - 1)
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT_S)
        eventually(lambda: len(consumer.stats().assigned) == 2)
        begin.set()
        eventually(lambda: consumer.stats().completed >= LIMIT * 10)
    finally:
        begin.set()
        consumer.stop(drain=False)
        thread.join(WAIT_S)
    assert not thread.is_alive()
