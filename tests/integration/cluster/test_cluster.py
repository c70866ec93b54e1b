"""Three brokers on etcd, with stock clients: every broker knows every change, and each of them may fail."""

import asyncio
import time
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.support.cluster_processes import TTL_MS, WAIT_S, Brokers
from tests.support.command_line import CommandLine
from tests.support.raw_batches import Numbered
from tests.support.waiting import eventually

from tidemill.client.kafka import KafkaClient

FAILED = 1


def create(address: str, name: str, partitions: int = 6, **config: str) -> None:
    client = AdminClient({"bootstrap.servers": address})
    topic = NewTopic(
        name, partitions, replication_factor=3, config={key.replace("_", "."): config[key] for key in config}
    )
    client.create_topics([topic])[name].result(WAIT_S)


def partitions_of(address: str, name: str) -> dict[int, tuple[int, list[int], list[int]]]:
    found = AdminClient({"bootstrap.servers": address}).list_topics(name, timeout=WAIT_S).topics[name].partitions
    return {index: (part.leader, part.replicas, sorted(part.isrs)) for index, part in found.items()}


def test_every_broker_returns_the_same_metadata(brokers: Brokers) -> None:
    create(brokers.address(1), "known", 6)
    reported = [partitions_of(brokers.address(2), "known")]
    eventually(lambda: partitions_of(brokers.address(3), "known") == reported[0], "broker 3 does not know")
    assert sorted({leader for leader, _, _ in reported[0].values()}) == [1, 2, 3]
    assert all(sorted(replicas) == isr == [1, 2, 3] for _, replicas, isr in reported[0].values())
    clients = [AdminClient({"bootstrap.servers": brokers.address(number)}) for number in (1, 2, 3)]
    described = [client.describe_cluster().result(WAIT_S) for client in clients]
    assert len({each.cluster_id for each in described}) == 1
    assert len({each.controller.id for each in described}) == 1
    assert all(
        sorted((node.id, node.rack) for node in each.nodes) == [(1, "b"), (2, "c"), (3, "a")] for each in described
    )


def test_a_topic_grows_changes_and_goes_by_way_of_any_broker(brokers: Brokers) -> None:
    create(brokers.address(1), "passing", 1)
    second, third = (AdminClient({"bootstrap.servers": brokers.address(number)}) for number in (2, 3))
    eventually(lambda: "passing" in third.list_topics(timeout=WAIT_S).topics, "broker 3 does not know")
    third.create_partitions([NewPartitions("passing", 4)])["passing"].result(WAIT_S)
    eventually(lambda: len(second.list_topics(timeout=WAIT_S).topics["passing"].partitions) == 4, "it did not grow")
    second.delete_topics(["passing"])["passing"].result(WAIT_S)
    for client in (second, third):
        eventually(lambda: "passing" not in client.list_topics(timeout=WAIT_S).topics, "it is still there")  # noqa: B023
    create(brokers.address(3), "passing", 2)
    assert len(partitions_of(brokers.address(3), "passing")) == 2


def test_more_copies_than_brokers_are_refused(tidemill: CommandLine) -> None:
    said = tidemill.refused(FAILED, "topic", "create", "four", "--replication-factor", "4")
    assert "replication factor 4 is not between 1 and the number of brokers, 3" in said
    assert "four" not in tidemill.fine("topic", "list").out


def test_transactions_span_brokers(brokers: Brokers) -> None:
    """Read, process, write: partitions on all brokers, the coordinators of id and group anywhere."""
    create(brokers.address(1), "in", 6)
    create(brokers.address(1), "out", 6)
    plain = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
    for number in range(600):
        plain.produce("in", b"%d" % number, partition=number % 6)
    assert plain.flush(WAIT_S) == 0
    for transactional_id in ("copier-a", "copier-b", "copier-c"):
        copy(brokers, transactional_id, commit=transactional_id != "copier-b", most=200)
    copy(brokers, "copier-b", commit=True, most=600)
    values = read_all(brokers, "out", 600)
    assert sorted(map(int, values)) == list(range(600))


def copy(brokers: Brokers, transactional_id: str, *, commit: bool, most: int) -> None:
    group = {"bootstrap.servers": brokers.bootstrap, "group.id": "copiers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**group, "enable.auto.commit": False, "isolation.level": "read_committed"})
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(WAIT_S)
    consumer.subscribe(["in"])
    records: list[Any] = []
    end = time.monotonic() + WAIT_S
    while len(records) < most and time.monotonic() < end:
        found = consumer.consume(most - len(records), 2.0)
        records += [record for record in found if record.error() is None]
        if records and not found:
            break
    producer.begin_transaction()
    for record in records:
        producer.produce("out", record.value(), partition=record.partition())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)
    consumer.close()


