"""The lag of a group is the same on /metrics, in `tidemill group describe` and in SQL: 0 when nothing can be read."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.command_line import CommandLine
from tests.support.metrics import scraped
from tests.support.waiting import eventually

from tidemill.testing import Broker

WAIT_S = 60
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "100",  # one record
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"tidemill.tend.interval.ms": 100}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def tidemill(broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("TIDEMILL_BOOTSTRAP_HTTP", broker.http)
    return CommandLine(broker.bootstrap_servers, capfd, monkeypatch)


def create(client: dict[str, Any], topic: str, **config: str) -> None:
    admin = AdminClient(client)
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(WAIT_S)


def write(client: dict[str, Any], topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    producer = Producer(client)
    for value in values:
        producer.produce(topic, value, key)
        assert producer.flush(WAIT_S) == 0


def transact(client: dict[str, Any], topic: str, count: int, *, end: str) -> Producer:
    producer = Producer({**client, "transactional.id": topic + end})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"v")
    producer.flush(WAIT_S)
    if end == "commit":
        producer.commit_transaction(WAIT_S)
    elif end == "abort":
        producer.abort_transaction(WAIT_S)
    return producer


def commit(client: dict[str, Any], topic: str, offset: int) -> None:
    reader = Consumer({**client, "group.id": topic})
    reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    reader.close()


def has_lag(broker: Broker, tidemill: CommandLine, group: str, records: int) -> None:
    """Every place reports this lag of a group that reads the topic of its name."""
    line = f'tidemill_group_lag_records{{group="{group}",topic="{group}"}}'
    eventually(lambda: scraped(broker.http).get(line) == records, f"/metrics does not report {records}")
    found = scraped(broker.http, "?detail=partition")
    seconds = found[f'tidemill_group_lag_seconds{{group="{group}",topic="{group}"}}']
    assert found[f'tidemill_group_lag_records_max{{group="{group}",topic="{group}"}}'] == records
    assert found[f'tidemill_group_partition_lag_records{{group="{group}",partition="0",topic="{group}"}}'] == records
    [row] = tidemill.fine("group", "describe", group, "--json").json()["partitions"]
    assert (row["lag"], row["lag_s"] > 0) == (records, seconds > 0)
    sql = f"SELECT lag, lag_seconds > 0 FROM consumer_lag WHERE group_id = '{group}'"
    asked = tidemill.fine("sql", sql, "--json").json()
    assert [list(each.values()) for each in asked] == [[records, int(seconds > 0)]]


def test_records_that_are_left(broker: Broker, tidemill: CommandLine, client: dict[str, Any]) -> None:
    write(client, "left", *[b"v"] * 5)
    commit(client, "left", 2)
    has_lag(broker, tidemill, "left", 3)


def test_a_marker_behind_the_last_record(broker: Broker, tidemill: CommandLine, client: dict[str, Any]) -> None:
    create(client, "marker")
    transact(client, "marker", 2, end="commit")
    commit(client, "marker", 2)
    has_lag(broker, tidemill, "marker", 0)


def test_an_aborted_transaction_at_the_end(broker: Broker, tidemill: CommandLine, client: dict[str, Any]) -> None:
    write(client, "aborted", b"v")
    transact(client, "aborted", 3, end="abort")
    commit(client, "aborted", 1)
    has_lag(broker, tidemill, "aborted", 0)


def test_an_aborted_transaction_before_the_next_record(
    broker: Broker, tidemill: CommandLine, client: dict[str, Any]
) -> None:
    write(client, "between", b"v")
    transact(client, "between", 3, end="abort")
    write(client, "between", b"v", b"v")
    commit(client, "between", 1)
    has_lag(broker, tidemill, "between", 2)


def test_an_open_transaction_at_the_end(broker: Broker, tidemill: CommandLine, client: dict[str, Any]) -> None:
    write(client, "open", b"v")
    producer = transact(client, "open", 3, end="later")
    commit(client, "open", 1)
    has_lag(broker, tidemill, "open", 0)
    producer.commit_transaction(WAIT_S)
    has_lag(broker, tidemill, "open", 4)  # with its marker


def test_a_record_that_waits_for_its_time(broker: Broker, tidemill: CommandLine, client: dict[str, Any]) -> None:
    create(client, "waiting", **{"tidemill.schedule.enable": "true"})
    write(client, "waiting", b"v")
    producer = Producer(client)
    producer.produce("waiting", b"later", headers={"tidemill-delay-ms": b"3600000"})
    assert producer.flush(WAIT_S) == 0
    commit(client, "waiting", 1)
    has_lag(broker, tidemill, "waiting", 0)


def first_offset(client: dict[str, Any], topic: str) -> int:
    """The offset of the first record of a topic."""
    reader = Consumer({**client, "group.id": "looks"})
    reader.assign([TopicPartition(topic, 0, 0)])
    message = reader.poll(WAIT_S)
    reader.close()
    assert message is not None
    assert message.error() is None
    return int(message.offset())


def test_compacted_records_before_the_next_one(broker: Broker, tidemill: CommandLine, client: dict[str, Any]) -> None:
    create(client, "compacted", **COMPACTED)
    write(client, "compacted", *[b"v"] * 5, key=b"a")
    write(client, "compacted", b"v", key=b"b")
    commit(client, "compacted", 1)
    eventually(lambda: first_offset(client, "compacted") == 4, "the log was not compacted")
    has_lag(broker, tidemill, "compacted", 2)


def test_notes_of_a_topic_sink(broker: Broker, tidemill: CommandLine, client: dict[str, Any]) -> None:
    create(client, "noted")
    write(client, "noted", b"a", b"b")
    keeper = Consumer({**client, "group.id": "tidemill-q1", "enable.auto.commit": False})
    note = TopicPartition("noted", 0, 1, metadata="0/1 done query=q1 batch=3 tasks=1 kept= branches=")
    keeper.commit(offsets=[note], asynchronous=False)
    keeper.close()
    api = f"{broker.http}/api/v1/groups"
    for found in (
        tidemill.fine("group", "describe", "tidemill-q1", "--json").json(),
        httpx.get(f"{api}/tidemill-q1", timeout=WAIT_S).json(),
    ):
        assert (found["lag"], found["lag_s"], found["unknown_partitions"]) == (None, None, 0)
        assert [(row["committed"], row["end"], row["lag"]) for row in found["partitions"]] == [(1, 2, None)]
        assert "keeps notes" in found["explanation"]
    rows = httpx.get(api, params={"search": "tidemill-q1"}, timeout=WAIT_S).json()["groups"]
    assert [(row["group"], row["lag"]) for row in rows] == [("tidemill-q1", None)]
    sql = "SELECT lag FROM consumer_lag WHERE group_id = 'tidemill-q1'"
    assert tidemill.fine("sql", sql, "--json").json() == []
    assert not [name for name in scraped(broker.http) if name.startswith("tidemill_group_lag") and "-q1" in name]
