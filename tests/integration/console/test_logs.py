"""The log in the JSON API and in the console: all brokers of a cluster, search, paging, rights, and no secrets."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.support.cluster_processes import running_brokers
from tests.support.waiting import eventually

from tidemill.testing import Broker

WAIT_S = 60.0
EVERYWHERE = (1, 2, 3)
HOSTILE = "<script>alert(1)</script>"
ADMIN, PASSWORD = "admin", "correct-horse"
STRANGER, WRONG = "stranger", "battery-staple"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def warn(broker: Broker, request: pytest.FixtureRequest) -> Any:
    """Logs in the process of the broker, under a logger of this test."""
    del broker
    return structlog.get_logger(f"tidemill.{request.node.name}"[:60])


def get(url: str, path: str = "/api/v1/logs", auth: tuple[str, str] | None = None, **query: Any) -> httpx.Response:
    return httpx.get(f"{url}{path}", params=query, auth=auth, timeout=WAIT_S)


def listed(url: str, **query: Any) -> list[tuple[str, int]]:
    found = get(url, **query).json()
    return [(each["event"], each["count"]) for each in found["events"]]


def test_events_are_selected_by_level_search_time_and_page(broker: Broker, warn: Any) -> None:
    for _ in range(3):
        warn.warning("selected_slow", topic="orders", client_id="Mailer")
    warn.error("selected_failed", topic="payments")
    mine: dict[str, Any] = {"search": "selected_"}
    found = get(broker.http, **mine).json()
    assert listed(broker.http, **mine) == [("selected_failed", 1), ("selected_slow", 3)]
    assert (found["total"], found["warnings"], found["errors"]) == (2, 1, 1)
    assert found["events"][1]["fields"] == [
        {"name": "topic", "value": "orders"},
        {"name": "client_id", "value": "Mailer"},
    ]
    assert found["events"][1]["first_ms"] <= found["events"][1]["last_ms"]
    assert listed(broker.http, **mine, level="error") == [("selected_failed", 1)]
    assert ("selected_slow", 3) in listed(broker.http, search="mailer")
    assert listed(broker.http, **mine, rows=1, page=2) == [("selected_slow", 3)]
    assert listed(broker.http, **mine, rows=1, page=3) == []
    assert listed(broker.http, **mine, since_ms=2**50) == []
    assert listed(broker.http, **mine, broker=0) == [("selected_failed", 1), ("selected_slow", 3)]
    assert get(broker.http, broker=7).json() == {"error": "broker 7 is not running; see the brokers at /cluster"}
    for wrong in ({"level": "info"}, {"page": 0}, {"rows": 10_000}, {"since_ms": -1}, {"search": "x" * 1_000}):
        assert get(broker.http, **wrong).status_code == 400, wrong


def test_the_overview_links_to_recent_errors(broker: Broker, warn: Any) -> None:
    def noted() -> list[tuple[str, str, str]]:
        found = get(broker.http, "/api/v1/overview").json()["attention"]
        return [(each["severity"], each["title"], each["link"]) for each in found]

    warn.warning("overview_slow")
    assert noted() == []
    for _ in range(2):
        warn.error("overview_failed")
    one = [("note", "Broker 0 logged an error", "/logs?level=error&broker=0")]
    eventually(lambda: noted() == one, "the error is not noted")
    warn.error("overview_failed", topic="orders")
    two = [("note", "Broker 0 logged 2 different errors", "/logs?level=error&broker=0")]
    eventually(lambda: noted() == two, "the other error is not noted")
    assert listed(broker.http, level="error", broker=0)[0] == ("overview_failed", 1)


def test_the_page_shows_events_as_text(broker: Broker, warn: Any) -> None:
    try:
        int(HOSTILE)
    except ValueError:
        warn.exception("request_failed", client_id=HOSTILE)
    page = get(broker.http, "/logs", search="request_failed", level="error")
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert page.text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2
    assert "ValueError" in page.text
    assert "No event matches" in get(broker.http, "/logs", search="no such event").text


def test_every_broker_shows_the_events_of_all() -> None:
    # A broker warns at its start that it cannot open so many files.
    with running_brokers(settings={"max.connections": str(2**31 - 1)}, http="127.0.0.1:0") as cluster:
        urls = {number: f"http://{cluster.servers[number]['http']}" for number in EVERYWHERE}

        def seen(number: int) -> Any:
            found = get(urls[number], search="connections_limited").json()
            return found["total"], [each["broker"] for each in found["events"]], found["unreachable_brokers"]

        eventually(lambda: sorted(seen(1)[1]) == [1, 2, 3], "a broker has logged no warning", within_s=WAIT_S)
        eventually(lambda: seen(1) == seen(2) == seen(3), "the brokers show different events", within_s=WAIT_S)
        assert {each["broker"] for each in get(urls[1], broker=3).json()["events"]} == {3}
        page = get(urls[3], "/logs").text
        assert all(f"<td>Broker {number}</td>" in page for number in EVERYWHERE)
        cluster.stop(2)
        eventually(lambda: seen(1)[2] == [2], "the stopped broker is not named", within_s=WAIT_S)
        assert "Broker 2 did not answer" in get(urls[1], "/logs").text


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    """A broker with logins, and a user without any right."""
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "connection.failed.authentication.delay.ms": "0"}
    with Broker(process=True, settings=settings, admin_password=PASSWORD) as running:
        login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-256"}
        user = {"sasl.username": ADMIN, "sasl.password": PASSWORD}
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers, **login, **user})
        made = UserScramCredentialUpsertion(
            STRANGER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), WRONG.encode()
        )
        admin.alter_user_scram_credentials([made])[STRANGER].result(WAIT_S)
        yield running


def test_secrets_are_not_kept(guarded: Broker) -> None:
    assert get(guarded.http, auth=(f"eve {HOSTILE}", WRONG)).status_code == 401
    admin = (ADMIN, PASSWORD)
    found = get(guarded.http, auth=admin)
    names = [field for event in found.json()["events"] if event["event"] == "login_failed" for field in event["fields"]]
    assert {"name": "who", "value": f"eve {HOSTILE}"} in names
    page = get(guarded.http, "/logs", auth=admin)
    assert HOSTILE not in page.text
    for text in (found.text, page.text):
        assert PASSWORD not in text
        assert WRONG not in text


@pytest.mark.parametrize("path", ["/api/v1/logs", "/logs", "/api/v1/sql/tables"])
def test_a_user_without_rights_sees_no_log_and_no_tables(guarded: Broker, path: str) -> None:
    assert get(guarded.http, path).status_code == 401
    assert get(guarded.http, path, auth=(STRANGER, WRONG)).status_code == 403
    assert get(guarded.http, path, auth=(ADMIN, PASSWORD)).status_code == 200


def test_a_user_without_rights_queries_and_draws_nothing(guarded: Broker) -> None:
    chart = {"kind": "bar", "label_name": "a", "labels": ["x"], "value_name": "b", "values": [1]}
    for path, body in (("/api/v1/sql", {"query": "SELECT 1"}), ("/sql/chart", chart)):
        answer = httpx.post(f"{guarded.http}{path}", json=body, auth=(STRANGER, WRONG), timeout=WAIT_S)
        assert (answer.status_code, "may not read or describe" in answer.text) == (403, True)
    page = get(guarded.http, "/sql", auth=(STRANGER, WRONG))
    assert (page.status_code, "queries are refused" in page.text) == (200, True)
