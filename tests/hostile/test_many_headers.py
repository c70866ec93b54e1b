"""A record with 100,000 headers: stored and read in every way while an honest client is served as before."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.hostile.attacked import AttackedBroker
from tests.hostile.frames import Peer

from tidemill.records.build import NewRecord, build_batch
from tidemill.testing import Broker
from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated

HEADERS = tuple((f"h{number % 10}", b"") for number in range(100_000))
TIME_MS = 1_700_000_000_000
BATCH = bytes(build_batch([NewRecord(b"k", b"v", HEADERS, TIME_MS)]))
BATCHES = 3
TOPICS: dict[str, Any] = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "scheduling": {"tidemill_schedule_enable": "true"},
}
ANSWER_BYTES_MAX = 64 * 1024 * 1024


@pytest.fixture
def started() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false"}, process=True) as broker:
        yield broker


@pytest.fixture
def attacked(started: Broker) -> AttackedBroker:
    attacked = AttackedBroker(started)
    with Peer(attacked.address) as peer:
        for name, settings in TOPICS.items():
            attacked.create_topic(peer, name, **settings)
    return attacked


def produce(peer: Peer, topic: str, batch: bytes) -> Any:
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    answer = peer.ask(0, 9, {"acks": -1, "timeout": 30_000, "topic_data": topics})
    return answer.responses[0].partition_responses[0]


def fetch(peer: Peer, topic: str) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": len(BATCH)}
    topics = [{"topic": topic, "partitions": [partition]}]
    fields = {"replica_id": -1, "max_wait": 1000, "min_bytes": 1, "max_bytes": len(BATCH), "topics": topics}
    assert len(peer.ask(1, 6, fields).responses[0].partitions[0].records) == len(BATCH)


def consume(address: str, topic: str) -> None:
    with grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", ANSWER_BYTES_MAX)]) as channel:
        stub = generated.BrokerServiceStub(channel)
        reply = stub.Consume(wire.ConsumeRequest(topic=topic, offset=-2, max_records=1), timeout=60)
    assert len(reply.records[0].headers) == len(HEADERS)


def count_by_sql(http: str, topic: str) -> None:
    sql = f"SELECT count() AS n, sum(length(headers)) AS h FROM messages WHERE topic = '{topic}'"
    command = [sys.executable, "-m", "tidemill", "sql", sql, "--json", "--http", http.removeprefix("http://")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{"n": BATCHES, "h": BATCHES * len(HEADERS)}]


def test_records_with_very_many_headers_do_not_hold_the_event_loop(started: Broker, attacked: AttackedBroker) -> None:
    with Peer(attacked.address) as peer, attacked.watched():
        for topic in TOPICS:
            for _ in range(BATCHES):
                assert not produce(peer, topic, BATCH).error_code
            fetch(peer, topic)
            consume(started.grpc, topic)


def test_sql_reads_them_while_others_are_served(started: Broker, attacked: AttackedBroker) -> None:
    with Peer(attacked.address) as peer, attacked.watched():
        for _ in range(BATCHES):
            assert not produce(peer, "plain", BATCH).error_code
        count_by_sql(started.http, "plain")


def test_a_record_with_a_delivery_time_may_not_have_very_many_headers(attacked: AttackedBroker) -> None:
    later = (*HEADERS[:1_000], ("tidemill-delay-ms", b"1000"))
    with Peer(attacked.address) as peer:
        outcome = produce(peer, "scheduling", bytes(build_batch([NewRecord(b"k", b"v", later, TIME_MS)])))
    assert "1000 headers" in str(outcome)


def test_grpc_refuses_a_batch_with_very_many_headers(started: Broker, attacked: AttackedBroker) -> None:
    assert attacked.process.is_running()
    record = wire.Record(value=b"v", headers=[wire.Header(key=name, value=value) for name, value in HEADERS])
    with grpc.insecure_channel(started.grpc) as channel:
        stub = generated.BrokerServiceStub(channel)
        batch = wire.Batch(partition=0, records=[record])
        reply = stub.Produce(wire.ProduceRequest(topic="plain", acks=wire.ACKS_ALL, batches=[batch]), timeout=60)
    assert reply.outcomes[0].error == "InvalidRecord"
    assert "headers" in reply.outcomes[0].reason
