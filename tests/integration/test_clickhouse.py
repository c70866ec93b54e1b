"""Streams in the embedded ClickHouse: kills at bad moments, topics in files and in tables side by side, retention.

The engine allows one process per folder, so tables are looked at when no broker runs, by a process of its own.
"""

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tidemill.testing import Broker

WAIT_S = 60.0
TABLES = {"streams": "chdb:?fsync=false", "grpc": "none"}
FILES = {"streams": "segments:", "grpc": "none"}
AUDIT = (
    "SELECT partition, count() = uniqExact(offset) AND count() = max(offset) - min(offset) + 1 AND min(offset) = 0, "
    "count() FROM messages WHERE topic = '{0}' GROUP BY partition ORDER BY partition"
)


def ask(data_dir: Path, sql: str) -> list[list[str]]:
    """What the tables of a broker that has stopped say."""
    code = (
        "import chdb, sys; c = chdb.connect(sys.argv[1]); c.query('USE tidemill'); print(c.query(sys.argv[2], 'TSV'))"
    )
    command = [sys.executable, "-c", code, str(data_dir / "chdb"), sql]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=WAIT_S)
    return [line.split("\t") for line in done.stdout.strip().splitlines()]


def create(broker: Broker, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config=named)])[topic].result(WAIT_S)


def send(broker: Broker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, key=b"k", partition=0)
    assert producer.flush(WAIT_S) == 0


def read(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[bytes] = []
    end = time.monotonic() + WAIT_S
    while len(seen) < count and time.monotonic() < end:
        for message in consumer.consume(count, 0.2):
            assert message.error() is None
            seen.append(message.value())
    consumer.close()
    return seen


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_kills_at_any_moment_leave_no_hole_and_no_repetition(data_dir: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    count = 300
    broker = Broker(process=True, data_dir=data_dir, flags=TABLES)
    broker.start()
    try:
        create(broker, "orders")
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": 5,
                "message.timeout.ms": 170_000,
            }
        )
        killing = threading.Timer(draw.uniform(0.05, 0.6), broker.kill)
        killing.start()
        for number in range(count):
            producer.produce("orders", b"%d" % number, partition=0)
            producer.poll(0.002)
        killing.join()
        broker.restart()
        assert producer.flush(3 * WAIT_S) == 0
        assert read(broker, "orders", count) == [b"%d" % number for number in range(count)]
    finally:
        broker.stop()
    assert ask(data_dir, AUDIT.format("orders")) == [["0", "1", str(count)]]


def test_topics_in_files_and_in_tables_side_by_side(data_dir: Path) -> None:
    """A broker with files loads the engine for the first topic in tables; what has records stays where they are."""
    broker = Broker(process=True, data_dir=data_dir, flags=FILES)
    broker.start()
    try:
        create(broker, "plain")
        send(broker, "plain", b"1")
        assert not (data_dir / "chdb").exists()
        create(broker, "audit", tidemill_storage="clickhouse")
        send(broker, "audit", b"\xff\x00", b"2")
        assert read(broker, "audit", 2) == [b"\xff\x00", b"2"]
        assert not (data_dir / "streams" / "audit" / "0").exists()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        entry = ConfigEntry("tidemill.storage", "segments", incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ResourceType.TOPIC, "audit", incremental_configs=[entry])
        with pytest.raises(KafkaException, match="chosen when it was created"):
            admin.incremental_alter_configs([change])[change].result(WAIT_S)
    finally:
        broker.stop()
    broker = Broker(process=True, data_dir=data_dir, flags=TABLES)
    broker.start()
    try:
        assert (read(broker, "plain", 1), read(broker, "audit", 2)) == ([b"1"], [b"\xff\x00", b"2"])
        create(broker, "new")
        send(broker, "new", b"3")
        send(broker, "plain", b"4")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.delete_topics(["audit"])["audit"].result(WAIT_S)
        create(broker, "audit")
        assert read_end(broker, "audit") == 0
    finally:
        broker.stop()
    found = ask(data_dir, "SELECT topic, count() FROM messages WHERE topic NOT LIKE '\\\\_\\\\_%' GROUP BY topic")
    assert found == [["new", "1"]]
    assert (data_dir / "streams" / "plain" / "0").is_dir()


def read_end(broker: Broker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "asker"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
        return int(end)
    finally:
        consumer.close()


def test_a_broker_with_files_does_not_load_the_engine() -> None:
    code = (
        "import sys; from tidemill.app import process; from tidemill.servers.kafka import listener; "
        "print(sorted({'chdb', 'clickhouse_connect', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=WAIT_S)
    assert done.stdout.strip() == "[]"


def test_a_wrong_url_is_one_clear_line(tmp_path: Path) -> None:
    url = "clickhouse://a,b?ranges=0-5"
    command = [sys.executable, "-m", "tidemill", "serve", "--data-dir", str(tmp_path), "--streams", url]
    command += ["--kafka", "127.0.0.1:0", "--grpc", "none", "--http", "none"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "error: 1 ranges for 2 servers; give one range per server"
