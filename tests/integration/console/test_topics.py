"""Topics in the API and on the pages of the console: lists, changes, refusals, and a read-only console."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from tests.support.console_groups import add, fill, read_some
from tests.support.console_topics import API, WAIT_S, create, listed, names, page, setting
from tests.support.waiting import eventually

from tidemill.testing import Broker

VIEWS = ("", "/partitions", "/settings", "/groups", "/producers")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http, timeout=WAIT_S) as opened:
        yield opened


def refused(client: httpx.Client, method: str, path: str, body: Any, status: int = 400) -> dict[str, Any]:
    answer = client.request(method, f"{API}{path}", json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_topics_are_searched_sorted_and_paged(broker: Broker, client: httpx.Client) -> None:
    create(broker.bootstrap_servers, "list.a", "list.c")
    create(broker.bootstrap_servers, "List.b", partitions=4, cleanup_policy="compact")
    add(broker.bootstrap_servers, "list.a", records=3)
    add(broker.bootstrap_servers, "List.b", partitions=4, records=5)
    assert names(client, search="list.") == ["List.b", "list.a", "list.c"]
    assert names(client, search="list.", sort="partitions", descending=True) == ["List.b", "list.a", "list.c"]
    assert names(client, search="list.", sort="records") == ["list.c", "list.a", "List.b"]
    assert names(client, search="list.", sort="bytes", descending=True) == ["List.b", "list.a", "list.c"]
    assert names(client, search="list.", sort="cleanup_policy") == ["List.b", "list.a", "list.c"]
    second = listed(client, search="list.", rows=2, page=2)
    assert ([each["topic"] for each in second["topics"]], second["total"], second["problems"]) == (["list.c"], 3, 0)
    [row] = listed(client, search="list.b")["topics"]
    assert (row["records"], row["partitions"], row["replicas"]) == (20, 4, 1)
    assert (row["cleanup_policy"], row["storage"]) == ("compact", "segments")
    assert (row["without_leader"], row["under_replicated"], row["under_min_isr"]) == (0, 0, 0)
    assert listed(client, search="list.", problems=True)["topics"] == []
    assert "List.b" in page(client, "/topics", search="list.b")
    assert "No topic matches" in page(client, "/topics", search="no such topic")
    assert client.get(API, params={"sort": "nothing"}).status_code == 400


def test_rates_follow_what_is_produced(broker: Broker, client: httpx.Client) -> None:
    create(broker.bootstrap_servers, "rates.busy", "rates.idle")

    def has_rates() -> bool:
        add(broker.bootstrap_servers, "rates.busy", records=50)
        rows = {each["topic"]: each for each in listed(client, search="rates.")["topics"]}
        assert rows["rates.idle"]["bytes_in"] in {None, 0.0}
        return bool(rows["rates.busy"]["bytes_in"] and rows["rates.busy"]["records_in"])

    eventually(has_rates, "the rates are sampled")
    assert names(client, search="rates.", sort="bytes_in", descending=True) == ["rates.busy", "rates.idle"]
    history = client.get(f"{API}/rates.busy/history", params={"minutes": 1}).json()
    assert {(each["name"], each["key"], len(each["values"])) for each in history["series"]} == {
        (f"topic_{name}", "rates.busy", 12) for name in ("records_in", "bytes_in", "bytes_out")
    }
    assert "bytes in of rates.busy" in page(client, "/topics", search="rates.")


def test_internal_topics_are_hidden_until_they_are_wanted(broker: Broker, client: httpx.Client) -> None:
    fill(broker.bootstrap_servers, "read")
    read_some(broker.bootstrap_servers, "readers", "read", 2)
    assert "__consumer_offsets" not in names(client, rows=500)
    assert "__consumer_offsets" in names(client, rows=500, internal=True)
    text = page(client, "/topics/__consumer_offsets/partitions")
    assert "The brokers keep their own state" in text
    for dialog in ("delete-topic", "add-partitions", "delete-records"):
        assert f'"{dialog}"' not in text


def test_a_topic_is_created_with_settings(client: httpx.Client) -> None:
    config = {"retention.ms": "86400000", "tidemill.schedule.enable": "true"}
    made = client.post(API, json={"topic": "made", "partitions": 3, "config": config})
    assert (made.status_code, made.json()) == (200, {"topic": "made", "partitions": 3, "created": True})
    assert setting(client, "made", "retention.ms")["source"] == "topic"
    assert setting(client, "made", "tidemill.schedule.enable")["value"] == "true"
    text = page(client, "/topics/made")
    assert "The topic has no records yet" in text
    assert "3 partitions, 1 replica of each" in text


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ({"topic": "a b"}, "topic", "a b"),
        ({"topic": "taken"}, "topic", "exists"),
        ({"topic": "x", "partitions": 0}, "partitions", "partition"),
        ({"topic": "x", "partitions": "3"}, "partitions", "$.partitions"),
        ({"topic": "x", "replication_factor": 3}, "replication_factor", "broker"),
        ({"topic": "x", "config": {"retention.ms": "soon"}}, "config.retention.ms", "soon"),
        ({"topic": "x", "config": {"no.such": "1"}}, "config.no.such", "no.such"),
        ({"topic": ""}, "topic", "$.topic"),
    ],
)
def test_a_refused_creation_names_its_field(
    broker: Broker, client: httpx.Client, body: dict[str, Any], field: str, reason: str
) -> None:
    if body["topic"] == "taken" and "taken" not in names(client, search="taken"):
        create(broker.bootstrap_servers, "taken")
    found = refused(client, "POST", "", body, 409 if body["topic"] == "taken" else 400)
    assert found["field"] == field
    assert reason in found["error"]
    assert "x" not in names(client, rows=500)


def test_partitions_are_added_and_not_removed(broker: Broker, client: httpx.Client) -> None:
    create(broker.bootstrap_servers, "grown", partitions=2)
    assert client.post(f"{API}/grown/partitions", json={"partitions": 5}).status_code == 204
    assert len(client.get(f"{API}/grown").json()["partitions"]) == 5
    assert refused(client, "POST", "/grown/partitions", {"partitions": 4})["field"] == "partitions"
    text = page(client, "/topics/grown/partitions", sort="partition", descending=True, rows=2)
    assert "1 to 2 of 5" in text
    assert text.index("partition=4") < text.index("partition=3")
    assert "partition=2" not in text
    assert "No partition matches" in page(client, "/topics/grown/partitions", problems="true")
    assert "1 to 1 of 1" in page(client, "/topics/grown/partitions", search="3", broker=0)


def test_a_setting_is_changed_and_reset(broker: Broker, client: httpx.Client) -> None:
    create(broker.bootstrap_servers, "settled")
    changed = client.patch(f"{API}/settled/settings", json={"config": {"retention.ms": "3600000"}})
    assert changed.status_code == 200
    found = setting(client, "settled", "retention.ms")
    assert (found["value"], found["default"], found["source"]) == ("3600000", "604800000", "topic")
    text = page(client, "/topics/settled/settings", changed="true")
    assert "1 of " in text
    assert "3600000" in text
    assert "1 h" in text
    assert "min.insync.replicas" not in text
    assert client.patch(f"{API}/settled/settings", json={"config": {"retention.ms": None}}).status_code == 200
    assert setting(client, "settled", "retention.ms")["source"] == "default"
    assert "The topic has the defaults of the brokers." in page(client, "/topics/settled/settings", changed="true")
    assert "tombstones" in page(client, "/topics/settled/settings", search="TOMBSTONES")
    wrong = refused(client, "PATCH", "/settled/settings", {"config": {"min.insync.replicas": "0"}})
    assert wrong["field"] == "config.min.insync.replicas"


def test_records_are_deleted_below_an_offset(broker: Broker, client: httpx.Client) -> None:
    fill(broker.bootstrap_servers, "cut", partitions=2)
    body = {"partitions": [{"partition": 0, "before": 4}, {"partition": 1, "before": -1}]}
    found = client.post(f"{API}/cut/delete-records", json=body).json()
    assert found["partitions"] == [{"partition": 0, "start": 4}, {"partition": 1, "start": 10}]
    rows = client.get(f"{API}/cut").json()["partitions"]
    assert [(each["start"], each["end"], each["records"]) for each in rows] == [(4, 10, 6), (10, 10, 0)]
    twice = {"partitions": [{"partition": 0, "before": 4}] * 2}
    assert "twice" in refused(client, "POST", "/cut/delete-records", twice)["error"]
    unknown = {"partitions": [{"partition": 7, "before": 4}]}
    assert "0 to 1" in refused(client, "POST", "/cut/delete-records", unknown, 404)["error"]


def test_a_topic_is_deleted(broker: Broker, client: httpx.Client) -> None:
    create(broker.bootstrap_servers, "gone")
    assert client.delete(f"{API}/gone").status_code == 204
    assert client.get(f"{API}/gone").status_code == 404
    assert "there is no topic gone" in page(client, "/topics/gone", 404)


def test_groups_of_a_topic_are_shown_with_their_lag(broker: Broker, client: httpx.Client) -> None:
    fill(broker.bootstrap_servers, "followed")
    for count in (2, 7):
        read_some(broker.bootstrap_servers, f"follower-{count}", "followed", count)
    eventually(
        lambda: [each["lag"] for each in client.get(f"{API}/followed/groups").json()["groups"]] == [8, 3],
        "the lag is known",
    )
    text = page(client, "/topics/followed/groups")
    assert text.index("/groups/follower-2") < text.index("/groups/follower-7")
    text = page(client, "/topics/followed/groups", search="follower-7")
    assert "/groups/follower-2" not in text
    assert "/groups/follower-7" in text
    assert "/groups/follower-2" in page(client, "/topics/followed")
    assert "No group matches" in page(client, "/topics/followed/groups", search="another")
    for column in ("group", "type", "state", "members", "lag", "lag_s", "coordinator"):
        assert "/groups/follower-2" in page(client, "/topics/followed/groups", sort=column, descending="true")


def test_an_open_transaction_is_shown(broker: Broker, client: httpx.Client) -> None:
    fill(broker.bootstrap_servers, "transacted")
    assert "No producer matches" in page(client, "/topics/transacted/producers", transactional="true")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "open"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("transacted", b"open", partition=0)
    producer.flush(WAIT_S)
    text = page(client, "/topics/transacted/producers", transactional="true")
    assert "1 transaction is open" in text
    assert "/topics/transacted/records?partition=0&amp;offset=10" in text
    assert "stable 10" in page(client, "/topics/transacted/partitions")
    producer.abort_transaction(WAIT_S)
    assert "is open" not in page(client, "/topics/transacted/producers")


def test_unusual_names_are_one_segment_of_the_path(broker: Broker, client: httpx.Client) -> None:
    create(broker.bootstrap_servers, "records", "-", "constructor", "x" * 249)
    for name in ("records", "-", "constructor", "x" * 249):
        for view in VIEWS:
            assert name in page(client, f"/topics/{name}{view}")
    for view in VIEWS:
        text = page(client, f"/topics/%3Cscript%3Ealert(1)%3C%2Fscript%3E%2F..{view}", 404)
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;/.." in text
    assert "&lt;b&gt;" in page(client, "/topics", search="<b>")


def test_an_empty_broker_says_how_to_begin_and_a_read_only_console_changes_nothing() -> None:
    with Broker(flags={"console-readonly": "true"}) as broker, httpx.Client(base_url=broker.http) as client:
        text = page(client, "/topics")
        assert "There are no topics yet" in text
        assert "tidemill topic create orders" in text
        assert "create-topic" not in text
        create(broker.bootstrap_servers, "shown", retention_ms="5")
        for view in VIEWS:
            text = page(client, f"/topics/shown{view}")
            for dialog in ("delete-topic", "add-partitions", "delete-records", "edit-setting", "reset-setting"):
                assert f'"{dialog}"' not in text
        for method, path, body in (
            ("POST", "", {"topic": "more"}),
            ("DELETE", "/shown", None),
            ("POST", "/shown/partitions", {"partitions": 3}),
            ("PATCH", "/shown/settings", {"config": {"retention.ms": None}}),
            ("POST", "/shown/delete-records", {"partitions": [{"partition": 0, "before": 0}]}),
        ):
            assert "--console-readonly" in refused(client, method, path, body, 403)["error"]
        assert names(client) == ["shown"]
