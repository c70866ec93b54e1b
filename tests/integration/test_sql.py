"""Questions in SQL to a real broker, with its records in files and in tables: the answers are the same."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.cli.main import main
from tidemill.testing import Broker

WAIT_S = 60.0
NAME = "or.ders-1_a"
KEPT = {"retention.ms": "-1"}
MANY = 30_000
"""More than the plain kernels are used for."""


class World:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def post(self, sql: str, form: str = "json") -> bytes:
        body = json.dumps({"query": sql, "format": form}).encode()
        url = f"{self.broker.http}/api/v1/sql"
        request = urllib.request.Request(url, data=body, headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            found: bytes = answer.read()
            return found

    def ask(self, sql: str) -> list[list[Any]]:
        rows: list[list[Any]] = json.loads(self.post(sql))["rows"]
        return rows

    def refused(self, sql: str) -> str:
        with pytest.raises(urllib.error.HTTPError) as raised:
            self.post(sql)
        assert raised.value.code == 400
        return str(json.loads(raised.value.read())["error"])


@pytest.fixture(scope="module", params=["segments:", "chdb:?fsync=false"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with Broker(process=True, flags={"streams": request.param}) as broker:
        fill(broker)
        yield World(broker)


def fill(broker: Broker) -> None:
    address = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": address})
    topics = [
        NewTopic(NAME, 2, 1, config=KEPT),
        NewTopic("many", 1, 1, config=KEPT),
        NewTopic("audit", 1, 1, config={"tidemill.storage": "segments"}),
    ]
    for future in admin.create_topics(topics).values():
        future.result(WAIT_S)
    producer = Producer({"bootstrap.servers": address, "compression.type": "zstd", "linger.ms": 20})
    producer.produce(NAME, b"\xff\x00it's", key=b"", partition=0, timestamp=1_700_000_000_123)
    producer.produce(NAME, None, key=b"k", partition=0, headers=[("h", b"\xfe"), ("h", None)])
    producer.produce(NAME, b"", key=None, partition=1)
    producer.produce("audit", b"x", partition=0)
    for number in range(MANY):
        producer.produce("many", b'{"n": %d}' % number, partition=0, timestamp=1_700_000_000_000 + number)
    assert producer.flush(WAIT_S) == 0
    for commit in (True, False):
        writer = Producer({"bootstrap.servers": address, "transactional.id": f"t-{commit}"})
        writer.init_transactions(WAIT_S)
        writer.begin_transaction()
        writer.produce(NAME, b"kept" if commit else b"aborted", partition=1)
        writer.flush(WAIT_S)
        writer.commit_transaction(WAIT_S) if commit else writer.abort_transaction(WAIT_S)
    reader = Consumer({"bootstrap.servers": address, "group.id": "mailer", "enable.auto.commit": False})
    reader.commit(offsets=[TopicPartition(NAME, 0, 1), TopicPartition("many", 0, MANY)], asynchronous=False)
    reader.close()
    assert main(["timeline", "create", "reminders", "--address", str(broker.grpc)]) == 0
    assert main(["schedule", "reminders", "tea", "--in", "1h", "--id", "t1", "--address", str(broker.grpc)]) == 0


def test_records_as_a_reader_of_committed_ones_sees_them(world: World) -> None:
    found = world.ask(f"SELECT partition, offset, hex(value) FROM messages WHERE topic = '{NAME}' ORDER BY ALL")
    assert found == [[0, 0, b"\xff\x00it's".hex().upper()], [0, 1, None], [1, 0, ""], [1, 1, b"kept".hex().upper()]]


def test_keys_headers_nulls_and_times(world: World) -> None:
    sql = "SELECT key, key IS NULL, value IS NULL, headers.key, hex(headers.value[1]), headers.value[2] IS NULL"
    found = world.ask(f"{sql}, timestamp_type FROM messages WHERE topic = '{NAME}' AND partition = 0 ORDER BY offset")
    assert found == [["", 0, 0, [], None, 1, "create"], ["k", 0, 1, ["h", "h"], "FE", 1, "create"]]
    assert world.ask(f"SELECT timestamp FROM messages WHERE topic = '{NAME}' AND offset = 0 AND partition = 0") == [
        ["2023-11-14 22:13:20.123"]
    ]


def test_the_audit_of_offsets(world: World) -> None:
    sql = "SELECT count() = uniqExact(offset) AND count() = max(offset) + 1, count() FROM messages WHERE topic = 'many'"
    assert world.ask(sql) == [[1, MANY]]
    assert world.ask("SELECT sum(JSONExtractInt(value, 'n')) FROM messages WHERE topic = 'many'") == [
        [MANY * (MANY - 1) // 2]
    ]


def test_conditions_on_times_and_names_select_messages(world: World) -> None:
    """What is left out of the reading must be left out of the answer anyway."""
    since = "toDateTime64('2023-11-14 22:13:49.000', 3, 'UTC')"
    for condition, count in (
        (f"timestamp >= {since}", MANY - 29_000),
        (f"{since} <= timestamp AND topic = 'many'", MANY - 29_000),
        ("timestamp > now() + INTERVAL 1 DAY", 0),
        ("topic IN ('many', 'no such topic')", MANY),
        ("topic = 'many' OR partition = 7", MANY),
        ("topic = 'many' AND partition = 7", 0),
        ("topic = ''", 0),
        ("offset >= 29990", 10),
        ("29990 < offset AND offset < 29995", 4),
        ("offset = 29990", 1),
        ("offset IN (5, 29990, 99999) AND offset < 29990", 1),
        ("offset = '7'", 1),
        ("topic = 'many' AND partition = '0'", MANY),
        ("topic = 'many' AND partition IN (7, '0')", MANY),
    ):
        extra = "" if "topic" in condition else " AND topic = 'many'"
        assert world.ask(f"SELECT count() FROM messages WHERE {condition}{extra}") == [[count]], condition
    assert world.ask("SELECT count() FROM (SELECT upper(topic) AS topic FROM messages) WHERE topic = 'MANY'") == [
        [MANY]
    ]


def test_a_table_may_be_named_more_than_once(world: World) -> None:
    sql = f"""WITH last AS (SELECT topic, max(offset) AS top FROM messages GROUP BY topic)
    SELECT m.value FROM messages AS m JOIN last ON last.topic = m.topic AND last.top = m.offset WHERE m.topic = 'audit'
    UNION ALL SELECT 'and ' || toString(count()) FROM messages WHERE topic = '{NAME}'"""
    assert sorted(world.ask(sql)) == [["and 4"], ["x"]]


def test_the_brokers_own_state(world: World) -> None:
    assert world.ask("SELECT topic, partition, start_offset, end_offset FROM partitions WHERE topic = 'many'") == [
        ["many", 0, 0, MANY]
    ]
    lag = "SELECT topic, committed_offset, latest_offset, lag, lag_seconds > 0 FROM consumer_lag"
    assert world.ask(f"{lag} ORDER BY lag DESC LIMIT 10") == [[NAME, 1, 2, 1, 1], ["many", MANY, MANY, 0, 0]]
    assert world.ask("SELECT group_id, members, topics, partitions, lag FROM group_activity") == [
        ["mailer", 0, 2, 2, 1]
    ]
    assert world.ask("SELECT sum(records) FROM topic_rates WHERE topic = 'many'") == [[MANY]]
    assert world.ask("SELECT timeline, id, status, due_time > now() FROM timers") == [["reminders", "t1", "waiting", 1]]
    assert world.ask("SELECT offset FROM consumer_offsets WHERE topic = 'many'") == [[MANY]]


def test_group_members_shows_members_and_their_partitions(world: World) -> None:
    reader = Consumer({"bootstrap.servers": world.broker.bootstrap_servers, "group.id": "live", "client.id": "me"})
    reader.subscribe([NAME])
    sql = "SELECT client_id, leader, state, mapKeys(assignment), length(assignment[?]) FROM group_members"
    end = time.monotonic() + WAIT_S
    try:
        while True:
            reader.poll(0.2)
            found = world.ask(f"{sql.replace('?', repr(NAME))} WHERE heartbeat_time > now() - INTERVAL 2 MINUTE")
            if found == [["me", True, "Stable", [NAME], 2]]:
                break
            assert time.monotonic() < end, found
    finally:
        reader.close()


def test_other_formats(world: World, tmp_path: Path) -> None:
    assert (
        world.post("SELECT topic, value FROM messages WHERE topic = 'audit'", "csv")
        == b'"topic","value"\n"audit","x"\n'
    )
    (tmp_path / "x.parquet").write_bytes(world.post("SELECT * FROM messages WHERE topic = 'audit'", "parquet"))
    rows = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert [(row["topic"], row["offset"], row["value"]) for row in rows] == [("audit", 0, "x")]


HOSTILE = (
    "DROP TABLE messages",
    "SELECT 1; DROP DATABASE tidemill",
    "INSERT INTO messages SELECT * FROM messages",
    "CREATE TABLE x (a Int8) ENGINE = Memory",
    "ALTER TABLE messages DELETE WHERE 1",
    "SYSTEM SHUTDOWN",
    "SET readonly = 0",
    "ATTACH TABLE x",
    "KILL QUERY WHERE 1 SYNC",
    "GRANT ALL ON *.* TO me",
    "BACKUP DATABASE tidemill TO Disk('d', 'x')",
    "SELECT 1 SETTINGS readonly = 0",
    "SELECT * FROM (SELECT 1 SETTINGS max_execution_time = 0)",
    "SELECT 1 INTO OUTFILE '{0}/evil' TRUNCATE",
    "SELECT 1 FORMAT CSV",
    "SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT file('/etc/passwd')",
    "SELECT 1 IN file('/etc/passwd', 'LineAsString')",
    "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
    "SELECT * FROM remote('127.0.0.1', system.one)",
    "SELECT * FROM s3('http://127.0.0.1/x')",
    "SELECT * FROM executable('id', 'TSV', 'a String')",
    "SELECT * FROM python(os)",
    "SELECT * FROM sqlite('/x.db', 't')",
    "SELECT * FROM input('a Int8')",
    "SELECT * FROM merge('system', '.*')",
    "SELECT * FROM view(SELECT * FROM system.tables)",
    "SELECT * FROM system.tables",
    "SELECT * FROM `system`.`one`",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM tidemill.messages",
    "SELECT 1 WHERE 1 IN system.one",
    "WITH x AS (SELECT * FROM system.one) SELECT * FROM x",
    "WITH messages AS (SELECT 1) SELECT * FROM messages",
    "SELECT (SELECT count() FROM system.parts)",
    "SELECT dictGet('a', 'b', 1)",
    "SELECT joinGet('a', 'b', 1)",
    "SELECT sleep(3)",
    "SELECT sleepEachRow(1) FROM numbers(100)",
    "SELECT getSetting('readonly')",
    "SELECT aiGenerate('x', 'y')",
    "SELECT hostName()",
    "SELECT currentUser()",
    "SELECT @@version",
    "SELECT {{p:String}}",
    "SELECT * APPLY(file) FROM messages",
    "SELECT 1 -- \n; DROP TABLE x",
    "SELECT /* ; */ 1; SELECT 2",
    "EXPLAIN SELECT 1",
    "DESCRIBE TABLE messages",
    "SHOW TABLES",
    "USE system",
    "SELECT",
    "",
    ";",
    "\x00",
    "SELECT '\ud800'",
    "SELECT " + "(" * 900 + "1" + ")" * 900,
    "SELECT " + "[" * 5000,
    "SELECT '" + "x" * 70_000 + "'",
    "SELECT * FROM messages FINAL",
    "SELECT * FROM messages SAMPLE 0.1",
)


@pytest.mark.parametrize("world", ["segments:"], indirect=True)
@pytest.mark.parametrize("sql", HOSTILE, ids=lambda sql: ascii(sql[:40]))
def test_hostile_questions_are_refused(world: World, sql: str, tmp_path: Path) -> None:
    reported = world.refused(sql.format(tmp_path))
    assert reported
    assert "Traceback" not in reported
    assert not (tmp_path / "evil").exists()
    assert world.ask("SELECT count() FROM messages WHERE topic = 'audit'") == [[1]]


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        ("SELECT number FROM numbers(200000)", "tidemill.sql.max.rows"),
        ("SELECT repeat('x', 1000000) FROM numbers(100)", "tidemill.sql.max.bytes"),
        ("SELECT length(groupArray(toString(number))) FROM numbers(1000000000)", "tidemill.sql."),
    ],
)
def test_limits_have_names(world: World, sql: str, limit: str) -> None:
    assert limit in world.refused(sql)
    assert world.ask("SELECT 1") == [[1]]


def test_the_time_is_limited() -> None:
    settings = {"tidemill.sql.timeout.ms": "3000"}
    with Broker(process=True, flags={"streams": "memory:", "grpc": "none"}, settings=settings) as broker:
        reported = World(broker).refused(
            "SELECT count() FROM numbers(1000000000000) WHERE NOT ignore(sipHash64(number))"
        )
        assert reported == "the query took longer than tidemill.sql.timeout.ms allows"
        assert World(broker).ask("SELECT count() FROM messages") == [[0]]
