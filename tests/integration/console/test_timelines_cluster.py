"""Brokers of one cluster show and change each other's timelines: their own ones, and those that they share."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.postgres import running_postgres
from tests.support.waiting import eventually

from tidemill import Message, Timeline

WAIT_S = 30.0
HOUR_S = 3_600
ANY = "127.0.0.1:0"


@contextmanager
def apis(brokers: Brokers) -> Iterator[dict[int, httpx.Client]]:
    """A client of each broker's API."""
    with ExitStack() as opened:
        yield {
            number: opened.enter_context(httpx.Client(base_url=f"http://{servers['http']}/api/v1", timeout=WAIT_S))
            for number, servers in brokers.servers.items()
        }


def found(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def timeline(brokers: Brokers, number: int, name: str) -> Timeline:
    return Timeline(str(brokers.servers[number]["grpc"]), name)


def rows(api: httpx.Client) -> list[tuple[str, int | None, int | None]]:
    return [(each["timeline"], each["broker"], each["waiting"]) for each in found(api.get("/timelines"))["timelines"]]


def test_every_broker_shows_and_changes_the_timelines_of_the_others() -> None:
    with running_brokers(2, timelines="sqlite:", grpc=ANY, http=ANY) as brokers, apis(brokers) as api:
        due = time.time() + HOUR_S
        for number, name in ((1, "first"), (2, "second"), (1, "both"), (2, "both")):
            with timeline(brokers, number, name) as opened:
                opened.create()
                opened.schedule([Message(b"%d" % number, due, f"{name}-{number}")])
        expected = [("both", 1, 1), ("both", 2, 1), ("first", 1, 1), ("second", 2, 1)]
        assert rows(api[1]) == rows(api[2]) == expected
        assert found(api[1].get("/timelines/second"))["broker"] == 2
        assert found(api[1].get("/timelines/second/messages/second-2"))["body"] == "2"
        whole = [found(each.get("/timelines/both", params={"broker": 2})) for each in api.values()]
        assert [(each["brokers"], each["broker"], each["waiting"]) for each in whole] == [([1, 2], 2, 1)] * 2
        moved = {"ids": ["both-2"], "due_ms": round(due * 1000) + 5, "broker": 2}
        assert found(api[1].post("/timelines/both/moves", json=moved))["outcomes"][0]["error"] is None
        cancelled = found(api[1].post("/timelines/second/cancellations", json={"ids": ["second-2"]}))
        assert cancelled["outcomes"] == [{"id": "second-2", "error": None}]
        assert found(api[2].get("/timelines/second/messages"))["messages"] == []
        made = found(api[1].post("/timelines", json={"timeline": "there", "broker": 2}))
        assert made == {"timeline": "there", "broker": 2, "created": True}
        assert api[1].delete("/timelines/there").status_code == 204
        brokers.kill(2)
        eventually(lambda: found(api[1].get("/timelines"))["unreachable_brokers"] == [2], "the other broker is missing")
        assert rows(api[1]) == [("both", 1, 1), ("first", 1, 1)]
        assert api[1].get("/timelines/second").status_code in {404, 503}


def test_a_record_that_waits_in_the_replicated_journal_is_cancelled_by_any_broker() -> None:
    settings = {"tidemill.tend.interval.ms": "200", "tidemill.waiting.topic.num.partitions": "1"}
    with running_brokers(2, settings, timelines="sqlite:", grpc=ANY, http=ANY) as brokers, apis(brokers) as api:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        topic = NewTopic("later", 1, replication_factor=2, config={"tidemill.schedule.enable": "true"})
        admin.create_topics([topic])["later"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": brokers.bootstrap})
        for one in ("r1", "r2"):
            headers = {"tidemill-delay-ms": "3600000", "tidemill-schedule-id": one}
            producer.produce("later", b"value", headers=headers)
        assert producer.flush(WAIT_S) == 0
        for each in api.values():
            assert [(row[0], row[2]) for row in rows(each)] == [("__waiting.later", 2)]
        path = "/timelines/__waiting.later"
        for number, one in ((1, "r1"), (2, "r2")):
            outcome = found(api[number].post(f"{path}/cancellations", json={"ids": [one]}))
            assert outcome["outcomes"] == [{"id": one, "error": None}]
        assert found(api[1].get(f"{path}/messages"))["messages"] == []
        assert api[1].post(f"{path}/moves", json={"ids": ["r1"], "due_ms": 5}).status_code == 400


@pytest.mark.parametrize("storage", ["postgres", "replicated"])
def test_brokers_show_a_shared_timeline_once(storage: str) -> None:
    with (
        nullcontext() if storage == "replicated" else running_postgres() as postgres,
        running_brokers(
            2, timelines=postgres.new_database() if postgres else "replicated:", grpc=ANY, http=ANY
        ) as brokers,
        apis(brokers) as api,
        timeline(brokers, 1, "shared") as opened,
    ):
        opened.create()
        opened.schedule([Message(b"", time.time() + HOUR_S, "a"), Message(b"", time.time() - 1, "b")])
        eventually(lambda: rows(api[2]) == [("shared", None, 1)], "the other broker sees it")
        assert rows(api[1]) == [("shared", None, 1)]
        work = opened.work(consumer_id="one", lease_ms=60_000, idle_ms=20_000)
        assert next(work).id == "b"
        for each in api.values():
            view = found(each.get("/timelines/shared"))
            assert (view["brokers"], view["broker"]) == ([1, 2], None)
            assert [(one["consumer"], one["broker"], one["leased"]) for one in view["members"]] == [("one", 1, 1)]
        released = found(api[2].post("/timelines/shared/releases", json={"ids": ["b"]}))
        assert released["outcomes"][0]["error"] is None
        again = next(work)
        assert (again.id, again.attempts) == ("b", 2)
        again.complete()
        work.close()
        assert (
            found(api[2].post("/timelines/shared/cancellations", json={"ids": ["a"]}))["outcomes"][0]["error"] is None
        )
        assert found(api[1].get("/timelines/shared/messages"))["messages"] == []
