"""The records of a topic in a real browser: write, follow, filter, open, download; hostile text; keys only."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.chromium import console_page
from tests.support.waiting import eventually

from tidemill.servers.http.api import event_stream
from tidemill.testing import Broker

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

WAIT_S = 30.0
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
TONES = "badges => badges.map(each => each.className.trim()).join()"
BINARY = b"\xff\x00\xfe"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def page(broker: Broker) -> Iterator["Page"]:
    """One page for all tests, because a browser takes seconds to start."""
    with console_page(broker.http) as opened:
        dialogs: list[str] = []
        opened.on("dialog", lambda dialog: dialogs.append(dialog.message))
        yield opened
        assert dialogs == []


def create(broker: Broker, topic: str, partitions: int = 1, **config: str) -> Producer:
    options = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(options)
    overrides = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=overrides)])[topic].result(WAIT_S)
    return Producer(options)


def write(writer: Producer, topic: str, *values: Any, key: Any = None, **more: Any) -> None:
    for value in values:
        writer.produce(topic, value, key, **more)
    assert writer.flush(WAIT_S) == 0


def stored(broker: Broker, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    """The records of a partition, the oldest first."""
    query: dict[str, str | int] = {"partition": partition, "order": "oldest"}
    answer = httpx.get(f"{broker.http}/api/v1/topics/{topic}/records", params=query)
    found: list[dict[str, Any]] = answer.json()["records"]
    return found


def rows(page: "Page") -> "Locator":
    return page.locator(".record-row")


def shown_values(page: "Page") -> list[str]:
    return [each.strip() for each in page.locator(".record-row td.value").all_inner_texts()]


def cells(page: "Page") -> list[list[str]]:
    """The text of each cell, with the tones of its badges."""
    return [
        [
            f"{cell.inner_text().strip()} {cell.locator('.badge').evaluate_all(TONES)}"
            for cell in row.locator("td").all()
        ]
        for row in rows(page).all()
    ]


def show_tab(page: "Page", *, is_hidden: bool) -> None:
    """Let the page believe that its tab is hidden, or that it is shown."""
    page.evaluate(
        """hidden => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def follow(page: "Page", topic: str, query: str = "") -> None:
    page.goto(f"/topics/{topic}/records?live=true{query}")
    page.get_by_role("status").get_by_text("Following").wait_for()


