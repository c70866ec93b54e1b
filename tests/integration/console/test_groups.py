"""Consumer groups in the JSON API, with real consumers of both protocols."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.support.console_groups import (
    CLASSIC,
    CONSUMER,
    ODD_NAME,
    RECORDS,
    WAIT_S,
    commit,
    fill,
    member,
    read_some,
    segment,
)
from tests.support.waiting import eventually

from tidemill.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def api(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.http}/api/v1", timeout=WAIT_S) as client:
        yield client


def rows(api: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    answer = api.get("/groups", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["groups"]
    return found


def group(api: httpx.Client, name: str, **query: Any) -> dict[str, Any]:
    answer = api.get(f"/groups/{segment(name)}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def committed(api: httpx.Client, name: str) -> list[int | None]:
    return [each["committed"] for each in group(api, name)["partitions"]]


def post(api: httpx.Client, name: str, what: str, body: dict[str, Any], status: int = 200) -> dict[str, Any]:
    answer = api.post(f"/groups/{segment(name)}/{what}", json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def delete(api: httpx.Client, path: str, status: int = 204) -> dict[str, Any]:
    answer = api.delete(path)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json() if answer.content else {}
    return found


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_group_is_listed_with_its_state_and_its_lag(broker: Broker, api: httpx.Client, protocol: str) -> None:
    name = f"listed-{protocol}"
    fill(broker.bootstrap_servers, name)
    with member(broker.bootstrap_servers, name, name, protocol) as consumer:
        commit(consumer, name, 4)
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
    fill(broker.bootstrap_servers, "paged")
    for number in (2, 9, 5):
        read_some(broker.bootstrap_servers, f"paged-{number}", "paged", number)
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


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_group_is_described_with_members_partitions_and_lag(broker: Broker, api: httpx.Client, protocol: str) -> None:
    topic, name = f"described-{protocol}", f"{ODD_NAME}-{protocol}"
    fill(broker.bootstrap_servers, topic, partitions=2)
    options = {"client.id": "<b>the client</b>", "group.instance.id": "seat 1"}
    with member(broker.bootstrap_servers, name, topic, protocol, **options) as consumer:
        commit(consumer, topic, 4)
        found = group(api, name)
        assert (found["group"], found["type"], found["state"], found["coordinator"]) == (name, protocol, "Stable", 0)
        assert (found["lag"], found["unknown_partitions"], found["topics"]) == (RECORDS - 4, 1, [topic])
        assert found["epoch"] == found["target_epoch"] > 0
        assert "reads them" in found["explanation"]
        [seen] = found["members"]
        assert (seen["client"], seen["host"], seen["instance"]) == ("<b>the client</b>", "127.0.0.1", "seat 1")
        assert (seen["protocol"], seen["topics"]) == (protocol, [topic])
        assert seen["assigned"] == seen["target"] == [{"topic": topic, "partitions": [0, 1]}]
        first, second = found["partitions"]
        assert (first["committed"], first["end"], first["lag"]) == (4, RECORDS, RECORDS - 4)
        assert first["lag_s"] > 0
        assert first["committed_ms"] > 1_600_000_000_000
        assert (first["member"], first["client"]) == (seen["member"], seen["client"])
        assert (second["committed"], second["end"], second["lag"], second["committed_ms"]) == (
            None,
            RECORDS,
            None,
            None,
        )
        commit(consumer, topic, RECORDS)
        assert group(api, name)["lag"] == 0
        [largest] = group(api, name, sort="committed", descending=True, rows=1)["partitions"]
        assert largest["partition"] == 0


def test_an_unknown_group_is_not_found(api: httpx.Client) -> None:
    answer = api.get("/groups/never")
    assert answer.status_code == 404
    assert "never does not exist" in answer.json()["error"]


@pytest.mark.parametrize(
    ("target", "places"),
    [
        ({"to": "earliest"}, [0, 0]),
        ({"to": "latest"}, [RECORDS, RECORDS]),
        ({"to": "time", "time_ms": 0}, [0, 0]),
        ({"to": "time", "time_ms": 2**50}, [RECORDS, RECORDS]),
        ({"to": "duration", "duration_ms": 3_600_000}, [0, 0]),
        ({"to": "shift", "by": 2}, [6, 10]),
        ({"to": "shift", "by": -5}, [0, 4]),
        ({"to": "offset", "offset": 7}, [7, 7]),
        ({"to": "offset", "offset": 99}, [RECORDS, RECORDS]),
    ],
)
def test_a_preview_shows_the_reset_that_is_made(
    broker: Broker, api: httpx.Client, target: dict[str, Any], places: list[int]
) -> None:
    name = "reset-" + "-".join(str(each) for each in target.values())
    fill(broker.bootstrap_servers, name, partitions=2)
    start = [{"topic": name, "partition": 0, "offset": 4}, {"topic": name, "partition": 1, "offset": 9}]
    post(api, name, "offsets", {"target": {"to": "offsets", "offsets": start}})
    preview = post(api, name, "offsets", {"target": target, "dry_run": True})
    assert preview["partitions"] == [
        {"topic": name, "partition": 0, "from": 4, "to": places[0], "records": places[0] - 4},
        {"topic": name, "partition": 1, "from": 9, "to": places[1], "records": places[1] - 9},
    ]
    assert preview["skipped"] - preview["read_again"] == sum(places) - 13
    assert (preview["dry_run"], preview["refusal"]) == (True, None)
    assert committed(api, name) == [4, 9]
    made = post(api, name, "offsets", {"target": target})
    assert made == {**preview, "dry_run": False}
    assert committed(api, name) == places


def test_a_reset_is_limited_to_topics_and_partitions(broker: Broker, api: httpx.Client) -> None:
    for topic in ("chosen", "other"):
        fill(broker.bootstrap_servers, topic, partitions=2)
        post(api, "choosers", "offsets", {"target": {"to": "offset", "offset": 5}, "topics": [{"topic": topic}]})
    selected = [{"topic": "chosen", "partitions": [1, 1]}]
    post(api, "choosers", "offsets", {"target": {"to": "latest"}, "topics": selected})
    assert committed(api, "choosers") == [5, RECORDS, 5, 5]
    missing = post(api, "choosers", "offsets", {"target": {"to": "latest"}, "topics": [{"topic": "no"}]}, status=404)
    assert "no" in missing["error"]
    beyond = [{"topic": "chosen", "partitions": [2]}]
    refused = post(api, "choosers", "offsets", {"target": {"to": "latest"}, "topics": beyond}, status=404)
    assert "chosen-2 does not exist; the topic has 2 partitions" in refused["error"]
    nothing = post(api, "not-there-yet", "offsets", {"target": {"to": "latest"}}, status=409)
    assert "name the topics" in nothing["error"]
    assert api.get("/groups/not-there-yet").status_code == 404


def test_a_previewed_reset_is_refused_when_the_group_has_moved(broker: Broker, api: httpx.Client) -> None:
    fill(broker.bootstrap_servers, "moving")
    read_some(broker.bootstrap_servers, "movers", "moving", 3)
    preview = post(api, "movers", "offsets", {"target": {"to": "earliest"}, "dry_run": True})
    exact = [
        {"topic": each["topic"], "partition": each["partition"], "offset": each["to"], "previous": each["from"]}
        for each in preview["partitions"]
    ]
    read_some(broker.bootstrap_servers, "movers", "moving", 6)
    body = {"target": {"to": "offsets", "offsets": exact}}
    assert "is 6 now and was 3" in post(api, "movers", "offsets", body, status=409)["error"]
    assert committed(api, "movers") == [6]
    exact[0]["previous"] = 6
    post(api, "movers", "offsets", body)
    assert committed(api, "movers") == [0]
    repeated = {"target": {"to": "offsets", "offsets": exact * 2}}
    assert "twice" in post(api, "movers", "offsets", repeated, status=400)["error"]


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_the_offsets_of_a_group_with_members_are_not_changed(broker: Broker, api: httpx.Client, protocol: str) -> None:
    name = f"guarded-{protocol}"
    fill(broker.bootstrap_servers, name)
    with member(broker.bootstrap_servers, name, name, protocol) as consumer:
        commit(consumer, name, 4)
        preview = post(api, name, "offsets", {"target": {"to": "earliest"}, "dry_run": True})
        assert preview["partitions"][0]["to"] == 0
        refused = post(api, name, "offsets", {"target": {"to": "earliest"}}, status=409)
        assert preview["refusal"] == refused["error"]
        assert "it has 1 member" in refused["error"]
        assert "stop them" in refused["error"]
        skip = {"topic": name, "partition": 0, "dry_run": True}
        assert "stop them" in post(api, name, "skip", skip)["refusal"]
        post(api, name, "skip", {"topic": name, "partition": 0, "offset": 4}, status=409)
        assert "has members" in delete(api, f"/groups/{name}", status=409)["error"]
        delete(api, f"/groups/{name}/offsets/{name}", status=409)
        assert committed(api, name) == [4]


def test_one_record_is_skipped(broker: Broker, api: httpx.Client) -> None:
    fill(broker.bootstrap_servers, "poisoned")
    read_some(broker.bootstrap_servers, "skippers", "poisoned", 3)
    preview = post(api, "skippers", "skip", {"topic": "poisoned", "partition": 0, "dry_run": True})
    assert (preview["offset"], preview["from"], preview["to"]) == (3, 3, 4)
    assert (preview["key"], preview["key_is_base64"], preview["value_bytes"]) == ("key 3", False, 7)
    assert committed(api, "skippers") == [3]
    place = {"topic": "poisoned", "partition": 0}
    assert "name the offset" in post(api, "skippers", "skip", place, status=400)["error"]
    other = post(api, "skippers", "skip", {**place, "offset": 7}, status=409)
    assert "has offset 3 now" in other["error"]
    made = post(api, "skippers", "skip", {**place, "offset": 3})
    assert made == {**preview, "dry_run": False}
    assert committed(api, "skippers") == [4]
    post(api, "skippers", "offsets", {"target": {"to": "latest"}})
    assert "no unread record" in post(api, "skippers", "skip", {**place, "dry_run": True}, status=409)["error"]
    without = post(api, "newcomers", "skip", {**place, "dry_run": True}, status=409)
    assert "no committed offset" in without["error"]


def test_a_skip_passes_over_markers_and_aborted_records(broker: Broker, api: httpx.Client) -> None:
    from confluent_kafka import Producer

    fill(broker.bootstrap_servers, "marked", records=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "marker"})
    producer.init_transactions()
    for is_committed in (False, True):
        producer.begin_transaction()
        producer.produce("marked", b"\xff\xfe", b"\xff")
        producer.flush(WAIT_S)
        (producer.commit_transaction if is_committed else producer.abort_transaction)()
    read_some(broker.bootstrap_servers, "passers", "marked", 1)
    preview = post(api, "passers", "skip", {"topic": "marked", "partition": 0, "dry_run": True})
    assert (preview["from"], preview["offset"], preview["to"]) == (1, 3, 4)
    assert (preview["key"], preview["key_is_base64"]) == ("/w==", True)
    post(api, "passers", "skip", {"topic": "marked", "partition": 0, "offset": 3})
    assert group(api, "passers")["lag"] == 0


def test_offsets_of_a_topic_and_a_group_are_deleted(broker: Broker, api: httpx.Client) -> None:
    for topic in ("first", "second"):
        fill(broker.bootstrap_servers, topic)
        post(api, ODD_NAME, "offsets", {"target": {"to": "latest"}, "topics": [{"topic": topic}]})
    path = f"/groups/{segment(ODD_NAME)}"
    gone = delete(api, f"{path}/offsets/first", status=200)
    assert gone == {"group": ODD_NAME, "topic": "first", "partitions": [0]}
    assert group(api, ODD_NAME)["topics"] == ["second"]
    delete(api, f"{path}/offsets/first", status=404)
    delete(api, path)
    assert api.get(path).status_code == 404
    delete(api, path, status=404)


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_member_is_removed(broker: Broker, api: httpx.Client, protocol: str) -> None:
    name = f"removed-{protocol}"
    fill(broker.bootstrap_servers, name)
    with member(broker.bootstrap_servers, name, name, protocol, **{"group.instance.id": f"seat-{protocol}"}):
        [seen] = group(api, name)["members"]
        delete(api, f"/groups/{name}/members/{segment(seen['member'])}")
        assert seen["member"] not in [each["member"] for each in group(api, name)["members"]]
        gone = delete(api, f"/groups/{name}/members/{segment(seen['member'])}", status=404)
        assert "has no member" in gone["error"]


def test_malformed_changes_are_refused(broker: Broker, api: httpx.Client) -> None:
    fill(broker.bootstrap_servers, "strict")
    bodies: list[Any] = [
        {},
        {"target": {"to": "nowhere"}},
        {"target": {"to": "offset"}},
        {"target": {"to": "offset", "offset": -1}},
        {"target": {"to": "offset", "offset": 2**63}},
        {"target": {"to": "earliest", "more": 1}},
        {"target": {"to": "offsets", "offsets": []}},
        {"target": {"to": "earliest"}, "topics": []},
        {"target": {"to": "earliest"}, "topics": [{"topic": "strict", "partitions": [-1]}]},
        {"target": {"to": "earliest"}, "dry_run": "yes"},
        [],
    ]
    for body in bodies:
        assert "not valid" in post(api, "g", "offsets", body, status=400)["error"], body
    exact = {"target": {"to": "offsets", "offsets": [{"topic": "strict", "partition": 0, "offset": 1}]}}
    post(api, "g", "offsets", {**exact, "topics": [{"topic": "strict"}]}, status=400)
    assert api.get("/groups/g").status_code == 404
