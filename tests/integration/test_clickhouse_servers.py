"""Streams on two servers of ClickHouse that own ranges of partitions, and the behaviour when one of them fails.

The servers are HTTP front ends of the embedded engine (tests/support/clickhouse_front.py), each in its own process.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from tests.integration.clickhouse_deleted import (
    test_a_topic_without_an_id_is_upgraded_and_can_be_deleted,
    test_late_writes_of_a_broker_do_not_change_a_recreated_topic,
)
from tests.support.clickhouse import Server, running
from tests.support.doc_pages import ROOT, blocks
from tests.support.doc_reader import Reader
from tests.support.metrics import scraped
from tests.support.waiting import eventually

from tidemill.sql.core.catalog import TABLES
from tidemill.testing import Broker

WAIT_S = 60.0
NO_LEADER = -1
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "tidemill.tend.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
}
AUDIT = (
    "SELECT partition, count() = uniqExact(offset) AND count() = max(offset) - min(offset) + 1 AND min(offset) = 0, "
    "count() FROM messages WHERE topic = '{0}' GROUP BY partition ORDER BY partition FORMAT TSV"
)


__all__ = [
    "test_a_topic_without_an_id_is_upgraded_and_can_be_deleted",
    "test_late_writes_of_a_broker_do_not_change_a_recreated_topic",
]


class World:
    def __init__(self, servers: list[Server], streams: str, broker: Broker) -> None:
        self.first, self.second = servers
        self.streams = streams
        self.broker = broker
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def create(self, topic: str) -> None:
        self.admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(WAIT_S)

    def producer(self, **config: object) -> Producer:
        return Producer({"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 0, **config})

    def send(self, topic: str, partition: int, count: int, prefix: str = "v") -> None:
        """Return when every record is acknowledged."""
        failed: list[object] = []
        producer = self.producer(**{"enable.idempotence": True})
        for number in range(count):
            value = f"{prefix}{number}"
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda e, _: failed.append(e) if e else None
            )
        assert producer.flush(WAIT_S) == 0
        assert failed == []

    def read(self, topic: str, partition: int, count: int) -> list[tuple[int, bytes]]:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "reader"})
        consumer.assign([TopicPartition(topic, partition, 0)])
        seen: list[tuple[int, bytes]] = []
        end = time.monotonic() + WAIT_S
        while len(seen) < count and time.monotonic() < end:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                seen.append((message.offset(), message.value()))
        consumer.close()
        return seen

    def leaders(self, topic: str) -> list[int]:
        found = self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        return [found[index].leader for index in sorted(found)]


def refusal(world: World, topic: str, partition: int) -> str:
    """The error of a producer that does not try again."""
    reported: list[str] = []
    producer = world.producer(**{"retries": 0, "message.timeout.ms": 20_000})
    producer.produce(topic, b"no", partition=partition, on_delivery=lambda error, _: reported.append(error.name()))
    assert producer.flush(WAIT_S) == 0
    return reported[0]


def audit(server: Server, topic: str) -> dict[int, int]:
    """How many records each partition has on a server, which are without hole and without repetition."""
    counts = {}
    for line in server.ask(AUDIT.format(topic)).splitlines():
        partition, sound, count = line.split("\t")
        assert sound == "1", f"{topic}-{partition} has holes or repetitions"
        counts[int(partition)] = int(count)
    return counts


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("clickhouse")
    with running(folder, 2) as servers:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        flags = {"streams": f"clickhouse://{hosts}/tidemill?ranges=0-1,2-99"}
        with Broker(process=True, flags=flags, settings=SETTINGS) as broker:
            yield World(servers, flags["streams"], broker)


def test_each_server_has_the_partitions_that_it_owns(world: World) -> None:
    world.create("or.ders-1_a")
    for partition in range(4):
        world.send("or.ders-1_a", partition, 5 + partition)
    assert audit(world.first, "or.ders-1_a") == {0: 5, 1: 6}
    assert audit(world.second, "or.ders-1_a") == {2: 7, 3: 8}
    assert world.read("or.ders-1_a", 3, 8) == [(number, b"v%d" % number) for number in range(8)]


def test_bytes_to_the_servers_are_counted(world: World) -> None:
    sent = 'tidemill_network_bytes_total{direction="out",partner="clickhouse"}'
    received = 'tidemill_network_bytes_total{direction="in",partner="clickhouse"}'
    world.create("counted")
    before = scraped(world.broker.http)
    world.send("counted", 0, 50, "v" * 2_000)
    after = scraped(world.broker.http)
    assert after[sent] - before[sent] > 1_000, "what was sent may be compressed"
    assert after[received] > before[received]
    assert after['tidemill_network_latency_seconds_count{partner="clickhouse"}'] > 0


def test_an_insert_whose_answer_is_lost_is_stored_once(world: World) -> None:
    world.create("lost")
    world.send("lost", 0, 3)
    world.first.fault(lose=4)
    world.send("lost", 0, 30, "again")
    world.first.fault(lose=0)
    world.send("lost", 0, 1, "last")
    assert audit(world.first, "lost") == {0: 34}


@pytest.mark.parametrize("code", [242, 243], ids=["read only", "disk full"])
def test_a_server_that_refuses_stores_nothing_and_is_asked_again(world: World, code: int) -> None:
    topic = f"refused.{code}"
    world.create(topic)
    world.send(topic, 2, 3)
    world.second.fault(refuse=code)
    assert refusal(world, topic, 2) == "KAFKA_STORAGE_ERROR"
    world.send(topic, 0, 3)
    world.second.fault(refuse=0)
    world.send(topic, 2, 4, "after")
    assert audit(world.second, topic) == {2: 7}
    assert [value for _, value in world.read(topic, 2, 7)] == [
        b"v0",
        b"v1",
        b"v2",
        b"after0",
        b"after1",
        b"after2",
        b"after3",
    ]


def test_a_server_that_is_down_takes_only_its_own_partitions_along(world: World) -> None:
    world.create("halved")
    for partition in range(4):
        world.send("halved", partition, 3)
    world.second.kill()
    assert refusal(world, "halved", 2) in {"KAFKA_STORAGE_ERROR", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"}
    eventually(
        lambda: world.leaders("halved") == [0, 0, NO_LEADER, NO_LEADER], "the partitions of the server have no leader"
    )
    asked = {"query": "SELECT count() FROM messages WHERE topic = 'halved' AND partition IN (0, 1)"}
    assert httpx.post(f"{world.broker.http}/api/v1/sql", json=asked, timeout=WAIT_S).json()["rows"] == [[6]]
    world.send("halved", 1, 3, "on")
    # Java's producer and kafka-python take a partition that has a leader; librdkafka only tries twice.
    unkeyed = KafkaProducer(bootstrap_servers=world.broker.bootstrap_servers, acks="all")
    try:
        went = [unkeyed.send("halved", b"anywhere").get(WAIT_S).partition for _ in range(10)]
    finally:
        unkeyed.close()
    assert set(went) <= {0, 1}
    world.second.start()
    eventually(lambda: world.leaders("halved") == [0, 0, 0, 0], "the partitions of the server are led again")
    world.send("halved", 2, 3, "back")
    assert world.read("halved", 2, 6)[3:] == [(number, b"back%d" % (number - 3)) for number in range(3, 6)]
    assert audit(world.second, "halved") == {2: 6, 3: 3}


def test_a_broker_that_starts_without_a_server_opens_its_partitions_later(world: World) -> None:
    world.create("late")
    world.send("late", 3, 5)
    world.second.kill()
    world.broker.restart()
    world.send("late", 0, 2)
    asked = {"query": "SELECT count() FROM messages WHERE topic = 'late' AND partition = 3"}
    reported = httpx.post(f"{world.broker.http}/api/v1/sql", json=asked, timeout=WAIT_S).json()["error"]
    assert reported.startswith("late-3 cannot be read: ClickHouse at ")
    consumer = Consumer({"bootstrap.servers": world.broker.bootstrap_servers, "group.id": "asker"})
    with pytest.raises(KafkaException):
        consumer.get_watermark_offsets(TopicPartition("late", 3), timeout=2)
    world.second.start()
    eventually(lambda: world.leaders("late") == [0, 0, 0, 0], "all partitions are led")
    assert world.read("late", 3, 5) == [(number, b"v%d" % number) for number in range(5)]
    consumer.close()


def test_a_broker_killed_between_insert_and_answer_leaves_no_hole_and_no_repetition(world: World) -> None:
    world.create("killed")
    world.send("killed", 0, 3)
    world.first.fault(sleep=0.7)
    producer = world.producer(**{"enable.idempotence": True, "retry.backoff.ms": 200})
    for number in range(40):
        producer.produce("killed", b"%d" % number, partition=0)
        producer.poll(0.01)
    time.sleep(0.3)
    world.broker.kill()
    world.first.fault(sleep=0)
    world.broker.restart()
    assert producer.flush(WAIT_S) == 0
    assert audit(world.first, "killed") == {0: 43}
    assert [value for _, value in world.read("killed", 0, 43)[3:]] == [b"%d" % number for number in range(40)]


def test_groups_are_tables_on_the_servers(world: World) -> None:
    """Offsets are with their partitions; heartbeats of all members are one insert now and then."""
    world.create("grouped")
    for partition in range(4):
        world.send("grouped", partition, 5)
    config = {"bootstrap.servers": world.broker.bootstrap_servers, "group.id": "it's", "client.id": "me"}
    reader = Consumer({**config, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    reader.subscribe(["grouped"])
    seen = 0
    end = time.monotonic() + WAIT_S
    while seen < 20 and time.monotonic() < end:
        seen += len(reader.consume(20, 0.2))
    reader.commit(asynchronous=False)
    world.send("grouped", 3, 2, "more")
    reported = "partition, committed_offset, lag, lag_seconds >= 0"
    lag = f"SELECT {reported} FROM consumer_lag WHERE group_id = 'it\\'s' ORDER BY 1"
    eventually(lambda: world.first.ask(lag) == "0\t5\t0\t1\n1\t5\t0\t1", "lag of the partitions of the first server")
    eventually(lambda: world.second.ask(lag) == "2\t5\t0\t1\n3\t5\t2\t1", "lag of the partitions of the second server")
    members = "SELECT client_id, state, length(assignment['grouped']) FROM group_members WHERE group_id = 'it\\'s'"
    eventually(lambda: "me\tStable\t4" in world.first.ask(members).splitlines(), "the member and what it reads")
    active = "SELECT members, partitions FROM group_activity WHERE group_id = 'it\\'s'"
    assert world.first.ask(active) == "1\t2"
    assert len(world.first.ask(members).splitlines()) < 6
    committers = "uniqExact(member_id), any(client_id), any(client_host), any(generation_id) >= 1"
    asked = f"SELECT {committers} FROM consumer_offsets WHERE group_id = 'it\\'s'"
    assert world.second.ask(asked) == "1\tme\t/127.0.0.1\t1"
    asked = "SELECT any(metadata), any(join_time) > now64(9) - 600 FROM group_members WHERE group_id = 'it\\'s'"
    assert world.first.ask(asked) == '{"topics": ["grouped"]}\t1'
    columns = "kind, state, protocol_name, leader != '', coordinator, members, state_time > now64(3) - 600"
    asked = f"SELECT {columns} FROM consumer_groups FINAL WHERE group_id = 'it\\'s'"
    assert world.first.ask(asked) == "classic\tStable\trange\t1\t0\t1\t1"
    reader.close()
    eventually(lambda: world.first.ask(active) == "0\t2", "the member is gone")
    eventually(lambda: "Empty" in world.first.ask(asked), "the group is empty")


def test_an_offset_that_was_written_by_hand_is_not_taken_and_is_repaired_at_a_take_over(world: World) -> None:
    world.create("copied")
    world.send("copied", 3, 5)
    config = {"bootstrap.servers": world.broker.bootstrap_servers, "group.id": "copiers"}
    reader = Consumer({**config, "enable.auto.commit": False})
    place = TopicPartition("copied", 3, 4)
    assert reader.commit(offsets=[place], asynchronous=False)[0].error is None
    newest = "SELECT argMax(offset, commit_time) FROM consumer_offsets WHERE group_id = 'copiers'"
    eventually(lambda: world.second.ask(newest) == "4", "the table has the offset")
    by_hand = "'copiers', 'copied', {0}, 1, now64(3) + INTERVAL 1 DAY"
    for partition in (2, 3):
        values = by_hand.format(partition)
        world.second.ask(
            f"INSERT INTO consumer_offsets (group_id, topic, partition, offset, commit_time) SELECT {values}"
        )
    assert world.second.ask(newest) == "1"
    world.broker.restart()
    eventually(lambda: world.second.ask(newest) == "4", "the row of the journal counts again")
    assert world.second.ask("SELECT count() FROM consumer_offsets WHERE group_id = 'copiers' AND offset = 1") == "0"
    assert reader.committed([place], timeout=WAIT_S)[0].offset == 4, "consumers never saw the other offset"
    reader.close()
    counted = scraped(world.broker.http)
    assert counted['tidemill_group_table_differences_total{kind="foreign"}'] == 1
    assert counted['tidemill_group_table_differences_total{kind="extra"}'] == 1


def test_the_guide_does_what_it_says(world: World, tmp_path: Path) -> None:
    servers = {"127.0.0.1:8123": world.first.name, "127.0.0.1:8124": world.second.name}
    reader = Reader(world.broker, tmp_path, servers)
    reported = "SELECT count(), sum(lag) FROM consumer_lag WHERE group_id = 'clerks' AND topic = 'stock'"
    for block in blocks(ROOT / "docs/guides/clickhouse.md"):
        if "consumer_lag" in block.text:
            eventually(lambda: world.second.ask(reported) == "2\t1", "the servers have the lag")
        reader.follow(block)


@pytest.mark.parametrize("view", ["group_activity", f"({TABLES['group_activity'].made_by})"], ids=["server", "broker"])
def test_a_member_without_a_heartbeat_for_two_minutes_is_not_active(world: World, view: str) -> None:
    """By the view of the servers and by the broker's own; both are asked over the tables of the server."""
    columns = (
        "'quiet', concat('m', toString(number)), 'Stable', now64(9) - toIntervalSecond([5, 90, 150, 9000][number + 1])"
    )
    if world.first.ask("SELECT count() FROM group_members WHERE group_id = 'quiet'") == "0":
        world.first.ask(
            f"INSERT INTO group_members (group_id, member_id, state, heartbeat_time) SELECT {columns} FROM numbers(4)"
        )
    assert world.first.ask(f"SELECT members FROM {view} WHERE group_id = 'quiet'") == "2"