def read_all(brokers: Brokers, topic: str, count: int, group: str = "reader") -> list[bytes]:
    settings = {"bootstrap.servers": brokers.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    end = time.monotonic() + WAIT_S
    while len(values) < count and time.monotonic() < end:
        record = consumer.poll(0.5)
        if record is not None and record.error() is None:
            values.append(record.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def test_a_killed_broker_takes_nothing_along(brokers: Brokers, tidemill: CommandLine) -> None:
    """B2, B15, B17: the leader dies, and the coordinator of the group; nothing is lost, doubled or read again."""
    create(brokers.address(1), "kept", 3, min_insync_replicas="2")
    acked: list[bytes] = []
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True, "linger.ms": 5})

    def note(error: KafkaError | None, record: object) -> None:
        assert error is None
        acked.append(record.value())  # type: ignore[attr-defined]

    def send(first: int, last: int) -> None:
        for number in range(first, last):
            producer.produce("kept", b"%d" % number, partition=number % 3, on_delivery=note)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0

    send(0, 300)
    assert sorted(map(int, read_all(brokers, "kept", 300, "saved"))) == list(range(300))
    victim = coordinator_of(brokers, "saved")
    brokers.kill(victim)
    send(300, 600)
    assert sorted(map(int, read_all(brokers, "kept", 300, "saved"))) == list(range(300, 600))
    status = tidemill.fine("cluster", "status", "--json").json()
    assert {row["broker"]: row["state"] for row in status["brokers"]}[victim] == "inactive"
    assert status["without_leader"] == 0
    assert status["under_replicated"] > 0
    brokers.start(victim)
    eventually(lambda: not tidemill.fine("cluster", "status", "--json").json()["under_replicated"], "not in sync again")
    send(600, 601)
    assert len(acked) == 601
    assert sorted(map(int, read_all(brokers, "kept", 601, "afresh"))) == list(range(601))


async def test_aiokafka_continues_after_a_broker_is_killed(brokers: Brokers) -> None:
    """aiokafka, with its stock settings: the group's offsets are where they were."""
    create(brokers.address(1), "asyncio", 3)
    leader = partitions_of(brokers.address(1), "asyncio")[0][0]

    async def scenario() -> list[int]:
        producer = AIOKafkaProducer(bootstrap_servers=brokers.bootstrap, enable_idempotence=True)
        async with producer:
            for number in range(30):
                await producer.send_and_wait("asyncio", b"%d" % number, partition=number % 3)
            await read(30)
            await asyncio.to_thread(brokers.kill, leader)
            for number in range(30, 60):
                await producer.send_and_wait("asyncio", b"%d" % number, partition=number % 3)
        return await read(30)

    async def read(count: int) -> list[int]:
        consumer = AIOKafkaConsumer(
            "asyncio", bootstrap_servers=brokers.bootstrap, group_id="aio", auto_offset_reset="earliest"
        )
        async with consumer:
            return sorted([int((await consumer.getone()).value) for _ in range(count)])

    try:
        assert await asyncio.wait_for(scenario(), 2 * WAIT_S) == list(range(30, 60))
    finally:
        brokers.start(leader)


def test_batches_on_their_way_outlast_their_leader(brokers: Brokers) -> None:
    """The pipe of Spark's sink: every batch once and in order, also those that were unanswered at the kill."""
    create(brokers.address(1), "piped", 2, min_insync_replicas="2")
    leader = partitions_of(brokers.address(1), "piped")[0][0]
    with KafkaClient({"bootstrap.servers": brokers.bootstrap}) as client:
        writer = Numbered(client, "piped", client.init_producer())
        writer.send(100)
        brokers.kill(leader)
        try:
            writer.send(100)
            writer.pipe.drain()
        finally:
            brokers.start(leader)
        assert writer.written(client) == writer.wanted()


def coordinator_of(brokers: Brokers, group: str) -> int:
    client = AdminClient({"bootstrap.servers": brokers.bootstrap})
    described = client.describe_consumer_groups([group])[group].result(WAIT_S)
    return int(described.coordinator.id)


