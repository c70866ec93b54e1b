"""Timelines in the JSON API and on the console's pages, with real clients of timelines and Kafka."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.waiting import eventually

from tidemill import Message, Timeline
from tidemill.testing import Broker

WAIT_S = 30.0
HOUR_S = 3_600
HOSTILE = "<script>alert(1)</script>/.. %2F?#é"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flags={"timelines": "sqlite:"}) as running:
        yield running


@pytest.fixture
def api(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.http}/api/v1/timelines", timeout=WAIT_S) as client:
        yield client


@contextmanager
def timeline(broker: Broker, name: str, **settings: Any) -> Iterator[Timeline]:
    with Timeline(broker.grpc, name) as opened:
        opened.create(**settings)
        yield opened


def root(api: httpx.Client) -> str:
    return str(api.base_url).rstrip("/")


def found(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def shown(api: httpx.Client, name: str) -> dict[str, Any]:
    view: dict[str, Any] = found(api.get(f"/{name}"))
    return view


def counts(api: httpx.Client, name: str) -> tuple[int, int, int]:
    view = shown(api, name)
    return view["waiting"], view["available"], view["leased"]


def ids(api: httpx.Client, name: str, **query: Any) -> list[str]:
    return [each["id"] for each in found(api.get(f"/{name}/messages", params=query))["messages"]]


def test_a_timeline_is_created_changed_and_deleted(api: httpx.Client) -> None:
    made = {"timeline": "made", "settings": {"lease_ms": "5000"}}
    assert found(api.post(root(api), json=made)) == {"timeline": "made", "broker": 0, "created": True}
    assert found(api.post(root(api), json=made))["created"] is False
    assert found(api.post(root(api), json={"timeline": "made"}), 409)["error"].startswith(
        "timeline 'made' exists with other"
    )
    assert shown(api, "made")["settings"]["lease_ms"] == "5000"
    assert api.patch("/made", json={"settings": {"lease_ms": "7000"}}).status_code == 204
    assert shown(api, "made")["lease_ms"] == 7000
    assert "lease_ms" in found(api.patch("/made", json={"settings": {"lease_ms": "0"}}), 400)["error"]
    assert "unknown setting" in found(api.patch("/made", json={"settings": {"color": "red"}}), 400)["error"]
    assert api.delete("/made").status_code == 204
    eventually(lambda: api.get("/made").status_code == 404, "the timeline is removed")


@pytest.mark.parametrize("name", ["", "a b", "x" * 250, HOSTILE, "__schedule.orders"])
def test_a_name_that_no_timeline_can_have_is_refused(api: httpx.Client, name: str) -> None:
    assert api.post(root(api), json={"timeline": name}).status_code == 400


def test_unknown_timelines_and_messages_are_not_found(broker: Broker, api: httpx.Client) -> None:
    missing = quote(HOSTILE, safe="")
    for path in ("/nowhere", f"/{missing}", "/nowhere/future", "/nowhere/messages"):
        assert api.get(path).status_code == 404, path
    assert api.delete("/nowhere").status_code == 404
    with timeline(broker, "present"):
        assert api.get(f"/present/messages/{missing}").status_code == 404
        assert found(api.get("/present", params={"broker": 7}), 404)["error"].startswith("broker 7 has no timeline")


def test_the_list_has_every_timeline_with_its_messages(broker: Broker, api: httpx.Client) -> None:
    with timeline(broker, "listed.one") as one, timeline(broker, "listed.two"):
        now = time.time()
        one.schedule([Message(b"", now - 5), Message(b"", now + HOUR_S), Message(b"", now + HOUR_S)])
        page = found(api.get(root(api), params={"search": "listed."}))
        rows = [(each["timeline"], each["waiting"], each["available"], each["leased"]) for each in page["timelines"]]
        assert rows == [("listed.one", 2, 1, 0), ("listed.two", 0, 0, 0)]
        assert (page["total"], page["unreachable_brokers"]) == (2, [])
        second = found(api.get(root(api), params={"search": "listed.", "rows": 1, "page": 2}))
        assert [each["timeline"] for each in second["timelines"]] == ["listed.two"]


def test_the_future_is_counted_from_the_first_message_to_the_last(broker: Broker, api: httpx.Client) -> None:
    with timeline(broker, "future") as opened:
        now = round(time.time(), 3)
        opened.schedule([Message(b"", now - 100), *(Message(b"", now + HOUR_S + each) for each in range(10))])
        whole = found(api.get("/future/future", params={"bars": 7}))
        assert sum(whole["counts"]) == whole["total"] == 11
        assert whole["from_ms"] == round(now * 1000) - 100_000
        assert len(whole["counts"]) == 7
        last = shown(api, "future")["last_due_ms"]
        part = found(api.get("/future/future", params={"from_ms": last - 1000, "to_ms": last + 1, "bars": 1}))
        assert part["counts"] == [2]
        waiting = found(api.get("/future/future", params={"status": "waiting"}))
        assert waiting["total"] == 10
        assert (
            "ends before it starts" in found(api.get("/future/future", params={"from_ms": 9, "to_ms": 9}), 400)["error"]
        )
        assert shown(api, "future")["late"] == 1


def test_messages_are_paged_searched_and_filtered(broker: Broker, api: httpx.Client) -> None:
    with timeline(broker, "paged") as opened:
        now = time.time()
        opened.schedule([Message(b"", now + HOUR_S + each, f"m{each:03}", b"key-%d" % each) for each in range(120)])
        opened.schedule([Message(b"", now - 5, "old")])
        first = found(api.get("/paged/messages", params={"rows": 100}))
        assert [each["id"] for each in first["messages"]] == ["old", *(f"m{each:03}" for each in range(99))]
        second = found(api.get("/paged/messages", params={"rows": 100, "after": first["next"]}))
        assert [each["id"] for each in second["messages"]] == [f"m{each:03}" for each in range(99, 120)]
        assert second["next"] is None
        assert ids(api, "paged", search="key-11") == ["m011", *(f"m{each}" for each in range(110, 120))]
        assert ids(api, "paged", search="m007") == ["m007"]
        assert ids(api, "paged", status="available") == ["old"]
        begins = shown(api, "paged")["last_due_ms"]
        assert ids(api, "paged", from_ms=begins) == ["m119"]
        assert ids(api, "paged", search="nothing") == []
        assert api.get("/paged/messages", params={"after": "x"}).status_code == 400


def test_a_search_stops_after_a_bounded_number_of_messages(broker: Broker, api: httpx.Client) -> None:
    with timeline(broker, "searched") as opened:
        now = time.time()
        opened.schedule([Message(b"", now + HOUR_S + each / 1000, f"s{each}") for each in range(10_000)])
        opened.schedule([Message(b"", now + HOUR_S + 10 + each / 1000, f"t{each}") for each in range(10_000)])
        opened.schedule([Message(b"", now + HOUR_S + 30, "wanted!")])
        page = found(api.get("/searched/messages", params={"search": "anted"}))
        assert (page["messages"], page["scanned"]) == ([], 20_000)
        rest = found(api.get("/searched/messages", params={"search": "anted", "after": page["next"]}))
        assert [each["id"] for each in rest["messages"]] == ["wanted!"]
        assert rest["next"] is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": 1}', {"body": '{"a": 1}', "body_base64": None, "is_cut": False}),
        (HOSTILE.encode(), {"body": HOSTILE, "body_base64": None, "is_cut": False}),
        (b"\xff\x00", {"body": None, "body_base64": "/wA=", "is_cut": False}),
        (b"", {"body": "", "body_base64": None, "is_cut": False}),
        ("é".encode() * 40_000, {"body": "é" * 32_768, "body_base64": None, "is_cut": True}),
        (b"x" * 1_048_577, {"body": None, "body_base64": None, "is_cut": True}),
    ],
)
def test_a_message_is_shown_with_its_content(
    broker: Broker, api: httpx.Client, body: bytes, expected: dict[str, Any]
) -> None:
    with timeline(broker, "content", body_bytes_max=2_000_000) as opened:
        opened.schedule([Message(body, time.time() + HOUR_S, HOSTILE, HOSTILE.encode())])
        path = f"/content/messages/{quote(HOSTILE, safe='')}"
        message = found(api.get(path))
        assert {name: message[name] for name in expected} == expected
        assert (message["id"], message["key"], message["bytes"]) == (HOSTILE, HOSTILE, len(body))
        download = api.get(f"{path}/body")
        assert download.content == body
        assert download.headers["content-type"] == "application/octet-stream"
        assert download.headers["content-disposition"].startswith("attachment")
        opened.cancel([HOSTILE])


def test_messages_are_moved_and_cancelled(broker: Broker, api: httpx.Client) -> None:
    with timeline(broker, "changed") as opened, Timeline(broker.grpc, "changed", group="billing") as billing:
        now = time.time()
        opened.schedule([Message(b"", now + HOUR_S, "a"), Message(b"", now + HOUR_S, "b")])
        assert counts(api, "changed") == (2, 0, 0)
        billing.schedule([Message(b"", now + HOUR_S, "c")])
        due_ms = round(now * 1000) + 5 * HOUR_S * 1000
        moved = found(api.post("/changed/moves", json={"ids": ["a", "c", "none"], "due_ms": due_ms}))["outcomes"]
        assert [each["error"] is None for each in moved] == [True, True, False]
        assert found(api.get("/changed/messages/c"))["scheduled_ms"] == due_ms
        cancelled = found(api.post("/changed/cancellations", json={"ids": ["b", "c", "b"]}))["outcomes"]
        assert [(each["id"], each["error"]) for each in cancelled] == [("b", None), ("c", None)]
        assert ids(api, "changed") == ["a"]
        assert counts(api, "changed") == (1, 0, 0)


def test_a_lease_is_released_for_another_consumer(broker: Broker, api: httpx.Client) -> None:
    with timeline(broker, "released", lease_ms=600_000) as opened:
        opened.schedule([Message(b"", time.time() - 1, "a"), Message(b"", time.time() + HOUR_S, "b")])
        work = opened.work(consumer_id="one", max_in_flight=1, idle_ms=20_000)
        lease = next(work)
        assert lease.id == "a"
        held = found(api.get("/released/messages/a"))
        assert (held["status"], held["holder"], held["attempts"]) == ("leased", "one", 1)
        assert held["lease_ends_ms"] > held["now_ms"]
        member = shown(api, "released")["members"][0]
        assert (member["consumer"], member["share"], member["leased"], member["state"]) == ("one", 1.0, 1, "full")
        stuck = found(api.post("/released/cancellations", json={"ids": ["a"]}))["outcomes"][0]["error"]
        assert "hold" in stuck
        outcomes = found(api.post("/released/releases", json={"ids": ["a", "b", "none"]}))["outcomes"]
        assert [each["error"] is None for each in outcomes] == [True, False, False]
        again = next(work)
        assert (again.id, again.attempts) == ("a", 2)
        again.complete()
        work.close()


def dead_letters(broker: Broker, name: str, count: int) -> None:
    """Fill NAME.dead with messages of NAME: one lease each is allowed, and all end."""
    with timeline(broker, name, lease_ms=50, max_attempts=1, dead_letter=f"timeline:{name}.dead") as opened:
        opened.schedule([Message(b"%d" % each, time.time() - 1, f"d{each}") for each in range(count)])
        work = opened.work(max_in_flight=count, idle_ms=5_000)
        for _ in range(count):
            next(work)
        work.close()


def test_dead_letters_return_to_their_timeline(broker: Broker, api: httpx.Client) -> None:
    dead_letters(broker, "failing", 5)
    eventually(lambda: shown(api, "failing")["dead_letters"]["messages"] == 5, "all are dead letters")
    assert shown(api, "failing.dead")["dead_letters_of"] == ["failing"]
    with Timeline(broker.grpc, "failing.dead") as dead:
        dead.schedule([Message(b"", time.time() - 1, "d9@failing.99")])
    listed = found(api.get("/failing.dead/messages"))["messages"]
    assert sorted(str(each["origin"]) for each in listed) == ["None", *["failing"] * 5]
    preview = found(api.post("/failing.dead/retries", json={"preview": True}))
    assert (preview["retried"], preview["kept"], preview["next"]) == (5, 1, None)
    assert "come from no timeline" in preview["reasons"][0]
    eventually(lambda: counts(api, "failing.dead") == (0, 6, 0), "a preview changes nothing")
    one = next(each["id"] for each in listed if each["id"].startswith("d3@"))
    assert found(api.post("/failing.dead/retries", json={"ids": [one]}))["retried"] == 1
    rest = found(api.post("/failing.dead/retries", json={}))
    assert (rest["retried"], rest["kept"]) == (4, 1)
    with Timeline(broker.grpc, "failing") as opened:
        opened.alter(lease_ms=60_000)
        work = opened.work(idle_ms=5_000)
        again = {lease.id: lease for lease in (next(work) for _ in range(5))}
        assert set(again) == {f"d{each}" for each in range(5)}
        for lease in again.values():
            lease.complete()
        work.close()
    assert ids(api, "failing.dead") == ["d9@failing.99"]


def test_retries_go_step_by_step(broker: Broker, api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.servers.http.api.timeline_changes.RETRIES_MAX", 2)
    dead_letters(broker, "stepping", 5)
    eventually(lambda: shown(api, "stepping")["dead_letters"]["messages"] == 5, "all are dead letters")
    asked: dict[str, Any] = {"to_ms": round(time.time() * 1000) + 1000}
    retried = []
    while True:
        step = found(api.post("/stepping.dead/retries", json=asked))
        retried.append(step["retried"])
        if step["next"] is None:
            break
        asked["after"] = step["next"]
    assert retried == [2, 2, 1]


def test_scheduled_records_are_shown_and_cancelled_under_their_topic(broker: Broker, api: httpx.Client) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topic = NewTopic("later", 1, 1, config={"tidemill.schedule.enable": "true"})
    admin.create_topics([topic])["later"].result(WAIT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    headers = {"tidemill-delay-ms": "3600000", "tidemill-schedule-id": "r1", "x-note": HOSTILE}
    producer.produce("later", HOSTILE.encode(), b"k", headers=headers)
    assert producer.flush(WAIT_S) == 0
    page = found(api.get(root(api), params={"kind": "scheduled"}))["timelines"]
    assert [(each["topic"], each["waiting"]) for each in page] == [("later", 1)]
    name = page[0]["timeline"]
    message = found(api.get(f"/{name}/messages/r1"))
    assert (message["topic"], message["partition"], message["key"], message["body"]) == ("later", 0, "k", HOSTILE)
    assert {"name": "x-note", "value": HOSTILE, "value_base64": None} in message["headers"]
    refused = found(api.patch(f"/{name}", json={"settings": {"lease_ms": "1"}}), 400)
    assert "managed by the broker" in refused["error"]
    assert found(api.post(f"/{name}/cancellations", json={"ids": ["r1"]}))["outcomes"][0]["error"] is None
    assert ids(api, name) == []


def test_pages_show_hostile_text_as_text(broker: Broker) -> None:
    with timeline(broker, "hostile") as opened, httpx.Client(base_url=broker.http, timeout=WAIT_S) as browser:
        opened.schedule([Message(HOSTILE.encode(), time.time() + HOUR_S, HOSTILE, HOSTILE.encode())])
        for path in (
            "/timelines",
            "/timelines/hostile",
            "/timelines/hostile?from_ms=0&to_ms=1000",
            "/timelines/hostile/messages",
            f"/timelines/hostile/messages/{quote(HOSTILE, safe='')}",
            "/timelines/hostile/settings",
            f"/timelines/{quote(HOSTILE, safe='')}",
        ):
            page = browser.get(path, headers={"accept": "text/html"})
            assert "<script>alert" not in page.text, path
            assert page.status_code == (404 if quote(HOSTILE, safe="") in path and "messages" not in path else 200), (
                path
            )


def test_bad_requests_change_nothing(broker: Broker, api: httpx.Client) -> None:
    with timeline(broker, "kept") as opened:
        opened.schedule([Message(b"", time.time() + HOUR_S, "a")])
        for path, body in (
            ("moves", {"ids": ["a"], "due_ms": -1}),
            ("moves", {"ids": ["a"], "due_ms": 253_402_300_800_000}),
            ("moves", {"ids": [], "due_ms": 5}),
            ("cancellations", {"ids": ["a"], "force": True}),
            ("cancellations", {"ids": ["a"] * 1_001}),
            ("cancellations", {"ids": ["x" * 201]}),
            ("retries", {"ids": ["a"], "after": "1"}),
            ("releases", {}),
        ):
            assert api.post(f"/kept/{path}", json=body).status_code == 400, (path, body)
        lone = api.post(
            "/kept/cancellations", content=b'{"ids": ["\\ud800"]}', headers={"content-type": "application/json"}
        )
        assert lone.status_code == 400
        assert ids(api, "kept") == ["a"]


def test_a_read_only_console_changes_nothing() -> None:
    flags = {"timelines": "memory:", "console-readonly": "true"}
    with Broker(flags=flags) as broker, httpx.Client(base_url=f"{broker.http}/api/v1/timelines") as api:
        with timeline(broker, "shown") as opened:
            opened.schedule([Message(b"", time.time() + HOUR_S, "a")])
        assert found(api.post("/shown/cancellations", json={"ids": ["a"]}), 403)["error"].startswith("this console is")
        assert api.delete("/shown").status_code == 403
        assert ids(api, "shown") == ["a"]
        page = httpx.get(f"{broker.http}/timelines/shown/messages", headers={"accept": "text/html"})
        assert "cancel-messages" not in page.text
