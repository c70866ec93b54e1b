"""Share groups in the JSON API and in the pages, with real share consumers."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import AcknowledgeType
from tests.support.console_groups import WAIT_S, add, fill, read_some, segment
from tests.support.share_members import share_member
from tests.support.waiting import eventually

from tidemill.testing import Broker

SQL = "SELECT * FROM share_groups WHERE group_id = 'packers'"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"group.share.heartbeat.interval.ms": "500"}) as running:
        yield running


@pytest.fixture
def api(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.http}/api/v1", timeout=WAIT_S) as client:
        yield client


def document(api: httpx.Client, path: str, **query: Any) -> dict[str, Any]:
    answer = api.get(path, params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def answered(api: httpx.Client, sql: str) -> list[list[Any]]:
    answer = api.post("/sql", json={"query": sql})
    assert answer.status_code == 200, answer.text
    rows: list[list[Any]] = answer.json()["rows"]
    return rows


def test_a_share_group_has_its_positions_and_lag_with_and_without_members(broker: Broker, api: httpx.Client) -> None:
    fill(broker.bootstrap_servers, "parcels")
    with share_member(broker.bootstrap_servers, "packers", "parcels", 10) as (member, held):
        found = document(api, "/groups/packers")
        assert (found["type"], found["state"], found["member_count"], found["partitions"]) == ("share", "Stable", 1, [])
        assert found["members"][0]["assigned"] == [{"topic": "parcels", "partitions": [0]}]
        [row] = found["shared"]
        assert row.pop("oldest_lock_s") > 0
        counts = {"acquired": 10, "available": 0, "waiting": 0, "members": 1}
        assert row == {"topic": "parcels", "partition": 0, "start": 0, "end": 10, "lag": 10, **counts}
        for message in held[:4]:
            member.acknowledge(message, AcknowledgeType.ACCEPT)
        for message in held[4:]:
            member.acknowledge(message, AcknowledgeType.RELEASE)
        member.commit_sync(WAIT_S)
        assert answered(api, SQL) == [["packers", "parcels", 0, 4, 10, 6, 0, 6, 0, 0.0]]
        [row] = document(api, "/groups/packers")["shared"]
        assert (row["start"], row["lag"], row["acquired"], row["available"]) == (4, 6, 0, 6)
    eventually(lambda: document(api, "/groups/packers")["state"] == "Empty", "the member has left")
    add(broker.bootstrap_servers, "parcels", records=5)
    found = document(api, "/groups/packers")
    assert (found["lag"], found["unknown_partitions"], found["topics"]) == (11, 0, ["parcels"])
    assert (found["shared"][0]["start"], found["shared"][0]["members"], found["shared"][0]["acquired"]) == (4, 0, None)
    assert answered(api, SQL) == [["packers", "parcels", 0, 4, 15, 11, None, None, None, None]]
    assert answered(api, "SELECT kind, members FROM consumer_groups WHERE group_id = 'packers'") == [["share", 0]]
    [row] = document(api, "/groups", type="share")["groups"]
    assert (row["group"], row["lag"], row["topics"], row["members"]) == ("packers", 11, ["parcels"], 0)
    [row] = [each for each in document(api, "/topics/parcels/groups")["groups"] if each["type"] == "share"]
    assert (row["group"], row["lag"]) == ("packers", 11)


def test_lists_of_both_kinds_of_groups_are_sorted_by_lag(broker: Broker, api: httpx.Client) -> None:
    fill(broker.bootstrap_servers, "letters")
    read_some(broker.bootstrap_servers, "letters-log", "letters", 7)
    with share_member(broker.bootstrap_servers, "letters-queue", "letters", 10):

        def first() -> tuple[str, int | None]:
            [row] = document(api, "/groups", sort="lag", descending="true", rows=1, search="letters-")["groups"]
            return row["group"], row["lag"]

        def last() -> tuple[str, int | None]:
            [row] = document(api, "/groups", sort="lag", descending="true", rows=1, search="letters-", page=2)["groups"]
            return row["group"], row["lag"]

        # The lag of other groups appears when its refresh has ended.
        eventually(
            lambda: (first(), last()) == (("letters-queue", 10), ("letters-log", 3)), "the groups are sorted by lag"
        )


def test_changes_of_committed_offsets_are_refused_and_a_group_without_members_is_deleted(
    broker: Broker, api: httpx.Client
) -> None:
    fill(broker.bootstrap_servers, "bills")
    with share_member(broker.bootstrap_servers, "payers", "bills", 10):
        member = document(api, "/groups/payers")["members"][0]["member"]
        page = httpx.get(f"{broker.http}/groups/payers", timeout=WAIT_S).text
        assert "Share group (KIP-932)" in page
        assert "Reset offsets" not in page
        refused = [
            api.post("/groups/payers/offsets", json={"target": {"to": "earliest"}}),
            api.post("/groups/payers/skip", json={"topic": "bills", "partition": 0, "offset": 0}),
            api.delete("/groups/payers/offsets/bills"),
            api.delete(f"/groups/payers/members/{segment(member)}"),
        ]
        for answer in refused:
            assert answer.status_code == 409, answer.text
            assert "payers is a share group" in answer.json()["error"]
        assert api.delete("/groups/payers").status_code == 409
        assert document(api, "/groups/payers")["shared"][0]["lag"] == 10
    eventually(lambda: document(api, "/groups/payers")["member_count"] == 0, "the member has left")
    assert api.delete("/groups/payers").status_code == 204
    assert api.get("/groups/payers").status_code == 404
    assert document(api, "/groups", type="share", search="payers")["groups"] == []