def test_replicas_move_and_leaders_are_evened_out(brokers: Brokers, tidemill: CommandLine) -> None:
    eventually(lambda: not tidemill.fine("cluster", "status", "--json").json()["under_replicated"], "not in sync")
    third = brokers.address(3)
    create(brokers.address(1), "moving", 4)
    rows = tidemill.fine("topic", "reassign", "moving", "--replicas", "2,1", "--json").json()
    assert [row["replicas"] for row in rows] == ["2,1", "1,2", "2,1", "1,2"]
    eventually(lambda: all(sorted(each[1]) == [1, 2] for each in partitions_of(third, "moving").values()), "not moved")
    planned = tidemill.fine("cluster", "rebalance", "--dry-run", "--json").json()
    assert planned["moves"]
    assert tidemill.fine("cluster", "rebalance", "--json").json() == {**planned, "dry_run": False}
    eventually(
        lambda: tidemill.fine("cluster", "rebalance", "--dry-run", "--json").json()["total"] == 0, "not evened out"
    )
    status = tidemill.fine("cluster", "status", "--json").json()
    carried = [row["replicas"] for row in status["brokers"]]
    assert max(carried) - min(carried) <= 1
    assert "of [1, 2, 3]" in tidemill.refused(FAILED, "topic", "reassign", "moving", "--replicas", "1,9")
    assert "--cancel" in tidemill.refused(2, "topic", "reassign", "moving")


def test_brokers_without_etcd_step_down_and_come_back(brokers: Brokers) -> None:
    """B18: a leader that cannot reach etcd refuses before others may lead; all go on when etcd is back."""
    create(brokers.address(1), "waiting", 3)
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all", "message.timeout.ms": 60_000})
    producer.produce("waiting", b"before", partition=0)
    assert producer.flush(WAIT_S) == 0
    brokers.etcd.members[0].pause()
    time.sleep(TTL_MS / 1000)  # as long as a session lasts
    hasty = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all", "message.timeout.ms": 1_000})
    refused: list[KafkaError | None] = []
    hasty.produce("waiting", b"meanwhile", partition=0, on_delivery=lambda error, _: refused.append(error))
    hasty.flush(10)
    assert refused[0] is not None, "no broker may lead without a session"
    brokers.etcd.members[0].resume()
    producer.produce("waiting", b"after", partition=0)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "late"})
    low, high = 0, 0
    with suppress(KafkaException):
        low, high = consumer.get_watermark_offsets(TopicPartition("waiting", 0), WAIT_S)
    consumer.close()
    assert (low, high) in {(0, 2), (0, 3)}, "what was refused may have been written, and is then kept"


@pytest.mark.parametrize(
    ("number", "flags", "said"),
    [
        (1, {"kafka": "127.0.0.1:0", "data_dir": "elsewhere"}, "node id 1 is used by another broker at 127.0.0.1:"),
        (4, {"cluster_secret": "guess"}, "the cluster secret differs from the other brokers"),
        (5, {"coordination": "etcd://127.0.0.1:1"}, "etcd at 127.0.0.1:1 did not answer"),
        (6, {"rack": "z", "set": "tidemill.racks=a,b,c"}, "rack 'z' is not one of the cluster's racks"),
        (
            7,
            {"node_json": '"format": 99'},
            "has format 99, and this version supports up to 1; start the version that wrote it",
        ),
    ],
)
def test_a_broker_that_cannot_join_gives_an_error_of_one_line(
    brokers: Brokers,
    tidemill: CommandLine,
    tmp_path_factory: pytest.TempPathFactory,
    number: int,
    flags: dict[str, str],
    said: str,
) -> None:
    home = tmp_path_factory.mktemp("joining")
    given = {**brokers.flags(1), "node-id": str(number), "kafka": "127.0.0.1:0", "data-dir": str(home)}
    for name, value in flags.items():
        if name == "node_json":
            rest = f'"directory": "{UUID(int=9)}", "node_id": {number}, "cluster": ""'
            (home / "node.json").write_text(f"{{{value}, {rest}}}")
        else:
            given[name.replace("_", "-")] = str(home / value) if name == "data_dir" else value
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    assert said in tidemill.refused_after_remarks(FAILED, "serve", *words)
    assert not list(home.rglob("*.log")), "it has begun to carry something"
    assert number == 1 or number not in {
        row["broker"] for row in tidemill.fine("cluster", "status", "--json").json()["brokers"]
    }
