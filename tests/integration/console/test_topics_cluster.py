"""Three brokers show the same topics, change them at any broker, and show what a lost broker leaves behind."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.console_groups import add
from tests.support.console_topics import API, create, listed, page
from tests.support.waiting import eventually

WAIT_S = 60.0
EVERYWHERE = (1, 2, 3)
VIEWS = ("", "/partitions", "/settings", "/groups", "/producers")


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    settings = {"auto.leader.rebalance.enable": "false", "min.insync.replicas": "2"}
    with running_brokers(settings=settings, http="127.0.0.1:0") as cluster:
        create(cluster.bootstrap, "orders", partitions=6, replicas=3)
        create(cluster.bootstrap, "single", partitions=3)
        add(cluster.bootstrap, "orders", partitions=6, records=20)
        add(cluster.bootstrap, "single", partitions=3, records=5)
        yield cluster


def client(brokers: Brokers, number: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://{brokers.servers[number]['http']}", timeout=WAIT_S)


def rows(brokers: Brokers, number: int) -> list[Any]:
    """The list without its rates, which move."""
    with client(brokers, number) as opened:
        found = listed(opened, sort="records", descending=True)
    assert found["unreachable_brokers"] == []
    moving = {"records_in", "bytes_in", "bytes_out"}
    return [{name: value for name, value in row.items() if name not in moving} for row in found["topics"]]


def partitions(brokers: Brokers, number: int, topic: str) -> list[dict[str, Any]]:
    with client(brokers, number) as opened:
        found: list[dict[str, Any]] = opened.get(f"{API}/{topic}").json()["partitions"]
    return found


def everywhere(brokers: Brokers, condition: Any, message: str, numbers: tuple[int, ...] = EVERYWHERE) -> None:
    eventually(lambda: all(condition(each) for each in numbers), message, within_s=WAIT_S)


def test_every_broker_shows_the_same_topics(brokers: Brokers) -> None:
    everywhere(
        brokers,
        lambda number: [row["under_replicated"] for row in rows(brokers, number)] == [0, 0],
        "a broker does not see the replicas in sync",
    )
    first = rows(brokers, 1)
    assert [(row["topic"], row["records"], row["replicas"]) for row in first] == [("orders", 120, 3), ("single", 15, 1)]
    assert [row["bytes"] > 0 for row in first] == [True, True]
    assert rows(brokers, 2) == rows(brokers, 3) == first
    described = partitions(brokers, 1, "orders")
    assert [(row["end"], len(row["isr"])) for row in described] == [(20, 3)] * 6
    assert {row["leader"] for row in described} == {1, 2, 3}
    assert partitions(brokers, 2, "orders") == partitions(brokers, 3, "orders") == described
    for number in EVERYWHERE:
        with client(brokers, number) as opened:
            for view in VIEWS:
                assert "6 partitions, 3 replicas of each" in page(opened, f"/topics/orders{view}")


def test_a_topic_is_changed_at_any_broker(brokers: Brokers) -> None:
    with client(brokers, 1) as one, client(brokers, 2) as two, client(brokers, 3) as three:
        made = one.post(API, json={"topic": "shared", "partitions": 2, "replication_factor": 3})
        assert made.status_code == 200, made.text
        everywhere(brokers, lambda number: len(rows(brokers, number)) == 3, "a broker does not know the new topic")
        assert two.post(f"{API}/shared/partitions", json={"partitions": 4}).status_code == 204
        changed = three.patch(f"{API}/shared/settings", json={"config": {"retention.ms": "3600000"}})
        assert changed.status_code == 200, changed.text
        eventually(
            lambda: all(
                "3600000" in page(each, "/topics/shared/settings", changed="true") for each in (one, two, three)
            ),
            "a broker does not know the setting",
        )
        add(brokers.bootstrap, "shared", partitions=4, records=3)
        body = {"partitions": [{"partition": each, "before": 2} for each in range(4)]}
        assert two.post(f"{API}/shared/delete-records", json=body).status_code == 200
        everywhere(
            brokers,
            lambda number: [row["start"] for row in partitions(brokers, number, "shared")] == [2] * 4,
            "a broker shows deleted records",
        )
        assert three.delete(f"{API}/shared").status_code == 204
        everywhere(brokers, lambda number: len(rows(brokers, number)) == 2, "a broker shows the deleted topic")


def test_a_lost_broker_leaves_problems_that_are_marked(brokers: Brokers) -> None:
    lost = partitions(brokers, 1, "single")[0]["leader"]
    rest = tuple(each for each in EVERYWHERE if each != lost)
    brokers.kill(lost)

    def is_seen(number: int) -> bool:
        with client(brokers, number) as opened:
            found = {row["topic"]: row for row in listed(opened, problems=True)["topics"]}
        return (
            set(found) == {"orders", "single"}
            and found["orders"]["under_replicated"] == 6
            and found["orders"]["without_leader"] == 0
            and found["single"]["without_leader"] == 1
            and found["single"]["records"] is None
        )

    everywhere(brokers, is_seen, "the problems are not listed", rest)
    for number in rest:
        with client(brokers, number) as opened:
            assert "6 partitions lack a replica" in page(opened, "/topics/orders")
            text = page(opened, "/topics/single/partitions", problems="true")
            assert "1 partition has no leader" in text
            assert "1 to 1 of 1" in text
