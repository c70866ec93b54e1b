"""One overseer and two carriers: clients that know the overseer only, stock ones and ours."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_processes import TTL_MS, WAIT_S, Brokers, running_brokers
from tests.support.command_line import CommandLine
from tests.support.postgres import running_postgres
from tests.support.waiting import eventually

from tidemill import Consumer, Message, Timeline, TopicProducer
from tidemill.wire.grpc import broker_pb2, broker_pb2_grpc, timeline_pb2, timeline_pb2_grpc

ROLES = {1: "overseer", 2: "carrier", 3: "carrier"}
TEND = {"tidemill.tend.interval.ms": "200"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with (
        running_postgres() as postgres,
        running_brokers(3, TEND, roles=ROLES, grpc="127.0.0.1:0", timelines=postgres.new_database()) as cluster,
    ):
        yield cluster


def overseer(brokers: Brokers) -> str:
    return str(brokers.servers[1]["grpc"])


def test_stock_clients_that_know_the_overseer_only(
    brokers: Brokers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = {"bootstrap.servers": brokers.address(1)}
    admin = AdminClient(at)
    admin.create_topics([NewTopic("orders", 4, replication_factor=2)])["orders"].result(WAIT_S)
    partitions = admin.list_topics("orders", timeout=WAIT_S).topics["orders"].partitions.values()
    assert {node for part in partitions for node in part.replicas} == {2, 3}
    producer = Producer({**at, "enable.idempotence": True, "transactional.id": "once"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for number in range(100):
        producer.produce("orders", f"{number}")
    producer.commit_transaction(WAIT_S)
    consumer = KafkaConsumer(
        {**at, "group.id": "shop", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    consumer.subscribe(["orders"])
    found: list[int] = []
    while len(found) < 100:
        record = consumer.poll(WAIT_S)
        assert record is not None
        found.append(int(record.value()))
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(found) == list(range(100))
    for _ in range(2):  # the name is free again as soon as it is deleted
        admin.create_topics([NewTopic("passing", 2, replication_factor=2)])["passing"].result(WAIT_S)
        admin.delete_topics(["passing"])["passing"].result(WAIT_S)
    rows = CommandLine(brokers.address(1), capsys, monkeypatch).fine("cluster", "status", "--json").json()
    assert rows["controller"] == 1
    assert [(row["roles"], row["leads"] > 0) for row in rows["brokers"]] == [
        ("overseer", False),
        ("carrier", True),
        ("carrier", True),
    ]


def test_our_clients_are_sent_to_carriers(brokers: Brokers) -> None:
    with TopicProducer(overseer(brokers), "events", partitions=2) as producer:
        for number in range(50):
            producer.send(str(number).encode())
    with Consumer(overseer(brokers), group="readers", topics=["events"]) as consumer:
        got = [consumer.next(timeout_ms=30_000) for _ in range(50)]
        assert sorted(int(record.value or b"") for record in got if record) == list(range(50))
        with grpc.insecure_channel(overseer(brokers)) as channel:
            stub = broker_pb2_grpc.BrokerServiceStub(channel)
            asked = broker_pb2.ChooseBrokersRequest(topic="events")
            eventually(lambda: stub.ChooseBrokers(asked).choices[0].consumers == 1, "the reader is not counted")
            reply = stub.ChooseBrokers(asked)
    assert not reply.carries
    assert sorted(choice.broker.node_id for choice in reply.choices) == [2, 3]
    assert [choice.state for choice in reply.choices] == ["healthy", "healthy"]
    assert reply.choices[0].weight > reply.choices[1].weight


def test_a_timeline_by_way_of_the_overseer_and_when_its_carrier_is_killed(brokers: Brokers) -> None:
    with Timeline(overseer(brokers), "reminders") as timeline:
        timeline.create(window_ms=1_000, lease_ms=2_000)
        carrier = timeline._async._connection.address
        numbers = {str(brokers.servers[number]["grpc"]): number for number in (2, 3)}
        assert carrier in numbers, "the client did not go to a carrier"
        timeline.schedule([Message(b"%d" % number, due=time.time() + 0.1 * number) for number in range(40)])
        done: Counter[bytes] = Counter()
        for lease in timeline.work(idle_ms=8_000):
            lease.complete()
            done[lease.body] += 1
            if len(done) == 10:
                [worker] = timeline._async._workers
                carrier = worker.address
                brokers.kill(numbers[carrier])
            if len(done) == 40:
                break
        assert set(done) == {b"%d" % number for number in range(40)}
        assert worker.address != carrier
        assert worker.address in numbers
    brokers.start(numbers[carrier])


def test_an_overseer_hands_calls_for_timelines_on(brokers: Brokers) -> None:
    with grpc.insecure_channel(overseer(brokers)) as channel:
        stub = timeline_pb2_grpc.TimelineServiceStub(channel)
        eventually(lambda: len(brokers.keys("brokers/")) == 3, "a broker is missing")
        stub.CreateTimeline(timeline_pb2.CreateTimelineRequest(name="relayed"), timeout=WAIT_S)
        hello = timeline_pb2.HandshakeRequest(role=timeline_pb2.ROLE_PRODUCER, timeline="relayed")
        session = stub.Handshake(hello).session
        message = timeline_pb2.NewMessage(body=b"by hand", due_ms=time.time_ns() // 1_000_000)
        stub.Schedule(timeline_pb2.ScheduleRequest(session=session, messages=[message]))
        worker = stub.Handshake(
            timeline_pb2.HandshakeRequest(role=timeline_pb2.ROLE_CONSUMER, timeline="relayed", id="w")
        ).session
        downs = stub.Work(iter([timeline_pb2.WorkUp(start=timeline_pb2.WorkStart(session=worker))]))
        with pytest.raises(grpc.RpcError) as refused:
            stub.DescribeTimeline(timeline_pb2.DescribeTimelineRequest(name="nowhere"))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert ("tidemill-error", "UnknownTimeline") in refused.value.trailing_metadata()
        downs.cancel()
        assert stub.Count(timeline_pb2.CountRequest(timeline="relayed")).count == 1


def test_carriers_do_not_decide_but_go_on(
    brokers: Brokers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = CommandLine(brokers.address(2), capsys, monkeypatch)
    assert "broker 1 is running; stop it" in shell.refused(1, "cluster", "forget", "1")
    brokers.kill(1)
    time.sleep(2 * TTL_MS / 1_000)
    assert not brokers.keys("controller"), "a carrier has become the controller"
    producer = Producer({"bootstrap.servers": brokers.address(2)})
    reported: list[object] = []
    producer.produce("orders", b"still", on_delivery=lambda error, _: reported.append(error))
    assert producer.flush(WAIT_S) == 0
    assert reported == [None]

    def states() -> dict[int, str]:
        return {row["broker"]: row["state"] for row in shell.fine("cluster", "status", "--json").json()["brokers"]}

    assert states() == {1: "inactive", 2: "healthy", 3: "healthy"}, "it carried nothing, and is missed all the same"
    assert shell.fine("cluster", "forget", "1", "--json").json() == {"forgotten": 1}
    assert states() == {2: "healthy", 3: "healthy"}
    brokers.start(1)
    eventually(lambda: bool(brokers.keys("controller")), "the overseer does not decide again")


def test_a_broker_that_is_alone_has_both_roles(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidemill", "serve", "--roles", "overseer", "--data-dir", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode
    assert "a single broker needs both roles: leave --roles out" in ended.stderr
