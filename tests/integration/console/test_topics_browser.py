"""Topics in a real browser: create, extend, change and reset a setting, delete, by mouse and by keyboard."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.support.chromium import console_page
from tests.support.console_groups import add, fill
from tests.support.console_topics import API, WAIT_S, create, names, setting
from tests.support.waiting import eventually

from tidemill.testing import Broker

if TYPE_CHECKING:
    from playwright.sync_api import Page

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def page(broker: Broker) -> Iterator["Page"]:
    with console_page(broker.http) as opened:
        yield opened


@pytest.fixture
def client(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http, timeout=WAIT_S) as opened:
        yield opened


def test_a_topic_is_created_in_a_dialog_that_shows_errors_at_their_field(page: "Page", client: httpx.Client) -> None:
    page.goto("/topics")
    page.get_by_role("button", name="Create a topic").click()
    dialog = page.locator("#create-topic")
    dialog.get_by_role("textbox", name="Name L").fill("teapots are nice")
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_role("alert").wait_for()
    assert dialog.locator("[aria-invalid]").get_attribute("name") == "topic"
    assert page.evaluate("document.activeElement.name") == "topic"
    dialog.get_by_role("textbox", name="Name L").fill("teapots")
    dialog.get_by_label("Partitions").fill("3")
    dialog.get_by_label("Keep records for").select_option("86400000")
    dialog.get_by_label("Old records are").select_option("compact,delete")
    dialog.get_by_label("Deliver records").check()
    dialog.get_by_text("Further settings").click()
    dialog.get_by_label("Settings, one").fill("retention.bytes = 1000000\nmax.message.bytes=many")
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_text("max.message.bytes='many'").wait_for()
    assert dialog.locator("[aria-invalid]").get_attribute("name") == "config"
    dialog.get_by_label("Settings, one").fill("retention.bytes = 1000000")
    dialog.get_by_role("button", name="Create").click()
    page.wait_for_url("**/topics/teapots")
    page.get_by_text("The topic was created.").wait_for()
    page.get_by_text("3 partitions, 1 replica of each").wait_for()
    wanted = {"retention.ms": "86400000", "cleanup.policy": "compact,delete", "retention.bytes": "1000000"}
    for name, value in {**wanted, "tidemill.schedule.enable": "true"}.items():
        assert setting(client, "teapots", name)["value"] == value
    assert setting(client, "teapots", "compression.type")["source"] == "default"


def test_partitions_are_added_in_a_dialog(page: "Page", broker: Broker, client: httpx.Client) -> None:
    create(broker.bootstrap_servers, "widened", partitions=2)
    page.goto("/topics/widened/partitions")
    page.get_by_role("button", name="Add partitions").click()
    field = page.get_by_label("Partitions from now on")
    assert field.input_value() == "3"
    field.fill("5")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_text("1 to 5 of 5").wait_for()
    assert len(client.get(f"{API}/widened").json()["partitions"]) == 5


def test_a_setting_is_changed_and_reset_in_dialogs(page: "Page", broker: Broker, client: httpx.Client) -> None:
    create(broker.bootstrap_servers, "tuned")
    page.goto("/topics/tuned/settings?search=retention.ms")
    page.get_by_role("button", name="Edit retention.ms", exact=True).click()
    field = page.get_by_label("Value of retention.ms")
    assert field.input_value() == "604800000"
    field.fill(EVIL)
    page.get_by_role("button", name="Save").click()
    page.locator("#edit-setting").get_by_text(EVIL).wait_for()
    assert field.get_attribute("aria-invalid") == "true"
    field.fill("3600000")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The setting was changed.").wait_for()
    row = page.get_by_role("row").filter(has=page.get_by_text("retention.ms", exact=True))
    assert "3600000 1 h" in row.first.inner_text()
    assert setting(client, "tuned", "retention.ms")["source"] == "topic"
    page.get_by_role("button", name="Reset retention.ms", exact=True).click()
    page.locator("#reset-setting").get_by_text("604800000").wait_for()
    page.locator("#reset-setting").get_by_role("button", name="Reset").click()
    page.get_by_text("The setting was reset.").wait_for()
    assert setting(client, "tuned", "retention.ms")["source"] == "default"
    page.goto("/topics/tuned/settings?search=compression.type")
    page.get_by_role("button", name="Edit compression.type").click()
    page.get_by_label("Value of compression.type").select_option("zstd")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The setting was changed.").wait_for()
    assert setting(client, "tuned", "compression.type")["value"] == "zstd"


def test_records_are_deleted_below_an_offset_and_all(page: "Page", broker: Broker, client: httpx.Client) -> None:
    fill(broker.bootstrap_servers, "trimmed", partitions=2)
    page.goto("/topics/trimmed/partitions")
    page.get_by_role("button", name="Delete records of partition 1").click()
    dialog = page.locator("#delete-records")
    dialog.get_by_text("partition 1", exact=True).wait_for()
    assert dialog.get_by_label("Delete below offset").input_value() == "10"
    dialog.get_by_label("Delete below offset").fill("6")
    dialog.get_by_role("button", name="Delete records").click()
    page.get_by_text("The records were deleted.").wait_for()
    assert [each["start"] for each in client.get(f"{API}/trimmed").json()["partitions"]] == [0, 6]
    page.get_by_role("button", name="Delete all records").click()
    dialog = page.locator("#delete-all-records")
    dialog.get_by_label("to confirm").fill("trimmed")
    dialog.get_by_role("button", name="Delete all records").click()
    eventually(
        lambda: [each["records"] for each in client.get(f"{API}/trimmed").json()["partitions"]] == [0, 0],
        "all records are deleted",
    )


def test_a_topic_is_deleted_after_its_name_was_typed(page: "Page", broker: Broker, client: httpx.Client) -> None:
    create(broker.bootstrap_servers, "doomed")
    page.goto("/topics/doomed")
    page.get_by_role("button", name="Delete topic").click()
    dialog = page.locator("#delete-topic")
    button = dialog.get_by_role("button", name="Delete topic")
    assert button.is_disabled()
    dialog.get_by_label("to confirm").fill("doome")
    assert button.is_disabled()
    dialog.get_by_label("to confirm").fill("doomed")
    button.click()
    page.wait_for_url("**/topics")
    page.get_by_text("The topic was deleted.").wait_for()
    assert "doomed" not in names(client, search="doomed")


def test_the_whole_way_works_with_the_keyboard_alone(page: "Page", client: httpx.Client) -> None:
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    page.get_by_role("button", name="Create a topic").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("typed")
    page.keyboard.press("Tab")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/typed")
    page.get_by_role("link", name="Settings", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/typed/settings")
    page.keyboard.press("/")
    page.keyboard.type("cleanup.policy")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/typed/settings?search=cleanup.policy")
    page.get_by_role("button", name="Edit cleanup.policy").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Control+A")
    page.keyboard.type("compact")
    page.keyboard.press("Enter")
    page.get_by_text("The setting was changed.").wait_for()
    assert setting(client, "typed", "cleanup.policy")["value"] == "compact"
    page.get_by_role("link", name="Partitions", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Delete topic").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    page.keyboard.press("Enter")
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics")
    assert "typed" not in names(client, search="typed")


def test_the_list_and_the_topic_are_live(page: "Page", broker: Broker) -> None:
    fill(broker.bootstrap_servers, "moving", records=10)
    page.goto("/topics?search=moving")
    page.get_by_role("cell", name="10", exact=True).wait_for()
    create(broker.bootstrap_servers, "moving.too")
    add(broker.bootstrap_servers, "moving", records=5)
    page.get_by_role("link", name="moving.too").wait_for()
    page.get_by_role("cell", name="15", exact=True).wait_for()
    page.get_by_role("link", name="moving", exact=True).click()
    page.locator(".tile", has_text="Records").filter(has_text="15").wait_for()
    add(broker.bootstrap_servers, "moving", records=7)
    page.locator(".tile", has_text="Records").filter(has_text="22").wait_for()


def test_hostile_text_is_shown_as_text(page: "Page", broker: Broker) -> None:
    create(broker.bootstrap_servers, "javascript-alert.1", "constructor")
    page.goto(f"/topics?search={EVIL}")
    page.get_by_text("No topic matches").wait_for()
    assert page.get_by_role("searchbox").input_value() == EVIL
    for name in ("javascript-alert.1", "constructor"):
        page.goto(f"/topics?search={name}")
        page.get_by_role("link", name=name).click()
        page.wait_for_url(f"**/topics/{name}")
        page.get_by_role("heading", name=name).wait_for()
    page.goto(f"/topics/constructor/settings?search={EVIL}")
    page.get_by_text("No setting matches").wait_for()
    page.goto("/topics/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    page.get_by_text(f"there is no topic {EVIL}").wait_for()
    eventually(lambda: page.locator("main img").count() == 0, "nothing was made from the text")


def test_pages_have_the_width_of_a_phone(broker: Broker) -> None:
    name = "narrow" * 20
    create(broker.bootstrap_servers, name, partitions=3)
    with console_page(broker.http, width=390, height=800) as page:
        for view in ("", "/partitions", "/settings", "/groups", "/producers"):
            page.goto(f"/topics/{name}{view}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        page.goto("/topics?search=narrow")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_page_says_that_its_values_are_old(page: "Page", broker: Broker, client: httpx.Client) -> None:
    create(broker.bootstrap_servers, "stale")
    page.goto("/topics/stale")
    busy = "<main><div class=banner>too many requests</div></main>"
    page.route("**/topics/stale", lambda route: route.fulfill(status=429, content_type="text/html", body=busy))
    notice = page.locator("#stale")
    notice.get_by_text("This page shows old values: too many requests").wait_for()
    page.unroute("**/topics/stale")
    notice.wait_for(state="detached")
    assert client.delete(f"{API}/stale").status_code == 204
    notice.get_by_text("there is no topic stale").wait_for()
