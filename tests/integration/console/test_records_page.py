"""The page of a topic's records over HTTP: lists and their links, text that stays text, rights, a read-only console."""

import html
import json
import re
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.guarded_console import ADMIN, GuardedConsole, guarded_console

from tidemill.servers.http.api import record_reader
from tidemill.testing import Broker

WAIT_S = 30.0
SCRIPT = "<script>alert(1)</script>"
NOW_MS = 1_790_000_000_123
ROW = re.compile(r'data-place="([0-9/]+)"')


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def console(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http, timeout=WAIT_S, headers={"accept": "text/html"}) as client:
        yield client


def create(broker: Broker, topic: str, partitions: int = 1) -> Producer:
    options = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(options)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
    return Producer(options)


def places(page: httpx.Response) -> list[str]:
    return ROW.findall(page.text)


def link(page: httpx.Response, name: str) -> str:
    """The address of the link or button with this text."""
    found = re.search(rf'<a [^>]*href="([^"]+)"[^>]*>{name}</a>', page.text)
    assert found is not None, name
    return html.unescape(found[1])


def test_pages_of_the_list_are_links(broker: Broker, console: httpx.Client) -> None:
    writer = create(broker, "paged")
    for number in range(60):
        writer.produce("paged", f"value {number}", f"key {number}", 0)
    assert writer.flush(WAIT_S) == 0
    path = "/topics/paged/records"
    first = console.get(path, params={"rows": 25})
    assert places(first) == [f"0/{offset}" for offset in range(59, 34, -1)]
    second = console.get(path + link(first, "Older"))
    assert places(second) == [f"0/{offset}" for offset in range(34, 9, -1)]
    last = console.get(path + link(second, "Older"))
    assert places(last) == [f"0/{offset}" for offset in range(9, -1, -1)]
    assert ">Older</a>" not in last.text
    assert places(console.get(path + link(last, "Newer"))) == places(second)
    oldest = console.get(path, params={"order": "oldest", "rows": 25})
    assert places(oldest) == [f"0/{offset}" for offset in range(25)]
    assert places(console.get(path + link(oldest, "Later")))[0] == "0/25"
    assert places(console.get(path, params={"last": 3, "order": "newest"})) == ["0/57", "0/58", "0/59"]
    assert places(console.get(path, params={"offset": 7, "rows": 2, "order": "oldest"})) == ["0/7", "0/8"]
    assert "No more records" in console.get(path, params={"position": "0:60", "back": "true"}).text


def test_empty_fields_of_the_form_count_as_left_out(broker: Broker, console: httpx.Client) -> None:
    writer = create(broker, "blank", 2)
    writer.produce("blank", "x", "k", 1)
    writer.flush(WAIT_S)
    fields = ("partition", "offset", "time", "last", "key", "value", "header", "where", "position")
    assert places(console.get("/topics/blank/records", params=dict.fromkeys(fields, ""))) == ["1/0"]
    assert places(console.get("/topics/blank/records", params={"partition": 0})) == []
    assert places(console.get("/topics/blank/records", params={"partition": 1, "key": "k"})) == ["1/0"]
    assert console.get("/topics/blank/records", params={"partition": "x"}).status_code == 400


def test_a_wrong_filter_is_explained_above_the_fields(broker: Broker, console: httpx.Client) -> None:
    create(broker, "asked")
    page = console.get("/topics/asked/records", params={"where": "$.a > '<b>"})
    assert page.status_code == 400
    assert 'role="alert"' in page.text
    assert "The condition is not valid at position" in page.text
    assert 'name="where" value="$.a &gt; &#39;&lt;b&gt;"' in page.text


def test_lists_without_records_say_what_to_do(broker: Broker, console: httpx.Client) -> None:
    writer = create(broker, "lonely")
    assert "This topic has no records" in console.get("/topics/lonely/records").text
    writer.produce("lonely", "x")
    writer.flush(WAIT_S)
    assert "No record matches" in console.get("/topics/lonely/records", params={"value": "y"}).text
    missing = console.get("/topics/nowhere/records")
    assert (missing.status_code, "there is no topic nowhere" in missing.text) == (404, True)


