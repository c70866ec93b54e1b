"""Every page of the console in a real browser: light and dark, wide and on a phone, without errors of any kind.

Every route of a page must have an example here, so a new page is covered from its first day.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from tests.support.chromium import console_page
from tests.support.console_groups import ODD_NAME, fill, read_some, segment
from tests.support.pipeline_reports import pipeline_report, query_report, send_report
from tests.support.share_members import share_member

from tidemill import Message, Timeline
from tidemill.client.kafka import KafkaClient
from tidemill.servers.http.console.pages import PAGES
from tidemill.testing import Broker

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

SCRIPT = "<script>document.title = 'stolen'</script><img src=x onerror=alert(1)>"
ODD_TIMELINE = "tea-time_2026.eu"
EXAMPLES = {
    "GET /": "/",
    "GET /topics": "/topics",
    "GET /topics/{topic}": "/topics/orders",
    "GET /topics/{topic}/partitions": "/topics/orders/partitions",
    "GET /topics/{topic}/settings": "/topics/orders/settings",
    "GET /topics/{topic}/groups": "/topics/orders/groups",
    "GET /topics/{topic}/producers": "/topics/orders/producers",
    "GET /topics/{topic}/records": "/topics/orders/records",
    "GET /topics/{topic}/records/{partition}/{offset}": "/topics/orders/records/1/3",
    "GET /groups": "/groups",
    "GET /groups/{name}": f"/groups/{segment(ODD_NAME)}",
    "GET /timelines": "/timelines",
    "GET /timelines/{name}": f"/timelines/{ODD_TIMELINE}",
    "GET /timelines/{name}/messages": f"/timelines/{ODD_TIMELINE}/messages",
    "GET /timelines/{name}/messages/{id}": f"/timelines/{ODD_TIMELINE}/messages/{segment(SCRIPT)}",
    "GET /timelines/{name}/settings": f"/timelines/{ODD_TIMELINE}/settings",
    "GET /sql": "/sql?query=SELECT%201",
    "GET /security": "/security",
    "GET /security/users": "/security/users",
    "GET /security/acls": "/security/acls",
    "GET /security/quotas": "/security/quotas",
    "GET /security/rights": "/security/rights?principal=User:ada",
    "GET /pipelines": "/pipelines",
    "GET /pipelines/{name}": f"/pipelines/{segment(SCRIPT)}",
    "GET /logs": "/logs",
    "GET /cluster": "/cluster",
    "GET /cluster/rebalance": "/cluster/rebalance",
    "GET /cluster/brokers/{broker}": "/cluster/brokers/0",
}
SHARE_GROUP = f"share {SCRIPT}"
PATHS = {**EXAMPLES, "a share group": f"/groups/{segment(SHARE_GROUP)}"}
CHORDS = {
    "o": "Overview",
    "t": "Topics",
    "g": "Groups",
    "i": "Timelines",
    "p": "Pipelines",
    "q": "SQL",
    "c": "Cluster",
    "s": "Security",
    "l": "Logs",
}
AXE_OPTIONS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], "resultTypes": ["violations"]}
PHONE = {"width": 390, "height": 844}
LINKS = "[...document.querySelectorAll('a[href]')].map(each => new URL(each.getAttribute('href'), location).href)"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker whose names, keys, values and headers are hostile to HTML."""
    with Broker(flags={"timelines": "sqlite:"}) as running:
        fill(running.bootstrap_servers, "orders", partitions=2)
        fill(running.bootstrap_servers, "revenue")
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        producer.produce("orders", SCRIPT, SCRIPT, headers={SCRIPT: SCRIPT.encode()})
        producer.produce("orders", None, b"gone")
        assert producer.flush(30) == 0
        read_some(running.bootstrap_servers, ODD_NAME, "orders", 4, **{"client.id": SCRIPT})
        with KafkaClient({"bootstrap.servers": running.bootstrap_servers}) as client:
            send_report(client, pipeline_report(SCRIPT, queries=[query_report(SCRIPT, error=SCRIPT, group=ODD_NAME)]))
        with Timeline(running.grpc, ODD_TIMELINE) as opened:
            opened.create()
            opened.schedule([Message(SCRIPT.encode(), 4_000_000_000.0, SCRIPT, SCRIPT.encode())])
        with share_member(running.bootstrap_servers, SHARE_GROUP, "orders", 5):
            yield running


@pytest.fixture(scope="module")
def page(broker: Broker) -> Iterator["Page"]:
    with console_page(broker.http) as opened:
        yield opened


@contextmanager
def requests_of(page: "Page") -> Iterator[list[str]]:
    """The addresses that the page asks for, during the block."""
    asked: list[str] = []

    def note(request: "Request") -> None:
        asked.append(request.url)

    page.on("request", note)
    try:
        yield asked
    finally:
        page.remove_listener("request", note)


def violations(page: "Page") -> list[str]:
    found: dict[str, Any] = Axe().run(page, options=AXE_OPTIONS).response
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {[node['target'] for node in each['nodes'][:3]]}"
        for each in found["violations"]
    ]


def test_every_route_of_a_page_has_an_example() -> None:
    assert set(EXAMPLES) == {each for each in PAGES if each.startswith("GET ")}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("route", PATHS)
def test_a_page_is_accessible_fits_and_runs_no_foreign_script(
    page: "Page", broker: Broker, route: str, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": 1280, "height": 900})
    with requests_of(page) as asked:
        answer = page.goto(PATHS[route])
        assert answer is not None
        assert answer.status == 200
        assert violations(page) == []
        assert page.evaluate(OVERFLOW) <= 0
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        assert page.evaluate(OVERFLOW) <= 0, f"{route} is wider than a phone"
        assert violations(page) == []
    assert page.title().endswith(" - Tidemill")
    assert [each for each in asked if not each.startswith(broker.http)] == []


def test_the_keyboard_reaches_every_page(page: "Page") -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto("/groups")
    for key, heading in CHORDS.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.get_by_role("heading", name=heading, level=1, exact=True).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_every_link_of_a_page_leads_to_a_page(page: "Page", broker: Broker) -> None:
    links: set[str] = set()
    for path in PATHS.values():
        page.goto(path)
        links.update(page.evaluate(LINKS))
    own = sorted({each.split("#")[0].split("?")[0] for each in links if each.startswith(broker.http)})
    broken = {each: page.request.get(each).status for each in own}
    assert {each: status for each, status in broken.items() if status != 200} == {}
    foreign = [each for each in links if not each.startswith(broker.http)]
    assert foreign == [], json.dumps(foreign)
