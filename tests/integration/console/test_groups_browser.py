"""The pages of consumer groups in a real browser: the lag moves, offsets are reset, a record is skipped."""

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.support.chromium import console_page
from tests.support.console_groups import (
    CONSUMER,
    ODD_NAME,
    RECORDS,
    add,
    commit,
    fill,
    member,
    read_some,
    segment,
)
from tests.support.waiting import eventually

from tidemill.testing import Broker

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

HOSTILE_CLIENT = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def page(broker: Broker) -> Iterator["Page"]:
    with console_page(broker.http) as opened:
        yield opened


def committed(broker: Broker, group: str) -> list[int]:
    found = httpx.get(f"{broker.http}/api/v1/groups/{segment(group)}").json()
    return [each["committed"] for each in found["partitions"]]


def sorted_lag(page: "Page") -> str:
    return page.locator("table").get_by_role("row").nth(1).inner_text()


def test_groups_are_searched_filtered_and_sorted(page: "Page", broker: Broker) -> None:
    page.goto("/groups")
    page.get_by_text("There are no consumer groups yet").wait_for()
    fill(broker.bootstrap_servers, "listed")
    for count in (2, 7):
        read_some(broker.bootstrap_servers, f"list-{count}", "listed", count)
    page.goto("/groups")
    page.keyboard.press("/")
    page.keyboard.type("list-")
    page.keyboard.press("Enter")
    page.wait_for_url("**/groups?**search=list-**")
    page.get_by_role("link", name="Lag").click()
    page.wait_for_url("**sort=lag**")
    eventually(lambda: page.reload() and "list-2" in sorted_lag(page), "the largest lag is first")
    page.get_by_label("State").select_option("Stable")
    page.get_by_text("No group matches").wait_for()
    page.get_by_role("link", name="show all groups").click()
    page.get_by_role("link", name="list-7").click()
    page.wait_for_url("**/groups/list-7")
    page.get_by_role("heading", name="list-7").wait_for()


def test_hostile_names_are_shown_as_text(page: "Page", broker: Broker) -> None:
    fill(broker.bootstrap_servers, "hostile")
    options = {"client.id": HOSTILE_CLIENT, "group.instance.id": "<b>seat</b>"}
    with member(broker.bootstrap_servers, ODD_NAME, "hostile", **options) as consumer:
        commit(consumer, "hostile", 4)
        page.goto("/groups")
        page.get_by_role("link", name="a/b <script>").click()
        page.get_by_role("heading", name=ODD_NAME).wait_for()
        page.get_by_role("cell", name=HOSTILE_CLIENT).first.wait_for()
        page.get_by_role("cell", name="<b>seat</b>", exact=True).wait_for()
        page.get_by_role("button", name=f"Remove {HOSTILE_CLIENT}").click()
        page.locator("#remove-member").get_by_text("<b>seat</b>").wait_for()
        page.keyboard.press("Escape")


def test_the_lag_chart_moves_while_a_consumer_lags(page: "Page", broker: Broker) -> None:
    fill(broker.bootstrap_servers, "lagging")
    stop = threading.Event()

    def produce() -> None:
        while not stop.wait(0.2):
            add(broker.bootstrap_servers, "lagging", records=3)

    producing = threading.Thread(target=produce)
    with member(broker.bootstrap_servers, "laggards", "lagging", CONSUMER) as consumer:
        commit(consumer, "lagging", 5)
        producing.start()
        try:
            page.goto("/groups/laggards")
            page.get_by_role("img", name="Lag in records").wait_for()
            lag = page.locator(".legend strong").first
            first = lag.inner_text()
            eventually(lambda: lag.inner_text() != first, "the chart moves", interval_s=0.5)
            second = lag.inner_text()
            eventually(lambda: lag.inner_text() != second, "the chart moves again", interval_s=0.5)
        finally:
            stop.set()
            producing.join()
        assert page.locator(".tile", has_text="State").inner_text().split() == ["State", "Stable"]


