"""The page SQL in a real browser: run, chart, download, errors, history, the keyboard only, hostile values."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.chromium import console_page

from tidemill.testing import Broker

if TYPE_CHECKING:
    from playwright.sync_api import Page

WAIT_S = 60.0
HOSTILE = "<img src=x onerror=alert(1)>"
LONG = "x" * 5_000
COUNT = "SELECT toStartOfMinute(timestamp) AS minute, count() AS records FROM messages GROUP BY minute"
ENDLESS = "SELECT count() FROM numbers_mt(100000000000) WHERE NOT ignore(sipHash64(number))"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, config={"retention.ms": "-1"})])["orders"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for minute, (key, value) in enumerate([(HOSTILE, "=1+1"), (None, LONG), ("a", ""), ("b", "two\nlines")]):
            producer.produce("orders", value, key=key, timestamp=1_700_000_000_000 + minute * 60_000)
        assert producer.flush(WAIT_S) == 0
        httpx.post(f"{running.http}/api/v1/sql", json={"query": "SELECT 1"}, timeout=WAIT_S)  # the engine loads
        yield running


@pytest.fixture
def page(broker: Broker) -> Iterator["Page"]:
    with console_page(broker.http) as opened:
        opened.on("dialog", lambda dialog: pytest.fail(f"a script has run: {dialog.message}"))
        yield opened


def run(page: "Page", query: str) -> None:
    page.locator("#sql-text").fill(query)
    page.locator("#sql-text").press("Control+Enter")


def test_a_result_is_shown_as_a_table_and_as_a_chart(page: "Page") -> None:
    page.goto("/sql")
    run(page, "SELECT key, value, offset FROM messages ORDER BY offset")
    rows = page.locator("#sql-table tbody tr")
    rows.nth(3).wait_for()
    assert rows.nth(0).locator("td").all_inner_texts() == [HOSTILE, "=1+1", "0"]
    assert rows.nth(1).locator(".sql-null").inner_text() == "NULL"
    assert rows.nth(3).locator("td").nth(1).inner_text() == "two⏎lines"
    rows.nth(1).get_by_role("button", name="Show all of value").click()
    assert page.locator("#cell-text").inner_text() == LONG
    page.keyboard.press("Escape")
    run(page, COUNT)
    page.locator("#sql-table th", has_text="minute").wait_for()
    page.get_by_role("button", name="Chart", exact=True).click()
    page.get_by_role("img", name="records by minute").wait_for()
    assert len((page.locator("#sql-drawing svg.chart").get_attribute("data-places") or "").split()) == 4
    page.locator("#sql-axes select[name=kind]").select_option("bar")
    page.locator("#sql-drawing rect.bar").nth(3).wait_for()
    run(page, "SELECT -1 AS below, 'x' AS label")
    page.locator("#sql-table th", has_text="below").wait_for()
    page.get_by_role("button", name="Chart", exact=True).click()
    page.get_by_text("below has values below zero").wait_for()


def test_hostile_values_are_text_in_a_chart(page: "Page") -> None:
    page.goto("/sql")
    run(page, f"SELECT '{HOSTILE}' AS `<b>name</b>`, 5 AS n")
    page.locator("#sql-table td", has_text=HOSTILE).wait_for()
    page.get_by_role("button", name="Chart", exact=True).click()
    page.locator("#sql-drawing rect.bar").wait_for()
    assert page.locator("#sql-result img, #sql-result b").count() == 0


def test_a_result_is_cut_and_downloaded_whole(page: "Page", tmp_path: Path) -> None:
    page.goto("/sql")
    page.locator("#sql-limit").select_option("100")
    run(page, "SELECT number, toString(-toInt64(number)) AS text FROM numbers(250)")
    page.get_by_text("the first 100 rows in").wait_for()
    page.get_by_text("The query has more than 100 rows").wait_for()
    found = {}
    for name in ("CSV", "JSON lines"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).click()
        waiting.value.save_as(tmp_path / name)
        found[waiting.value.suggested_filename] = (tmp_path / name).read_text()
    rows = list(csv.reader(found["result.csv"].splitlines()))
    assert (len(rows), rows[:3]) == (251, [["number", "text"], ["0", "0"], ["1", "'-1"]])
    lines = found["result.jsonl"].splitlines()
    assert (len(lines), json.loads(lines[1])) == (250, {"number": 1, "text": "-1"})


def test_large_results_are_shown_in_parts(page: "Page") -> None:
    page.goto("/sql")
    run(page, "SELECT number + 9007199254740993 AS exact FROM numbers(700)")
    page.get_by_text("500 of 700 rows").wait_for()
    assert page.locator("#sql-table tbody td").first.inner_text() == "9007199254740993"
    page.get_by_role("button", name="Show 200 more").click()
    page.locator("#sql-table tbody tr").nth(699).wait_for()


def test_an_error_selects_its_place(page: "Page") -> None:
    page.goto("/sql")
    run(page, "SELECT *\nFROM messages WHER topic = 'orders'")
    page.get_by_role("alert").get_by_text("(line 2, col 20)").wait_for()
    text = page.locator("#sql-text")
    assert text.evaluate("each => each.value.slice(each.selectionStart, each.selectionEnd)") == "topic"


def test_a_link_fills_the_editor_and_runs_nothing(page: "Page") -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.method} {request.url}"))
    page.goto("/sql?query=SELECT%2042%20AS%20answer")
    assert page.locator("#sql-text").input_value() == "SELECT 42 AS answer"
    page.get_by_role("button", name="Run").wait_for()
    assert [each for each in asked if each.startswith("POST")] == []
    page.get_by_role("button", name="Run").click()
    page.locator("#sql-table td", has_text="42").wait_for()
    assert len([each for each in asked if each.startswith("POST")]) == 1


def test_a_query_runs_from_history_with_the_keyboard_only(page: "Page") -> None:
    page.goto("/sql")
    page.get_by_role("button", name="Insert messages").focus()
    page.locator("#sql-text").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("SELECT count() AS n FROM ")
    page.get_by_role("button", name="Insert messages").press("Enter")
    assert page.locator("#sql-text").input_value() == "SELECT count() AS n FROM messages"
    page.keyboard.press("Control+Enter")
    page.locator("#sql-table td", has_text="4").wait_for()
    page.reload()
    assert page.locator("#sql-text").input_value() == "SELECT count() AS n FROM messages"
    page.keyboard.press("Tab")
    page.get_by_role("button", name="History").press("Enter")
    past = page.locator("#sql-history button")
    past.first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")
    page.locator("#sql-table td", has_text="4").wait_for()
    assert page.evaluate("JSON.parse(localStorage.getItem('sql-history'))") == ["SELECT count() AS n FROM messages"]


def test_a_query_is_cancelled(page: "Page") -> None:
    page.goto("/sql")
    run(page, ENDLESS)
    page.get_by_role("button", name="Cancel").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("Cancelled.").wait_for()
    run(page, "SELECT 42 AS answer")
    page.locator("#sql-table td", has_text="42").wait_for()


def test_the_page_fits_a_phone(broker: Broker) -> None:
    with console_page(broker.http, width=390, height=844) as page:
        page.goto("/sql")
        run(page, "SELECT * FROM messages ORDER BY offset")
        page.locator("#sql-table tbody tr").nth(3).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