def test_a_record_is_written_with_keys_only(broker: Broker, page: "Page") -> None:
    create(broker, "typed", 2)
    page.goto("/topics/typed/records")
    page.get_by_text("This topic has no records").wait_for()
    page.get_by_role("button", name="Write a record").focus()
    page.keyboard.press("Enter")
    eventually(lambda: page.evaluate("document.activeElement.name") == "key", "the key has the focus")
    page.keyboard.type("k1")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type('{"n": 1}')
    page.get_by_role("dialog").get_by_role("button", name="Add a header").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("trace")
    page.keyboard.press("Tab")
    page.keyboard.type("t1")
    page.get_by_role("dialog").get_by_role("button", name="Write", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_text("The record was written to partition").wait_for()
    page.locator("a[data-record]").focus()
    page.keyboard.press("Enter")
    page.get_by_role("group", name="Value as json").wait_for()
    [record] = stored(broker, "typed", 0) + stored(broker, "typed", 1)
    assert (record["key"], record["value"]) == ("k1", '{"n": 1}')
    assert record["headers"] == [{"name": "trace", "value": "t1"}]


def test_encodings_are_checked_before_a_record_is_written(broker: Broker, page: "Page") -> None:
    create(broker, "encoded", 3)
    page.goto("/topics/encoded/records")
    page.get_by_role("button", name="Write a record").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Partition").select_option("2")
    dialog.get_by_label("Key", exact=True).fill("ff00fe")
    dialog.get_by_label("Format of the key").select_option("hex")
    dialog.get_by_label("Format of the value").select_option("json")
    dialog.get_by_label("Value", exact=True).fill("{")
    dialog.get_by_role("button", name="Write", exact=True).click()
    dialog.get_by_text("the value is not valid json").wait_for()
    assert stored(broker, "encoded", 2) == []
    dialog.get_by_label("Format of the value").select_option("null")
    dialog.get_by_role("button", name="Write", exact=True).click()
    page.get_by_text("The record was written to partition 2 at offset 0.").wait_for()
    assert rows(page).locator("td.value").inner_text().strip() == "null"
    [record] = stored(broker, "encoded", 2)
    assert (record["key_view"]["text"], record["value"]) == ("ff 00 fe", None)


def test_the_live_view_shows_new_records_and_continues_after_a_pause(broker: Broker, page: "Page") -> None:
    writer = create(broker, "followed", 2)
    write(writer, "followed", "old", partition=0)
    follow(page, "followed")
    assert shown_values(page) == ["old"]
    write(writer, "followed", "new", partition=1)
    eventually(lambda: shown_values(page) == ["new", "old"], "the new record comes first")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("status").get_by_text("Paused").wait_for()
    write(writer, "followed", "meanwhile", partition=0)
    page.get_by_role("button", name="Resume").click()
    eventually(lambda: shown_values(page) == ["meanwhile", "new", "old"], "nothing is left out")
    show_tab(page, is_hidden=True)
    write(writer, "followed", "hidden", partition=1)
    show_tab(page, is_hidden=False)
    eventually(lambda: shown_values(page)[0] == "hidden", "nothing is left out while the tab is hidden")
    write(writer, "followed", HOSTILE, "after", partition=1, key=HOSTILE, headers=[(HOSTILE, HOSTILE)])
    eventually(lambda: shown_values(page)[:2] == ["after", HOSTILE], "the view goes on")
    assert page.locator("img[src='x'], .record-row script").count() == 0
    rows(page).nth(1).locator("a[data-record]").click()
    page.get_by_role("rowheader", name=HOSTILE).wait_for()
    assert page.locator("img[src='x'], .opened-record script").count() == 0
    page.get_by_role("link", name="Stop").click()
    page.get_by_role("link", name="Live").wait_for()


def test_live_rows_look_like_rows_of_the_page(broker: Broker, page: "Page") -> None:
    writer = create(broker, "alike")
    follow(page, "alike")
    odd = json.dumps({"a\u202e\u00a0\u2028\u200d\U000e0041": "\x7f\u0085 é 中"}, ensure_ascii=False)
    write(writer, "alike", HOSTILE, odd, BINARY, None, b"", "x" * 5_000, key=odd, timestamp=1_790_000_000_007)
    write(writer, "alike", "[1, 2]", key=b"", headers=[("h", "v")])
    eventually(lambda: rows(page).count() == 7, "all have come")
    live = cells(page)
    page.goto("/topics/alike/records")
    assert cells(page) == live
    assert "U+202E" in page.locator("#records").inner_text()


def test_the_live_view_continues_when_its_stream_ends(
    broker: Broker, page: "Page", monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = create(broker, "renewed")
    monkeypatch.setattr(event_stream, "STREAM_S", 0.5)
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.1)
    follow(page, "renewed")
    for number in range(2):
        with page.expect_request("**/records/events?*"):
            write(writer, "renewed", f"value {number}")
    eventually(lambda: shown_values(page) == ["value 1", "value 0"], "each record is shown once")


def test_the_live_view_is_filtered_and_bounded(broker: Broker, page: "Page") -> None:
    writer = create(broker, "bounded")
    follow(page, "bounded", "&where=%24.n+%3E%3D+0")
    page.get_by_text("Waiting for new records").wait_for()
    write(writer, "bounded", "not JSON", *(json.dumps({"n": number}) for number in range(250)))
    eventually(lambda: rows(page).count() == 200, "the last 200 stay")
    eventually(lambda: '{"n":249}' in shown_values(page)[0], "the last record comes first")
    assert rows(page).count() == 200
    assert "not JSON" not in page.locator("#records").inner_text()
    page.get_by_role("button", name="Write a record").click()
    page.get_by_role("dialog").get_by_label("Value", exact=True).fill('{"n": 1000}')
    page.get_by_role("dialog").get_by_role("button", name="Write", exact=True).click()
    eventually(lambda: '{"n":1000}' in shown_values(page)[0], "what the page has written comes too")


def test_records_are_filtered_by_examples_and_starts(broker: Broker, page: "Page") -> None:
    writer = create(broker, "filtered")
    for number in range(40):
        write(writer, "filtered", json.dumps({"order": {"total": number * 10}}), key=f"key {number}")
    page.goto("/topics/filtered/records")
    page.get_by_role("button", name="Help").click()
    page.get_by_role("button", name="Use $.order.total > 100").click()
    page.keyboard.press("Enter")
    page.wait_for_url("**/records?where=*")
    assert page.url.endswith("/topics/filtered/records?where=%24.order.total+%3E+100")
    assert rows(page).count() == 29
    page.get_by_role("link", name="Clear").click()
    page.get_by_role("combobox", name="Start", exact=True).select_option("offset")
    page.get_by_role("combobox", name="Order", exact=True).select_option("oldest")
    page.get_by_label("Offset", exact=True).fill("35")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**/records?order=oldest&offset=35")
    assert [each.split()[1] for each in rows(page).all_inner_texts()] == ["35", "36", "37", "38", "39"]
    page.get_by_role("combobox", name="Start", exact=True).select_option("last")
    page.get_by_label("Last of each partition").fill("2")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**last=2")
    assert rows(page).count() == 2
    page.goto("/topics/filtered/records?where=%24.")
    page.get_by_role("alert").get_by_text("The condition is not valid").wait_for()


def test_hostile_records_are_text_wherever_they_are_shown(broker: Broker, page: "Page") -> None:
    writer = create(broker, "hostile")
    write(writer, "hostile", HOSTILE, key=HOSTILE, headers=[(HOSTILE, HOSTILE)])
    write(writer, "hostile", json.dumps({HOSTILE: [HOSTILE, {"a\u202e": 1}]}, ensure_ascii=False), key="json")
    page.goto("/topics/hostile/records")
    assert shown_values(page)[1] == HOSTILE
    for number in (1, 0):
        rows(page).nth(number).locator("a[data-record]").click()
    page.get_by_role("group", name="Value as json").get_by_text("U+202E").wait_for()
    page.get_by_role("rowheader", name=HOSTILE).wait_for()
    page.locator(".opened-record").first.get_by_role("link", name="hex").last.click()
    page.locator(".opened-record [data-format=value][aria-current]", has_text="hex").wait_for()
    page.get_by_role("button", name="Edit and send again").last.click()
    assert page.get_by_role("dialog").get_by_label("Key", exact=True).input_value() == HOSTILE
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Write a record").click()
    assert page.get_by_role("dialog").get_by_label("Key", exact=True).input_value() == ""
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Write a tombstone").last.click()
    page.locator("#tombstone").get_by_text(HOSTILE).wait_for()
    page.goto("/topics/hostile/records/0/0")
    page.get_by_label("Value as text").get_by_text(HOSTILE).wait_for()
    assert page.locator("img[src='x'], main script").count() == 0


def test_a_record_is_sent_again_byte_for_byte(broker: Broker, page: "Page") -> None:
    writer = create(broker, "again")
    headers = [("bin", BINARY), ("text", b"a\r\nb"), ("none", None), ("lines", b"a\nb")]
    write(writer, "again", b"one\r\ntwo", key=BINARY, headers=headers)
    page.goto("/topics/again/records/0/0")
    page.get_by_role("button", name="Edit and send again").click()
    page.get_by_role("dialog").get_by_text("A copy of the record in partition 0 at offset 0.").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Write", exact=True).click()
    page.get_by_text("The record was written to partition 0 at offset 1.").wait_for()
    first, second = stored(broker, "again")
    for part in ("key_base64", "value", "headers"):
        assert first[part] == second[part]


def test_a_tombstone_is_written_after_confirmation(broker: Broker, page: "Page") -> None:
    writer = create(broker, "removed", 2)
    write(writer, "removed", "x", key=BINARY, partition=1)
    page.goto("/topics/removed/records")
    page.locator("a[data-record]").click()
    page.get_by_role("button", name="Write a tombstone").click()
    page.locator("#tombstone").get_by_text("/wD+").wait_for()
    page.get_by_role("button", name="Write the tombstone").click()
    page.get_by_text("The tombstone was written to partition 1 at offset 1.").wait_for()
    last = stored(broker, "removed", 1)[-1]
    assert (last["key_view"]["text"], last["value"]) == ("ff 00 fe", None)


def test_a_scheduled_record_waits_until_it_is_due(broker: Broker, page: "Page") -> None:
    create(broker, "later", tidemill_schedule_enable="true")
    page.goto("/topics/later/records")
    page.get_by_role("button", name="Write a record").click()
    page.get_by_role("dialog").get_by_label("Due (UTC)").fill("2200-01-02T03:04:05")
    page.get_by_role("dialog").get_by_label("Value", exact=True).fill("far away")
    page.get_by_role("dialog").get_by_role("button", name="Write", exact=True).click()
    page.get_by_text("The record is scheduled. It appears at 2200-01-02 03:04:05 UTC.").wait_for()
    assert stored(broker, "later") == []
    page.goto("/timelines/__schedule.later/messages")
    page.get_by_text("2200-01-02 03:04:05").wait_for()


def test_records_and_payloads_are_downloaded(broker: Broker, page: "Page", tmp_path: Path) -> None:
    writer = create(broker, "saved")
    write(writer, "saved", "one", BINARY, "three")
    page.goto("/topics/saved/records")
    page.get_by_role("button", name="Download").click()
    page.get_by_label("At most").fill("2")
    with page.expect_download() as lines:
        page.get_by_role("dialog").get_by_role("button", name="Download").click()
    assert lines.value.suggested_filename == "saved.jsonl"
    assert page.get_by_role("dialog").count() == 0
    lines.value.save_as(tmp_path / "lines")
    assert [json.loads(each)["offset"] for each in (tmp_path / "lines").read_text().splitlines()] == [0, 1]
    page.goto("/topics/saved/records/0/1")
    with page.expect_download() as payload:
        page.get_by_role("group", name="Value", exact=True).get_by_role("link", name="Download").click()
    assert payload.value.suggested_filename == "saved-0-1-value.bin"
    payload.value.save_as(tmp_path / "value")
    assert (tmp_path / "value").read_bytes() == BINARY


def test_a_phone_shows_the_records_without_scrolling_sideways(broker: Broker, page: "Page") -> None:
    writer = create(broker, "small")
    write(writer, "small", *(json.dumps({"n": number, "text": "long " * 40}) for number in range(30)), key="k" * 80)
    page.set_viewport_size({"width": 390, "height": 800})
    for path in ("/topics/small/records", "/topics/small/records?live=true", "/topics/small/records/0/3"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.goto("/topics/small/records")
    page.locator("a[data-record]").first.click()
    page.get_by_role("group", name="Value as json").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