def test_a_search_continues_after_its_limit(
    broker: Broker, console: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = create(broker, "long")
    for number in range(2_000):
        writer.produce("long", f"value {number}", None, 0)
    assert writer.flush(WAIT_S) == 0
    monkeypatch.setattr(record_reader, "SCAN_RECORDS_MAX", 300)
    for order, wanted in (("oldest", "value 1234"), ("newest", "value 321")):
        page = console.get("/topics/long/records", params={"value": wanted, "order": order})
        assert "The search stopped at its limit of 300 records" in page.text
        assert "Nothing matches so far" in page.text
        steps = 0
        while not places(page):
            page = console.get("/topics/long/records" + link(page, "Continue"))
            steps += 1
        assert places(page) == [f"0/{wanted.split()[1]}"]
        assert 1 <= steps <= 20


def test_records_of_transactions_that_are_not_committed_are_mentioned(broker: Broker, console: httpx.Client) -> None:
    create(broker, "undone")
    writer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "undone"})
    writer.init_transactions(WAIT_S)
    writer.begin_transaction()
    writer.produce("undone", "x", None, 0)
    writer.flush(WAIT_S)
    assert "This topic has no records" in console.get("/topics/undone/records").text
    shown = console.get("/topics/undone/records?uncommitted=true")
    assert (places(shown), ">open<" in shown.text) == (["0/0"], True)
    writer.abort_transaction(WAIT_S)
    page = console.get("/topics/undone/records")
    assert "This topic has no committed records" in page.text
    shown = console.get("/topics/undone/records" + link(page, "Show them"))
    assert (places(shown), ">aborted<" in shown.text) == (["0/0"], True)


def test_records_are_text_on_both_pages(broker: Broker, console: httpx.Client) -> None:
    writer = create(broker, "hostile")
    writer.produce("hostile", SCRIPT, SCRIPT, 0, headers=[(SCRIPT, SCRIPT.encode()), ("bin", b"\xff"), ("none", None)])
    writer.produce("hostile", json.dumps({"a\u202eb": SCRIPT}, ensure_ascii=False), b"\xff\xfe", 0)
    writer.produce("hostile", b"", None, 0)
    writer.produce("hostile", None, b"", 0)
    assert writer.flush(WAIT_S) == 0
    pages = [console.get("/topics/hostile/records", params={"value_format": "text"})]
    pages += [console.get(f"/topics/hostile/records/0/{offset}") for offset in range(4)]
    for page in pages:
        assert page.status_code == 200
        assert SCRIPT not in page.text
        assert "script-src 'self'" in page.headers["content-security-policy"]
    assert all(html.escape(SCRIPT) in page.text for page in pages[:3])
    assert 'a<b class="hidden-char">U+202E</b>b' in pages[2].text
    assert 'a<b class="hidden-char">U+202E</b>b' in pages[0].text
    assert ">base64</span> <bdi" in pages[1].text
    row = next(each for each in pages[0].text.split("<tr") if 'data-place="0/2"' in each)
    assert [">null<" in row, ">empty<" in row] == [True, True]
    assert "It has 0 bytes." in pages[3].text
    assert "A tombstone" in pages[4].text


def test_a_huge_record_is_cut_and_can_be_downloaded(broker: Broker, console: httpx.Client) -> None:
    writer = create(broker, "huge")
    writer.produce("huge", b"\x00" * 900_000, b"k" * 90_000, 0)
    document = json.dumps({"big": 12345678901234567890, "list": list(range(30))})
    writer.produce("huge", document, "k", 0, timestamp=NOW_MS)
    assert writer.flush(WAIT_S) == 0
    whole = console.get("/topics/huge/records/0/0", params={"value_format": "text"})
    assert "Only the beginning of 878.9 KiB is shown" in whole.text
    assert len(whole.text) < 3_000_000
    file = console.get(link(whole, "Download the whole value"))
    assert file.content == b"\x00" * 900_000
    assert file.headers["content-disposition"] == 'attachment; filename="huge-0-0-value.bin"'
    assert file.headers["x-content-type-options"] == "nosniff"
    assert len(console.get("/topics/huge/records").text) < 100_000
    folded = console.get("/topics/huge/records/0/1").text
    assert "<details open><summary>" in folded
    assert "12345678901234567890" in folded
    assert "2026-09-21 14:13:20.123" in folded
    missing = console.get("/topics/huge/records/0/99")
    assert (missing.status_code, "no record at offset 99" in missing.text) == (404, True)


