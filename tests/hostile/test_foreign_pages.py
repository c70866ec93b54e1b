"""A web page of another site that tries to use the HTTP server, by DNS rebinding and across origins."""

from collections.abc import Iterator

import httpx
import pytest

from tidemill.testing import Broker

WAIT_S = 60.0
PATHS = (
    "/",
    "/metrics",
    "/health",
    "/api/status",
    "/api/topics",
    "/api/timelines",
    "/api/tables/groups",
    "/no/such/page",
)
QUESTION = {"query": "SELECT 1"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        Broker(flags={"http-hosts": "console.example.com"}) as broker,
        httpx.Client(base_url=broker.http, timeout=WAIT_S) as client,
    ):
        yield client


def test_a_rebound_name_gets_nothing(client: httpx.Client) -> None:
    for path in PATHS:
        answer = client.get(path, headers={"host": "evil.example:8080"})
        assert answer.status_code == 403, path
        assert "--http-hosts" in answer.text
        assert "evil.example" in answer.text
    answer = client.post("/api/v1/sql", json=QUESTION, headers={"host": "evil.example"})
    assert answer.status_code == 403
    assert list(answer.json()) == ["error"]


def test_another_sites_page_cannot_ask(client: httpx.Client) -> None:
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert client.post("/api/v1/sql", json=QUESTION, headers=headers).status_code == 403
        assert client.get("/api/topics", headers=headers).status_code == 403


def test_configured_names_and_probes_come_in(client: httpx.Client) -> None:
    assert client.get("/metrics", headers={"host": "Console.Example.Com:80"}).status_code == 200
    assert client.get("/health/live", headers={"host": "10.9.8.7"}).status_code == 200
    assert client.get("/api/topics").status_code == 200
    own = {"origin": str(client.base_url).rstrip("/")}
    assert client.get("/api/topics", headers=own).status_code == 200
    assert "access-control-allow-origin" not in client.get("/api/topics", headers=own).headers


def test_a_bad_name_in_the_settings_is_refused_at_the_start() -> None:
    with pytest.raises(Exception, match="is not a host name"), Broker(flags={"http-hosts": "a b:80"}):
        pass