def test_sql_asks_the_servers_for_what_it_needs(world: World) -> None:
    """Plain columns are questions to the servers, with the conditions in them; aborted records are not counted."""
    world.create("asked")
    for partition in (1, 3):
        world.send("asked", partition, 6)
    writer = world.producer(**{"transactional.id": "asked"})
    writer.init_transactions(WAIT_S)
    for ends in (writer.abort_transaction, writer.commit_transaction):
        writer.begin_transaction()
        writer.produce("asked", b"x", partition=3)
        writer.flush(WAIT_S)
        ends(WAIT_S)

    def ask(what: str, where: str = "1") -> list[list[object]]:
        body = {"query": f"SELECT {what} FROM messages WHERE topic = 'asked' AND {where}"}
        reported = httpx.post(f"{world.broker.http}/api/v1/sql", json=body, timeout=WAIT_S).json()
        found: list[list[object]] = reported["rows"]
        return found

    assert ask("partition, count(), max(offset)", "1 GROUP BY 1 ORDER BY 1") == [[1, 6, 5], [3, 7, 8]]
    assert ask("groupArray(offset)", "partition = 3 AND offset >= 2 AND 4 > offset") == [[[2, 3]]]
    assert ask("groupArray(offset)", "partition = 3 AND offset <= 1") == [[[0, 1]]]
    assert ask("value, offset", "partition = 1 AND offset > 3 AND offset < 5") == [["v4", 4]]
    assert ask("count()", "timestamp > now() - INTERVAL 1 HOUR AND timestamp_type = 'create'") == [[13]]
    assert ask("count()", "timestamp > now() + INTERVAL 1 HOUR") == [[0]]
    assert ask("any(topic), min(timestamp) > now() - 600", "partition = 1") == [["asked", 1]]