def test_a_topic_with_many_partitions_shows_one_of_them(broker: Broker, console: httpx.Client) -> None:
    writer = create(broker, "wide", 501)
    writer.produce("wide", "a", partition=0)
    writer.produce("wide", "b", partition=500)
    writer.flush(WAIT_S)
    page = console.get("/topics/wide/records")
    assert places(page) == ["0/0"]
    assert "This topic has 501 partitions, so one of them is shown." in page.text
    assert places(console.get("/topics/wide/records", params={"partition": 500})) == ["500/0"]


def test_the_download_has_the_filter_of_the_page(broker: Broker, console: httpx.Client) -> None:
    writer = create(broker, "exported")
    for number in range(20):
        writer.produce("exported", f"value {number}", f"key {number % 2}", 0)
    assert writer.flush(WAIT_S) == 0
    page = console.get("/topics/exported/records", params={"key": "key 1", "offset": 10, "order": "oldest"})
    form = page.text.split('action="/api/v1/topics/exported/records.jsonl"')[1].split("</form>")[0]
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    assert fields == {"key": "key 1", "offset": "10"}
    lines = console.get("/api/v1/topics/exported/records.jsonl", params={**fields, "limit": 3}).text.splitlines()
    assert [json.loads(each)["offset"] for each in lines] == [11, 13, 15]


def test_a_read_only_console_offers_no_writing() -> None:
    with Broker(flags={"console-readonly": "true"}) as broker, httpx.Client(base_url=broker.http) as console:
        writer = create(broker, "shown")
        writer.produce("shown", "x", "k", 0)
        writer.flush(WAIT_S)
        for path in ("/topics/shown/records", "/topics/shown/records/0/0"):
            page = console.get(path, headers={"accept": "text/html"})
            assert page.status_code == 200
            assert 'id="produce"' not in page.text
            assert "data-tombstone" not in page.text
        body = {"value": {"data": "x"}}
        assert console.post("/api/v1/topics/shown/records", json=body).status_code == 403


GRANTS = {"reader": "read", "writer": "write", "describer": "describe"}
USERS = (*GRANTS, "stranger")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedConsole]:
    """A broker with users, and the topic orders with one record."""
    with guarded_console(tmp_path_factory.mktemp("rights")) as running:
        running.admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)
        running.add_users(USERS)
        for name, operation in GRANTS.items():
            running.grant(name, operations=[operation], topics=["orders"])
        record = {"key": {"data": "k"}, "value": {"data": "secret"}}
        running.good(ADMIN, "POST", "/api/v1/topics/orders/records", record)
        yield running


def test_the_page_follows_the_rights_of_its_user(guarded: GuardedConsole) -> None:
    def ask(name: str, path: str) -> httpx.Response:
        return guarded.ask(name, "GET", path, headers={"accept": "text/html"})

    record = "/topics/orders/records/0/0"
    shown = {name: ask(name, "/topics/orders/records") for name in (*USERS, ADMIN)}
    assert {name: page.status_code for name, page in shown.items()} == {
        "reader": 200,
        "writer": 200,
        "describer": 200,
        "stranger": 403,
        "admin": 200,
    }
    assert {name for name, page in shown.items() if places(page)} == {"reader", "admin"}
    assert {name for name, page in shown.items() if 'id="produce"' in page.text} == {"writer", "admin"}
    assert {name for name, page in shown.items() if "secret" in page.text} == {"reader", "admin"}
    assert "You may not read the records of this topic" in shown["writer"].text
    assert {name for name in (*USERS, ADMIN) if ask(name, record).status_code == 200} == {"reader", "admin"}
    assert "data-tombstone" not in ask("reader", record).text
