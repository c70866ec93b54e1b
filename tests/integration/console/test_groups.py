"""Consumer groups in the JSON API, with real consumers of both protocols."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.waiting import eventually

from tidemill.testing import Broker

WAIT_S = 30.0
RECORDS = 10
CLASSIC, CONSUMER = "classic", "consumer"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def api(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.http}/api/v1", timeout=WAIT_S) as client:
        yield client


def fill(broker: Broker, topic: str, *, partitions: int = 1, records: int = RECORDS) -> None:
    """Create a topic with some records in each partition."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in range(partitions):
        for number in range(records):
            producer.produce(topic, b"value %d" % number, b"key %d" % number, partition)
    assert producer.flush(WAIT_S) == 0


@contextmanager
def member(broker: Broker, group: str, topic: str, protocol: str = CLASSIC, **options: Any) -> Iterator[Consumer]:
    """A consumer that has its partitions and commits nothing by itself."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.1) is not None, "the consumer reads")
        yield consumer
    finally:
        consumer.close()


def read_some(broker: Broker, group: str, topic: str, count: int, protocol: str = CLASSIC) -> None:
    """Let a group read and commit some records, and leave."""
    with member(broker, group, topic, protocol) as consumer:
        consumer.commit(offsets=[_at(topic, 0, count)], asynchronous=False)


def _at(topic: str, partition: int, offset: int) -> TopicPartition:
    return TopicPartition(topic, partition, offset)


def rows(api: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    answer = api.get("/groups", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["groups"]
    return found


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_group_is_listed_with_its_state_and_its_lag(broker: Broker, api: httpx.Client, protocol: str) -> None:
    name = f"listed-{protocol}"
    fill(broker, name)
    with member(broker, name, name, protocol) as consumer:
        consumer.commit(offsets=[_at(name, 0, 4)], asynchronous=False)
        eventually(lambda: rows(api, search=name)[0]["lag"] == RECORDS - 4, "the lag is known")
        [row] = rows(api, search=name)
        assert (row["group"], row["type"], row["state"], row["members"]) == (name, protocol, "Stable", 1)
        assert (row["protocol"], row["topics"], row["topic_count"]) == ("consumer", [name], 1)
        assert row["assignor"] in {"range", "uniform"}
        assert row["lag_s"] > 0
        assert rows(api, search=name, state="Empty") == []
    eventually(lambda: rows(api, search=name, state="Empty") != [], "the group is empty")
    assert rows(api, search=name, type=protocol) != []
    assert rows(api, search=name, type={CLASSIC: CONSUMER, CONSUMER: CLASSIC}[protocol]) == []


def test_groups_are_sorted_and_paged(broker: Broker, api: httpx.Client) -> None:
    fill(broker, "paged")
    for number in (2, 9, 5):
        read_some(broker, f"paged-{number}", "paged", number)
    eventually(lambda: None not in [row["lag"] for row in rows(api, search="paged-")], "every lag is known")
    assert [row["lag"] for row in rows(api, search="paged-", sort="lag")] == [1, 5, 8]
    assert [row["lag"] for row in rows(api, search="paged-", sort="lag", descending=True)] == [8, 5, 1]
    page = api.get("/groups", params={"search": "paged-", "rows": 2, "page": 2}).json()
    assert ([row["group"] for row in page["groups"]], page["total"]) == (["paged-9"], 3)
    assert page["states"] == {"Empty": 3}
    for column in ("type", "state", "protocol", "assignor", "members", "topics", "coordinator"):
        assert len(rows(api, search="paged-", sort=column)) == 3
    refused = api.get("/groups", params={"sort": "nothing"})
    assert refused.status_code == 400
    assert "sort" in refused.json()["error"]
