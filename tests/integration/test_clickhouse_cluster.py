"""Two brokers over the same ClickHouse: topics and groups are shared, and each record is stored once.

Brokers agree by a real etcd; the server is the front over the embedded engine (tests/support/clickhouse_front.py).
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.clickhouse import Server, running
from tests.support.etcd import running_etcd
from tests.support.waiting import eventually

from tidemill.client.kafka import KafkaClient
from tidemill.model.errors import InvalidReplicaAssignment
from tidemill.model.topics import TopicPartition as Partition
from tidemill.streams.clickhouse.schema import VERSION
from tidemill.testing import Broker

WAIT_S = 60.0
PARTITIONS = 4
COUNT = 80
SOUND = "SELECT count(), uniqExact(partition, offset) FROM messages WHERE topic = 'shared'"
LAG = "sum(committed_offset), sum(lag), countIf(lag_seconds > 0)"
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "1000",
    "group.min.session.timeout.ms": "1000",
}


class World:
    def __init__(self, server: Server, coordination: str, brokers: list[Broker]) -> None:
        self.server = server
        self.coordination = coordination
        self.brokers = brokers
        self.admin = AdminClient({"bootstrap.servers": brokers[0].bootstrap_servers})

    def create(self, topic: str, copies: int = 1) -> None:
        self.admin.create_topics([NewTopic(topic, PARTITIONS, copies)])[topic].result(WAIT_S)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("shared")
    with running_etcd() as etcd, running(folder, 1) as (server,):
        flags = {
            "coordination": etcd.new_folder(),
            "streams": f"clickhouse://127.0.0.1:{server.port}/tidemill",
            "grpc": "none",
        }
        brokers = [Broker(process=True, flags={**flags, "node-id": str(node)}, settings=SETTINGS) for node in range(2)]
        try:
            together(Broker.start, brokers)
            yield World(server, flags["coordination"], brokers)
        finally:
            together(Broker.stop, brokers)


def together(work: Callable[[Broker], object], brokers: list[Broker]) -> None:
    with ThreadPoolExecutor(len(brokers)) as threads:
        list(threads.map(work, brokers))


def asked(broker: Broker, sql: str) -> list[list[int]]:
    reported = httpx.post(f"{broker.http}/api/v1/sql", json={"query": sql}, timeout=WAIT_S).json()
    found: list[list[int]] = reported["rows"]
    return found


def send(broker: Broker, topic: str, first: int, count: int) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failed == []


class Member:
    """A consumer that knows one broker only."""

    def __init__(self, broker: Broker, topic: str, group: str) -> None:
        self.seen: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
            }
        )
        self.consumer.subscribe([topic])

    def poll(self) -> int:
        """How much was read, with what comes now."""
        for message in self.consumer.consume(COUNT, 0.1):
            if message.error() is None:
                self.seen.append(int(message.value()))
            else:  # a broker hears of a new topic a little after its creator
                assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        return len(self.seen)

    @property
    def partitions(self) -> list[int]:
        return sorted(each.partition for each in self.consumer.assignment())


def test_members_at_two_brokers_are_one_group(world: World) -> None:
    world.create("shared")
    first, second = (Member(broker, "shared", "both") for broker in world.brokers)
    members = (first, second)

    def settled() -> bool:
        for each in members:
            each.poll()
        return sorted(first.partitions + second.partitions) == list(range(PARTITIONS)) and all(
            len(each.partitions) == PARTITIONS // 2 for each in members
        )

    eventually(settled, "each member has half of the partitions")
    send(world.brokers[0], "shared", 0, COUNT // 2)
    send(world.brokers[1], "shared", COUNT // 2, COUNT // 2)

    def all_seen() -> bool:
        for each in members:
            each.poll()
        return len(first.seen) + len(second.seen) >= COUNT

    eventually(all_seen, "every record is read")
    assert sorted(first.seen + second.seen) == list(range(COUNT))
    assert first.seen
    assert second.seen
    for each in members:
        each.consumer.commit(asynchronous=False)
    assert world.server.ask(f"{SOUND} AND mark = 'record'") == f"{COUNT}\t{COUNT}"
    for broker in world.brokers:
        assert asked(broker, SOUND) == [[COUNT, COUNT]]
        assert asked(broker, "SELECT count(), sum(end_offset) FROM partitions WHERE topic = 'shared'") == [
            [PARTITIONS, COUNT]
        ]
        assert asked(broker, "SELECT count(), countIf(leader) FROM group_members WHERE group_id = 'both'") == [[2, 1]]
        assert asked(broker, f"SELECT count(), {LAG} FROM consumer_lag WHERE group_id = 'both'") == [
            [PARTITIONS, COUNT, 0, 0]
        ]
    send(world.brokers[0], "shared", COUNT, PARTITIONS)
    for broker in world.brokers:
        assert asked(broker, f"SELECT {LAG} FROM consumer_lag WHERE group_id = 'both'") == [
            [COUNT, PARTITIONS, PARTITIONS]
        ]
        assert asked(broker, "SELECT members, lag FROM group_activity WHERE group_id = 'both'") == [[2, PARTITIONS]]
    eventually(lambda: sum(each.poll() for each in members) == COUNT + PARTITIONS, "what came later is read")
    for each in members:
        each.consumer.commit(asynchronous=False)
    committed = "SELECT sum(committed_offset), sum(lag) FROM consumer_lag WHERE group_id = 'both'"
    eventually(lambda: world.server.ask(committed) == f"{COUNT + PARTITIONS}\t0", "the server has the offsets of both")
    active = "SELECT members FROM group_activity WHERE group_id = 'both'"
    eventually(lambda: world.server.ask(active) == "2", "the server has both members")
    second.consumer.close()
    eventually(lambda: first.poll() >= 0 and first.partitions == list(range(PARTITIONS)), "who stays reads everything")
    first.consumer.close()


def test_every_broker_rejects_a_commit_of_a_client_that_is_no_member(world: World) -> None:
    world.create("fenced")
    send(world.brokers[0], "fenced", 0, 4)
    member = Member(world.brokers[1], "fenced", "turns")
    eventually(lambda: member.poll() == 4, "the member reads")
    for broker in world.brokers:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        change = ConsumerGroupTopicPartitions("turns", [TopicPartition("fenced", 0, 1)])
        found = admin.alter_consumer_group_offsets([change])["turns"].result(WAIT_S)
        assert [each.error.name() for each in found.topic_partitions] == ["UNKNOWN_MEMBER_ID"]
    member.consumer.commit(asynchronous=False)
    member.consumer.close()


def refusal(folder: Path, **flags: str) -> str:
    """What a broker says that cannot start."""
    command = [sys.executable, "-m", "tidemill", "serve", "--data-dir", str(folder), "--node-id", "7"]
    for name, value in {"kafka": "127.0.0.1:0", "grpc": "none", "http": "none", **flags}.items():
        command += [f"--{name}", value]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_a_broker_of_another_cluster_does_not_touch_the_tables(world: World, tmp_path: Path) -> None:
    """Two brokers without etcd know nothing of each other: the second is refused before it changes anything."""
    url = f"clickhouse://me:secret@127.0.0.1:{world.server.port}/tidemill"
    said = refusal(tmp_path, streams=url)
    assert said.startswith(f"error: the database tidemill at 127.0.0.1:{world.server.port} belongs to cluster ")
    assert "the same --coordination etcd://" in said
    assert "secret" not in said


def test_doctor_looks_at_servers(world: World) -> None:
    away = f"clickhouse://me:geheim@127.0.0.1:{world.server.port},127.0.0.1:1/tidemill"
    command = [sys.executable, "-m", "tidemill", "doctor", "--streams", away, "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S)
    assert "geheim" not in done.stdout + done.stderr
    there, gone = [each for each in json.loads(done.stdout) if each["check"].startswith("clickhouse ")]
    assert (there["state"], there["found"].partition(", ")[2]) == ("fine", f"tables of version {VERSION} of {VERSION}")
    assert gone["state"] == "wrong"
    assert done.returncode == 1


def test_all_brokers_of_a_cluster_have_the_same_servers(world: World, tmp_path: Path) -> None:
    said = refusal(tmp_path, coordination=world.coordination, streams="segments:")
    assert said.startswith("error: the other brokers store streams at clickhouse://127.0.0.1:")
    assert said.endswith("start all with the same --streams")


def test_brokers_keep_no_copies_of_what_servers_keep(world: World) -> None:
    with pytest.raises(KafkaException, match="use replication factor 1"):
        world.create("copied", copies=2)
    world.create("settled")
    place = Partition("settled", 0)
    with KafkaClient({"bootstrap.servers": world.brokers[0].bootstrap_servers}) as client:
        assert isinstance(client.reassign({place: [0, 1]})[place], InvalidReplicaAssignment)
        for node in (0, 1):
            send(world.brokers[0], "settled", 0, 1)
            assert client.reassign({place: [node]})[place] is None
            eventually(lambda node=node: client.carriers(["settled"])[place].leader == node, "not led there")  # type: ignore[misc]  # defaults bind
        assert client.list_offsets({place: -1})[place].offset == 2
