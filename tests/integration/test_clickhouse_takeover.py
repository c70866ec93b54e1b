"""Two brokers over three ClickHouse servers, of which one is the replica of another: its range moves when it is killed.

Brokers agree by a real etcd; the servers are fronts that emulate replicated tables (tests/support/keeper_emulation.py).
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from tests.integration.test_clickhouse_servers import audit
from tests.support.clickhouse import Server, running
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.waiting import eventually

WAIT_S = 60.0
TAKEOVER_S = 6
NO_LEADER = -1
SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "1"}


class World:
    """The first server owns partitions 0 and 1 and has a replica; the last one owns all others."""

    def __init__(self, brokers: Brokers, servers: list[Server]) -> None:
        self.brokers = brokers
        self.owner, self.replica, self.other = servers
        self.admin = AdminClient({"bootstrap.servers": brokers.bootstrap})

    def leaders(self, topic: str) -> list[int]:
        found = self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        return [found[index].leader for index in sorted(found)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with (
        running(tmp_path / "range", 2, keeper=tmp_path / "keeper") as (owner, replica),
        running(tmp_path / "other", 1, keeper=tmp_path / "keeper-of-other") as (other,),
    ):
        hosts = f"{owner.name}|{replica.name},{other.name}"
        streams = f"clickhouse://{hosts}/tidemill?ranges=0-1,2-99&cluster=main&takeover={TAKEOVER_S}"
        with running_brokers(2, SETTINGS, racks=False, streams=streams) as brokers:
            yield World(brokers, [owner, replica, other])


def test_a_range_moves_to_its_replica_and_nothing_is_lost(world: World) -> None:
    world.admin.create_topics([NewTopic("orders", 4, 1)])["orders"].result(WAIT_S)
    config = {"bootstrap.servers": world.brokers.bootstrap, "linger.ms": 0}
    failed: list[object] = []
    sent = [0] * 4

    def send(producer: Producer, count: int) -> None:
        for number in range(count):
            sent[number % 4] += 1
            producer.produce(
                "orders",
                b"%d" % number,
                partition=number % 4,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        producer.poll(0)

    patient = Producer({**config, "enable.idempotence": True, "retry.backoff.ms": 100})
    send(patient, 40)
    assert patient.flush(WAIT_S) == 0
    assert world.replica.ask("SELECT count() FROM messages WHERE topic = 'orders'") == "20"
    member = Consumer({**config, "group.id": "readers", "enable.auto.commit": False})
    places = [TopicPartition("orders", index, 7) for index in range(4)]
    member.commit(offsets=places, asynchronous=False)

    world.owner.kill()
    send(patient, 40)  # half of them wait for the replica
    hasty = Producer({**config, "retries": 0, "message.timeout.ms": 20_000})
    reported: list[str] = []
    began = time.monotonic()
    hasty.produce("orders", b"no", key=b"k", partition=0, on_delivery=lambda error, _: reported.append(error.name()))
    assert hasty.flush(WAIT_S) == 0
    assert time.monotonic() - began < WAIT_S / 2, "far below the time limits of connections"
    assert reported[0] in {"KAFKA_STORAGE_ERROR", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"}
    unkeyed = KafkaProducer(bootstrap_servers=world.brokers.bootstrap, acks="all")
    try:
        went = [unkeyed.send("orders", b"anywhere").get(WAIT_S).partition for _ in range(4)]
    finally:
        unkeyed.close()
    for partition in went:
        sent[partition] += 1
    assert patient.flush(WAIT_S) == 0
    assert failed == []
    eventually(lambda: NO_LEADER not in world.leaders("orders"), "all partitions have a leader")
    assert audit(world.replica, "orders") == {0: sent[0], 1: sent[1]}
    assert audit(world.other, "orders") == {2: sent[2], 3: sent[3]}
    committed = member.committed(places, timeout=WAIT_S)
    assert [each.offset for each in committed] == [7] * 4
    member.close()
    owners = "SELECT groupArray((server, first_partition)) FROM kafka_partition_mapping"
    now = f"[('{world.replica.name}',0),('{world.other.name}',2)]"
    eventually(lambda: world.replica.ask(owners) == now, "the view of the replica names the new owner")
    eventually(lambda: world.other.ask(owners) == now, "the view of the other server names the new owner")

    world.owner.start()
    with pytest.raises(OSError, match="HTTP Error 500"):
        world.owner.ask("INSERT INTO claims (topic, partition, claim) SELECT 'orders', 0, 1")
    world.brokers.kill(1)
    world.brokers.start(1)
    send(patient, 4)
    assert patient.flush(WAIT_S) == 0
    assert audit(world.replica, "orders") == {0: sent[0], 1: sent[1]}
