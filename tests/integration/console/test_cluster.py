"""The cluster in the API and in the console, on three brokers: status, rebalance, elections, a lost broker."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.waiting import eventually

WAIT_S = 60.0
EVERYWHERE = (1, 2, 3)
NUMBERS = (
    *("cluster_id", "controller", "topics", "partitions", "without_leader", "under_replicated", "under_min_isr"),
    *("groups", "timelines", "log_bytes", "attention", "unreachable_brokers"),
)
"""What does not change from one request to the next."""
OF_BROKER = ("broker", "address", "rack", "roles", "state", "controller", "leads", "replicas", "in_sync", "reasons")


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    settings = {"auto.leader.rebalance.enable": "false", "default.replication.factor": "3", "min.insync.replicas": "2"}
    with running_brokers(settings=settings, http="127.0.0.1:0") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 6, 3)])["orders"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(300):
            producer.produce("orders", b"v" * 100, key=str(number))
        assert producer.flush(WAIT_S) == 0
        yield cluster


def get(brokers: Brokers, number: int, path: str) -> Any:
    answer = httpx.get(f"http://{brokers.servers[number]['http']}{path}", timeout=WAIT_S)
    assert answer.status_code == 200, answer.text
    return answer.json() if path.startswith("/api") else answer.text


def settle(brokers: Brokers) -> None:
    def is_quiet() -> bool:
        found = get(brokers, 1, "/api/v1/cluster")
        return found["under_replicated"] == 0 and len(found["brokers"]) == 3

    eventually(is_quiet, "the cluster is not in sync", within_s=WAIT_S)


def test_every_broker_shows_the_same_overview(brokers: Brokers) -> None:
    settle(brokers)

    def seen(number: int) -> Any:
        found = get(brokers, number, "/api/v1/overview")
        rows = [{name: row[name] for name in OF_BROKER} for row in found["brokers"]]
        return {name: found[name] for name in NUMBERS}, rows

    eventually(lambda: seen(1) == seen(2) == seen(3), "the brokers show different numbers", within_s=WAIT_S)
    numbers, rows = seen(1)
    assert (numbers["topics"], numbers["partitions"], numbers["unreachable_brokers"]) == (1, 6, [])
    assert [row["broker"] for row in rows] == [1, 2, 3]
    assert sum(row["leads"] for row in rows) == 6
    assert [row["in_sync"] for row in rows] == [6, 6, 6]


def test_every_broker_shows_the_same_history(brokers: Brokers) -> None:
    def seen(number: int) -> Any:
        found = get(brokers, number, "/api/v1/overview/history?minutes=5")
        return found["times_ms"][-1], [each for each in found["series"] if each["name"] == "topic_records_in"]

    def is_same() -> bool:
        one, two, three = seen(1), seen(2), seen(3)
        return one == two == three and [each["key"] for each in one[1] if any(each["values"])] == ["orders"]

    eventually(is_same, "the brokers show different histories", within_s=WAIT_S)


def test_one_broker_shows_its_settings_at_every_broker(brokers: Brokers) -> None:
    for number in EVERYWHERE:
        found = get(brokers, number, "/api/v1/brokers/2/settings?changed=true")
        rows = {row["name"]: row for row in found["settings"]}
        assert (found["broker"], rows["min.insync.replicas"]["value"]) == (2, "2")
        assert rows["min.insync.replicas"]["default"] == "1"
        assert not rows["min.insync.replicas"]["is_default"]
    page = get(brokers, 1, "/cluster/brokers/2?search=retention")
    assert "log.retention.ms" in page
    assert "min.insync.replicas" not in page


def test_leaders_return_after_an_election(brokers: Brokers) -> None:
    settle(brokers)
    brokers.stop(2)
    eventually(
        lambda: get(brokers, 1, "/api/v1/cluster")["under_replicated"] == 6, "nothing is missing", within_s=WAIT_S
    )
    eventually(
        lambda: get(brokers, 1, "/api/v1/overview")["unreachable_brokers"] == [2], "2 answers", within_s=WAIT_S
    )  # answers of brokers are shared for half a second
    titles = [item["title"] for item in get(brokers, 1, "/api/v1/overview")["attention"]]
    assert "Broker 2 does not answer" in titles
    assert "6 partitions under-replicated" in titles
    assert "Broker 2 did not answer" in get(brokers, 3, "/")
    assert "Forget this broker" in get(brokers, 3, "/cluster/brokers/2")
    brokers.start(2)
    settle(brokers)
    preview = get(brokers, 3, "/api/v1/cluster/rebalance")
    assert preview["dry_run"]
    assert [move["copies"] for move in preview["moves"]] == [False] * preview["total"]
    assert {move["new_leader"] for move in preview["moves"]} == {2}
    page = get(brokers, 3, "/cluster")
    assert "Elect preferred leaders" in page
    answer = httpx.post(f"http://{brokers.servers[1]['http']}/api/v1/cluster/elections", timeout=WAIT_S)
    assert answer.json() == {"elected": preview["total"], "problems": []}
    eventually(
        lambda: get(brokers, 3, "/api/v1/cluster/rebalance")["total"] == 0, "the leaders differ", within_s=WAIT_S
    )


def test_a_rebalance_moves_replicas_and_shows_them(brokers: Brokers) -> None:
    settle(brokers)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic("skewed", replica_assignment=[[1, 2]] * 4, num_partitions=4)])["skewed"].result(
        WAIT_S
    )
    eventually(lambda: get(brokers, 2, "/api/v1/cluster/rebalance")["total"] > 0, "nothing would move", within_s=WAIT_S)
    preview = get(brokers, 2, "/api/v1/cluster/rebalance")
    assert any(move["copies"] for move in preview["moves"])
    assert "Start the rebalance" in get(brokers, 2, "/cluster/rebalance")
    answer = httpx.post(f"http://{brokers.servers[2]['http']}/api/v1/cluster/rebalance", timeout=WAIT_S)
    assert answer.json() == {**preview, "dry_run": False}

    def is_over() -> bool:
        moving = get(brokers, 1, "/api/v1/cluster/reassignments")
        assert all(each["progress"] is None or 0 <= each["progress"] <= 1 for each in moving["partitions"])
        return bool(moving["total"] == 0)

    eventually(is_over, "the moves do not end", within_s=WAIT_S)
    carried = [row["replicas"] for row in get(brokers, 1, "/api/v1/cluster")["brokers"]]
    assert max(carried) - min(carried) <= 1


def test_a_broker_that_runs_or_is_unknown_is_not_forgotten(brokers: Brokers) -> None:
    for wrong, status in (("1", 400), ("77", 404), ("x", 404), ("99999999999", 404)):
        answer = httpx.delete(f"http://{brokers.servers[1]['http']}/api/v1/brokers/{wrong}", timeout=WAIT_S)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]
    assert len(get(brokers, 1, "/api/v1/cluster")["brokers"]) == 3


def test_an_accepted_clock_is_reported(brokers: Brokers) -> None:
    answer = httpx.post(f"http://{brokers.servers[1]['http']}/api/v1/brokers/3/clock", timeout=WAIT_S)
    assert answer.json() == {"broker": 3, "ended": []}
    missing = httpx.post(f"http://{brokers.servers[1]['http']}/api/v1/brokers/9/clock", timeout=WAIT_S)
    assert missing.status_code == 404
