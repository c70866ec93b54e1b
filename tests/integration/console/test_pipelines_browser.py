"""The pages of pipelines in a real browser: live numbers, a graph with links, hostile reports, forgetting."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from tests.support.chromium import console_page
from tests.support.pipeline_reports import pipeline_report, query_report, send_report

from tidemill.client.kafka import KafkaClient
from tidemill.testing import Broker
from tidemill.wire.pipeline_report import DatasetNode

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "\"><img src=x onerror=alert(1)><script>alert('2')</script>"
PHONE = 390


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[KafkaClient]:
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as opened:
        yield opened


@pytest.fixture
def page(broker: Broker) -> Iterator["Page"]:
    with console_page(broker.http) as opened:
        yield opened


def test_a_pipeline_is_followed_from_its_first_report_until_it_is_forgotten(page: "Page", client: KafkaClient) -> None:
    page.goto("/pipelines")
    page.get_by_text("No pipeline has reported yet").wait_for()
    page.get_by_text("tidemill pipeline init shop").wait_for()
    send_report(client, pipeline_report())
    page.get_by_role("link", name="shop").click()  # the list is live
    page.wait_for_url("**/pipelines/shop")
    page.locator(".tile", has_text="Lag").get_by_text("7", exact=True).wait_for()
    send_report(client, pipeline_report(queries=[query_report(lag=12_345)]))
    page.locator(".tile", has_text="Lag").get_by_text("12,345", exact=True).wait_for()
    assert page.get_by_role("button", name="Forget pipeline").count() == 0
    send_report(client, pipeline_report(state="failed", error="revenue: the disk\nis full"))
    page.locator("#last-error").get_by_text("is full").wait_for()
    page.reload()
    page.get_by_role("button", name="Forget pipeline").click()
    page.locator("#forget-pipeline").get_by_role("button", name="Forget pipeline").click()
    page.wait_for_url("**/pipelines")
    page.get_by_text("No pipeline has reported yet").wait_for()


def test_the_graph_leads_to_topics_by_keyboard(page: "Page", client: KafkaClient) -> None:
    send_report(client, pipeline_report("graphed"))
    page.goto("/pipelines/graphed")
    graph = page.locator(".dataset-graph")
    assert graph.locator(".edge").count() == 2
    assert graph.get_by_role("link").count() == 2
    page.get_by_text("Show as text").first.click()
    page.get_by_text("topic revenue reads transformation totals").last.wait_for()
    graph.get_by_role("link").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/orders")


def test_hostile_reports_are_text(page: "Page", client: KafkaClient) -> None:
    """Scripts and blocked resources would fail the test."""
    datasets = [
        DatasetNode(kind="topic", name="orders", detail=HOSTILE),
        DatasetNode(kind="transformation", name=HOSTILE, detail=HOSTILE, reads=[0]),
    ]
    query = query_report(HOSTILE, group=HOSTILE, sink=HOSTILE, state="failed", error=f"own {HOSTILE}")
    fields = {"origin": HOSTILE, "host": HOSTILE, "run": HOSTILE, "error": HOSTILE, "state": "failed"}
    report = pipeline_report(HOSTILE, queries=[query], datasets=datasets, **fields)
    send_report(client, report)
    page.goto("/pipelines")
    page.locator("td").get_by_text("onerror=alert(1)").first.wait_for()
    page.goto(f"/pipelines/{quote(HOSTILE, safe='')}")
    page.get_by_role("heading", name=HOSTILE).wait_for()
    page.get_by_text(f"own {HOSTILE}").wait_for()
    assert page.locator("img[src='x']").count() == 0
    page.get_by_role("button", name="Forget pipeline").click()
    page.locator("#forget-pipeline").get_by_role("button", name="Forget pipeline").click()
    page.wait_for_url("**/pipelines")


def test_the_pages_fit_a_phone(broker: Broker, client: KafkaClient) -> None:
    send_report(client, pipeline_report("small"))
    with console_page(broker.http, width=PHONE) as page:
        for path in ("/pipelines", "/pipelines/small"):
            page.goto(path)
            page.get_by_role("heading").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