def test_offsets_are_reset_after_a_preview(page: "Page", broker: Broker) -> None:
    fill(broker.bootstrap_servers, "resets", partitions=2)
    body = {"target": {"to": "offset", "offset": 6}, "topics": [{"topic": "resets"}]}
    httpx.post(f"{broker.http}/api/v1/groups/resetters/offsets", json=body).raise_for_status()
    page.goto("/groups/resetters")
    page.get_by_role("button", name="Reset offsets").first.click()
    dialog = page.locator("#reset")
    dialog.locator("select[name=to]").select_option("shift")
    dialog.locator("input[name=by]").fill("-2")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_text("2 partitions: 4 records are read again, 0 are skipped.").wait_for()
    assert committed(broker, "resetters") == [6, 6]
    dialog.get_by_label("New offset of resets-1").fill("9")
    dialog.get_by_text("2 partitions: 2 records are read again, 3 are skipped.").wait_for()
    dialog.get_by_role("button", name="Reset offsets").click()
    page.get_by_text("The offsets were reset.").wait_for()
    assert committed(broker, "resetters") == [4, 9]


def test_a_reset_is_refused_while_the_group_has_members(page: "Page", broker: Broker) -> None:
    fill(broker.bootstrap_servers, "busy")
    with member(broker.bootstrap_servers, "workers", "busy") as consumer:
        commit(consumer, "busy", 5)
        page.goto("/groups/workers")
        page.get_by_role("button", name="Reset offsets").first.click()
        dialog = page.locator("#reset")
        dialog.get_by_role("button", name="Preview").click()
        dialog.get_by_text("stop them, make the change").wait_for()
        assert dialog.get_by_role("button", name="Reset offsets").is_disabled()
        assert committed(broker, "workers") == [5]


def test_a_record_is_skipped_with_the_keyboard_only(page: "Page", broker: Broker) -> None:
    fill(broker.bootstrap_servers, "poison")
    read_some(broker.bootstrap_servers, "stuck", "poison", 4)
    page.goto("/groups/stuck")
    page.get_by_role("button", name="Skip a record of poison-0").focus()
    page.keyboard.press("Enter")
    page.locator("#skip").get_by_text("key 4").wait_for()
    eventually(lambda: page.evaluate("document.activeElement.textContent") == "Skip record", "the button has the focus")
    page.keyboard.press("Enter")
    page.get_by_text("The record is skipped.").wait_for()
    assert committed(broker, "stuck") == [5]


def test_a_late_answer_does_not_change_which_record_is_skipped(page: "Page", broker: Broker) -> None:
    fill(broker.bootstrap_servers, "late")
    fill(broker.bootstrap_servers, "later")
    for topic in ("late", "later"):
        read_some(broker.bootstrap_servers, "slow", topic, 4)
    held: list[Route] = []
    page.goto("/groups/slow")
    page.route("**/skip", lambda route: route.fallback() if held else held.append(route))
    page.get_by_role("button", name="Skip a record of late-0").click()
    eventually_in(page, lambda: bool(held), "the first question is held")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Skip a record of later-0").click()
    page.locator("#skip").get_by_text("key 4").wait_for()
    with page.expect_response("**/skip"):
        held[0].continue_()
    assert page.locator("#skip-record").get_by_text("Committed offset").count() == 1
    page.get_by_role("button", name="Skip record").click()
    page.get_by_text("The record is skipped.").wait_for()
    assert committed(broker, "slow") == [4, 5]
    assert page.evaluate("tidemill.timeText(-9e15)") == "-9000000000000000 ms"


def eventually_in(page: "Page", is_true: Callable[[], bool], what: str) -> None:
    """The same as `eventually`, while the events of the page are handled."""

    def looked() -> bool:
        page.evaluate("0")
        return is_true()

    eventually(looked, what)


def test_offsets_and_a_group_are_deleted_after_confirmation(page: "Page", broker: Broker) -> None:
    fill(broker.bootstrap_servers, "gone")
    read_some(broker.bootstrap_servers, "leavers", "gone", RECORDS)
    page.goto("/groups/leavers")
    page.get_by_role("button", name="Delete the offsets of gone").click()
    page.locator("#delete-offsets").get_by_role("button", name="Delete offsets").click()
    page.get_by_text("The offsets were deleted.").wait_for()
    page.get_by_text("Nothing is committed and nothing is assigned").wait_for()
    page.get_by_role("button", name="Delete group").first.click()
    dialog = page.locator("#delete-group")
    button = dialog.get_by_role("button", name="Delete group")
    assert button.is_disabled()
    dialog.get_by_role("textbox").fill("leaver")
    assert button.is_disabled()
    dialog.get_by_role("textbox").fill("leavers")
    button.click()
    page.wait_for_url("**/groups")
    page.get_by_text("The group was deleted.").wait_for()
    assert httpx.get(f"{broker.http}/api/v1/groups/leavers").status_code == 404
