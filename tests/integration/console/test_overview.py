"""The overview: its document, its history, its page, and what a failure says there."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.waiting import eventually

from tidemill.broker.history import SAMPLE_MS
from tidemill.testing import Broker

WAIT_S = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http, timeout=WAIT_S) as opened:
        yield opened


def produce(broker: Broker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, f"value {number}".encode())
    assert producer.flush(WAIT_S) == 0


def test_a_new_broker_says_how_to_begin() -> None:
    with Broker() as fresh:
        page = httpx.get(fresh.http, timeout=WAIT_S).text
    assert "First steps" in page
    assert "tidemill topic create orders --partitions 3" in page
    assert f"&#34;bootstrap.servers&#34;: &#34;{fresh.bootstrap_servers}&#34;" in page


def test_the_document_counts_what_there_is(broker: Broker, client: httpx.Client) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("counted", 3, 1)])["counted"].result(WAIT_S)
    produce(broker, "counted", 10)
    found = client.get("/api/v1/overview").json()
    assert found["topics"] == 1
    assert found["partitions"] >= 3
    assert (found["without_leader"], found["under_replicated"], found["under_min_isr"]) == (0, 0, 0)
    assert found["attention"] == []
    assert found["connections"] >= 1
    assert found["log_bytes"] > 0
    [one] = found["brokers"]
    assert (one["broker"], one["state"], one["controller"], one["leads"]) == (0, "healthy", True, found["partitions"])
    report = one["report"]
    assert report["uptime_s"] > 0
    assert report["disk_total_bytes"] > report["disk_free_bytes"] > 0
    assert {each["server"] for each in report["servers"]} == {"kafka", "grpc", "http"}
    assert f"http://{next(each['address'] for each in report['servers'] if each['server'] == 'http')}" == broker.http


def test_records_move_the_history_and_the_page(broker: Broker, client: httpx.Client) -> None:
    def values(name: str, key: str) -> list[float]:
        found = client.get("/api/v1/overview/history?minutes=1").json()
        assert found["interval_ms"] == SAMPLE_MS
        assert len(found["times_ms"]) == 12
        series = {(each["name"], each["key"]): each["values"] for each in found["series"]}
        assert all(len(each) == 12 for each in series.values())
        return [value for value in series.get((name, key), []) if value is not None]

    eventually(lambda: values("requests", ""), "the broker takes no samples", within_s=WAIT_S)
    produce(broker, "moving", 500)
    eventually(
        lambda: sum(values("topic_records_in", "moving")) * SAMPLE_MS / 1000 == pytest.approx(500, rel=0.02),
        "the rate of the topic is wrong",
        within_s=WAIT_S,
    )
    page = client.get("/").text
    assert "Busiest topics" in page
    assert 'href="/topics/moving"' in page


def test_a_history_is_of_a_broker_that_runs(client: httpx.Client) -> None:
    assert client.get("/api/v1/overview/history?broker=0").status_code == 200
    answer = client.get("/api/v1/overview/history?broker=7")
    assert (answer.status_code, answer.json()) == (
        404,
        {"error": "broker 7 is not running; see the brokers at /cluster"},
    )
    assert client.get("/?broker=7").status_code == 404
    for wrong in ("minutes=0", "minutes=31", "minutes=x", "broker=-1", "unknown=1"):
        assert client.get(f"/api/v1/overview/history?{wrong}").status_code == 400, wrong


def test_a_broken_partition_needs_attention(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as first:
        produce(first, "broken", 3)
    log = next((tmp_path / "streams" / "broken" / "0").glob("*.log"))
    log.unlink()
    with Broker(data_dir=tmp_path) as again:
        found = httpx.get(f"{again.http}/api/v1/overview", timeout=WAIT_S).json()
        page = httpx.get(again.http, timeout=WAIT_S).text
    assert found["brokers"][0]["state"] == "degraded"
    item = found["attention"][0]
    assert {each["link"] for each in found["attention"][1:]} <= {"/logs?level=error&broker=0"}
    assert item["severity"] == "critical"
    assert item["title"] == "Broker 0 has a problem with its records"
    assert "broken" in item["detail"]
    assert item["next_step"]
    assert "Broker 0 has a problem with its records" in page
