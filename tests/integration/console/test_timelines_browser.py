"""Timelines in a real browser: zoom into the future; move, cancel and retry messages; hostile text; keys only."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from tests.support.chromium import console_page
from tests.support.waiting import eventually

from tidemill import Message, Timeline
from tidemill.testing import Broker

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOUR_S = 3_600
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flags={"timelines": "sqlite:"}) as running:
        yield running


@pytest.fixture
def page(broker: Broker) -> Iterator["Page"]:
    with console_page(broker.http) as opened:
        yield opened


def fill(broker: Broker, name: str, count: int, **settings: int | str) -> None:
    with Timeline(broker.grpc, name) as opened:
        opened.create(**settings)  # type: ignore[arg-type]
        start = time.time() + 2 * HOUR_S
        opened.schedule(
            [Message(b'{"n": %d}' % each, start + each * 60, f"m{each}", b"k%d" % each) for each in range(count)]
        )


def remaining(broker: Broker, name: str) -> list[str]:
    with Timeline(broker.grpc, name) as opened:
        return [each.id for each in opened.messages(limit=1_000)]


def test_a_click_on_a_bar_zooms_in_down_to_a_message(broker: Broker, page: "Page") -> None:
    fill(broker, "zoomed", 200)
    page.goto("/timelines/zoomed")
    assert page.get_by_text("200 messages in this range").is_visible()
    for _ in range(12):
        if page.url.split("?")[0].endswith("/messages"):
            break
        with page.expect_navigation():
            page.locator("svg.chart a").first.click()
    assert page.locator("#messages tbody tr").count() == 1
    assert page.locator("#messages tbody a").inner_text() == "m0"
    page.goto("/timelines/zoomed")
    page.get_by_role("link", name="Next hour").click()
    assert page.get_by_text("No message is due in this range.").is_visible()
    page.get_by_role("link", name="Show everything").click()
    assert page.get_by_text("200 messages in this range").is_visible()


def test_messages_are_moved_and_cancelled(broker: Broker, page: "Page") -> None:
    fill(broker, "changed", 5)
    page.goto("/timelines/changed/messages")
    assert page.get_by_role("button", name="Move…").is_disabled()
    page.get_by_label("Select m0").check()
    page.get_by_label("Select m1").check()
    assert page.get_by_text("2 selected").is_visible()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the messages").click()
    page.get_by_text("2 messages were cancelled.").wait_for()
    assert remaining(broker, "changed") == ["m2", "m3", "m4"]
    page.get_by_role("link", name="m2", exact=True).click()
    page.get_by_role("button", name="Move…").click()
    page.get_by_label("Due at (UTC)").fill("2200-01-02T03:04:05")
    page.get_by_role("dialog").get_by_role("button", name="Move", exact=True).click()
    page.get_by_text("1 message was moved.").wait_for()
    assert page.get_by_text("2200-01-02 03:04:05").is_visible()
    assert remaining(broker, "changed") == ["m3", "m4", "m2"]


def test_a_message_is_cancelled_with_keys_only(broker: Broker, page: "Page") -> None:
    fill(broker, "keys", 2)
    page.goto("/topics")
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url("**/timelines")
    page.get_by_role("link", name="keys", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/timelines/keys?broker=0")
    page.get_by_role("link", name="Messages", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/messages")
    page.get_by_label("Select m1").focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Cancel…").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Cancel the messages").focus()
    page.keyboard.press("Enter")
    page.get_by_text("1 message was cancelled.").wait_for()
    assert remaining(broker, "keys") == ["m0"]


def test_dead_letters_are_counted_and_then_retried(broker: Broker, page: "Page") -> None:
    with Timeline(broker.grpc, "failing") as opened:
        opened.create(lease_ms=1_000, max_attempts=1, dead_letter="timeline:failing.dead")
        opened.schedule([Message(b"", time.time() - 1, f"d{each}") for each in range(6)])
        work = opened.work(max_in_flight=6, idle_ms=5_000)
        for _ in range(6):
            next(work)
        work.close()
    eventually(lambda: len(remaining(broker, "failing.dead")) == 6, "all are dead letters")
    page.goto("/timelines/failing")
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("link", name="Messages", exact=True).click()
    page.locator("input[data-id]").first.check()
    page.get_by_role("button", name="Retry", exact=True).click()
    page.get_by_text("1 message was retried.").wait_for()
    page.get_by_role("button", name="Retry all…").click()
    page.get_by_text("5 dead letters return to their timelines").wait_for()
    page.get_by_role("button", name="Retry 5").click()
    page.get_by_text("5 dead letters were retried.").wait_for()
    assert sorted(remaining(broker, "failing")) == [f"d{each}" for each in range(6)]
    assert remaining(broker, "failing.dead") == []


def test_a_timeline_is_created_and_deleted_after_its_name_was_typed(broker: Broker, page: "Page") -> None:
    page.goto("/timelines")
    page.get_by_role("button", name="Create a timeline").click()
    page.locator("input[name=timeline]").fill("made here")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text("must be 1 to 249 of").wait_for()
    page.locator("input[name=timeline]").fill("made.here")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/timelines/made.here")
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Delete timeline").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Delete")
    assert confirm.is_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("made.here")
    confirm.click()
    page.get_by_text("The timeline was deleted.").wait_for()
    with Timeline(broker.grpc, "made.here") as opened:
        eventually(lambda: "made.here" not in {each.name for each in opened.timelines()}, "it is removed")


def test_hostile_ids_keys_and_bodies_are_text(broker: Broker, page: "Page") -> None:
    with Timeline(broker.grpc, "hostile") as opened:
        opened.create()
        opened.schedule([Message(HOSTILE.encode(), time.time() + HOUR_S, HOSTILE, HOSTILE.encode())])
    page.goto("/timelines/hostile/messages")
    assert page.get_by_role("link", name=HOSTILE).is_visible()
    assert page.locator("img[src='x']").count() == 0
    page.goto(f"/timelines/hostile/messages/{quote(HOSTILE, safe='')}")
    assert page.locator("pre code").inner_text() == HOSTILE
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the messages").click()
    page.get_by_text("1 message was cancelled.").wait_for()
    assert page.locator("img[src='x']").count() == 0
    assert remaining(broker, "hostile") == []


def test_a_phone_shows_the_pages_without_scrolling_sideways(broker: Broker) -> None:
    fill(broker, "phone", 30)
    with console_page(broker.http, width=390, height=800) as page:
        for path in ("/timelines", "/timelines/phone", "/timelines/phone/messages", "/timelines/phone/settings"):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
