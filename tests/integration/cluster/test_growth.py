"""Brokers that join one after the other: internal topics get their replicas, and then a broker may be lost."""

import time
from threading import Event, Thread

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.integration.cluster.test_timelines import address
from tests.support.cluster_processes import WAIT_S, Brokers, running_brokers
from tests.support.command_line import CommandLine
from tests.support.waiting import eventually

from tidemill import Message, Timeline

PARTITIONS = {"__consumer_offsets": 6, "__timelines": 4, "__transaction_state": 2}
SETTINGS = {
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "2",
}
LATER_S = 3600.0


class SteadyScheduler(Thread):
    """Schedules messages until it is stopped. Every call has to succeed."""

    def __init__(self, where: str) -> None:
        super().__init__(daemon=True)
        self.ids: list[str] = []
        self.failures: list[BaseException] = []
        self._where = where
        self._stopping = Event()

    def run(self) -> None:
        try:
            with Timeline(self._where, "reminders", timeout_ms=30_000) as timeline:
                while not self._stopping.wait(0.02):
                    name = f"m{len(self.ids)}"
                    timeline.schedule([Message(b"x", due=time.time() + LATER_S, id=name)])
                    self.ids.append(name)
        except Exception as error:  # noqa: BLE001 - the test reports it
            self.failures.append(error)

    def stop(self) -> None:
        self._stopping.set()
        self.join(WAIT_S)


def internal_replicas(admin: AdminClient) -> dict[str, list[tuple[int, int]]]:
    """How many replicas each partition of the internal topics has, and how many are in sync."""
    topics = admin.list_topics(timeout=WAIT_S).topics
    return {
        name: [(len(each.replicas), len(each.isrs)) for each in topics[name].partitions.values()] for name in PARTITIONS
    }


def required_replicas(admin: AdminClient) -> str:
    resource = ConfigResource(ResourceType.TOPIC, "__timelines")
    found: str = admin.describe_configs([resource])[resource].result(WAIT_S)["min.insync.replicas"].value
    return found


def use_groups_and_transactions(brokers: Brokers) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.address(1), "transactional.id": "t"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("orders", b"one", partition=0)
    producer.commit_transaction(WAIT_S)
    for number in range(12):
        consumer = confluent_kafka.Consumer({"bootstrap.servers": brokers.address(1), "group.id": f"g{number}"})
        offset = confluent_kafka.TopicPartition("orders", 0, number)
        consumer.commit(offsets=[offset], asynchronous=False)
        consumer.close()


def committed(brokers: Brokers, number: int) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": f"g{number}"})
    try:
        [found] = consumer.committed([confluent_kafka.TopicPartition("orders", 0)], WAIT_S)
    finally:
        consumer.close()
    return int(found.offset)


def test_internal_topics_of_one_broker_get_replicas_when_others_join(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_brokers(3, SETTINGS, first=[1], grpc="127.0.0.1:0", timelines="replicated:") as brokers:
        with Timeline(address(brokers, 1), "reminders") as timeline:
            timeline.create()
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        CommandLine(brokers.address(1), capsys, monkeypatch).fine("topic", "create", "orders", "--partitions", "1")
        use_groups_and_transactions(brokers)
        assert internal_replicas(admin) == {name: [(1, 1)] * count for name, count in PARTITIONS.items()}
        assert required_replicas(admin) == "1"
        scheduler = SteadyScheduler(address(brokers, 1))
        scheduler.start()
        brokers.start(2)
        eventually(
            lambda: internal_replicas(admin) == {name: [(2, 2)] * count for name, count in PARTITIONS.items()},
            "they have no second replica",
        )
        brokers.start(3)
        eventually(
            lambda: internal_replicas(admin) == {name: [(3, 3)] * count for name, count in PARTITIONS.items()},
            "they have no third replica",
        )
        eventually(lambda: required_replicas(admin) == "2", "two replicas are not required")
        scheduler.stop()
        assert scheduler.failures == []
        status = CommandLine(brokers.bootstrap, capsys, monkeypatch).fine("cluster", "status", "--json").json()
        assert (status["moving"], status["under_replicated"]) == (0, 0)
        brokers.kill(1)
        with Timeline(address(brokers, 2), "reminders", timeout_ms=30_000) as timeline:
            eventually(lambda: timeline.count() == len(scheduler.ids), "messages are lost")
            timeline.schedule([Message(b"x", due=time.time() + LATER_S, id="after")])
            timeline.cancel([*scheduler.ids, "after"])
            assert timeline.count() == 0
        assert [committed(brokers, number) for number in range(12)] == list(range(12))
