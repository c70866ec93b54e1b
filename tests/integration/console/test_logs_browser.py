"""The page of the log in a real browser: live events, filters, hostile text, a phone."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from tests.support.chromium import console_page

from tidemill.testing import Broker

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def warn(broker: Broker) -> Any:
    """Logs in the process of the broker."""
    del broker
    return structlog.get_logger("tidemill.browser")


def test_events_appear_while_the_page_is_open(broker: Broker, warn: Any) -> None:
    with console_page(broker.http) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"a script has run: {dialog.message}"))
        page.goto("/logs?search=live_event")
        page.get_by_text("No event matches").wait_for()
        for _ in range(2):
            warn.warning("live_event", client_id=HOSTILE)
        page.locator(".log-event dd", has_text=HOSTILE).wait_for()
        row = page.locator(".log-event", has_text="live_event")
        assert row.locator("td").last.inner_text() == "2 times"
        assert page.locator(".log-event img").count() == 0


def test_events_are_found_with_the_keyboard_only(broker: Broker, warn: Any) -> None:
    warn.warning("keyboard_slow", topic="orders")
    try:
        int(HOSTILE)
    except ValueError:
        warn.exception("keyboard_failed", topic="payments")
    with console_page(broker.http) as page:
        page.goto("/")
        page.keyboard.press("g")
        page.keyboard.press("l")
        page.wait_for_url("**/logs")
        page.keyboard.press("/")
        page.keyboard.type("keyboard_")
        page.keyboard.press("Enter")
        page.wait_for_url("**search=keyboard_**")
        assert page.locator(".log-event strong").all_inner_texts() == ["keyboard_failed", "keyboard_slow"]
        page.locator(".log-event summary").press("Enter")
        page.locator(".log-event pre", has_text="ValueError: invalid literal").wait_for()
        page.get_by_label("Level").select_option("error")
        page.wait_for_url("**level=error**")
        assert page.locator(".log-event strong").all_inner_texts() == ["keyboard_failed"]


def test_events_fit_a_phone(broker: Broker, warn: Any) -> None:
    warn.error("phone_failed", error="x" * 900, reason="a b " * 200)
    with console_page(broker.http, width=390, height=844) as page:
        page.goto("/logs?search=phone_failed")
        page.locator(".log-event", has_text="phone_failed").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator("#log-events").evaluate("each => each.scrollWidth <= each.clientWidth")
