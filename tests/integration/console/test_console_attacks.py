"""Attacks on the console: foreign pages, hostile names, stolen time after a login has ended, and forged addresses."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from tests.support.browser import hidden_fields
from tests.support.console_groups import member
from tests.support.guarded_console import ADMIN, PASSWORD, WAIT_S, GuardedConsole, guarded_console
from tests.support.route_requests import request_of
from tests.support.waiting import eventually

from tidemill.servers.http.core.authorization_table import ROUTES
from tidemill.servers.http.core.route_access import PAGE, LoginNeed, RouteAccess

EVIL = "https://evil.example"
PAYLOAD = "\"'><img src=x onerror=alert(1)></script><script>alert(2)</script>{{7*7}}"
TOPIC = "watched"
EVENTS = f"/api/v1/topics/{TOPIC}/records/events"
PAGES = [each for each in ROUTES if each.shapes is not None and each.shapes.media_type == PAGE]
CHANGES = [each for each in ROUTES if each.changes]
OPEN_FILES = {"GET /static/{name}"}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedConsole]:
    with guarded_console(tmp_path_factory.mktemp("attacks")) as running:
        running.admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WAIT_S)
        yield running


class Listener:
    """A client that reads a stream of records in a thread."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.read()
        self.lines: list[str] = []
        self._answer = answer
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def has_ended(self) -> bool:
        return not self._reading.is_alive()

    def _read(self) -> None:
        for line in self._answer.iter_lines():
            self.lines.append(line)


@contextmanager
def listening(client: httpx.Client, path: str = EVENTS) -> Iterator[Listener]:
    with client.stream("GET", path, timeout=WAIT_S) as answer:
        found = Listener(answer)
        # The first document says where the stream begins; an earlier record would not be in it.
        eventually(lambda: "data: " in found.text, "the stream has begun")
        yield found


def write(console: GuardedConsole, value: str) -> None:
    producer = Producer(console.kafka)
    producer.produce(TOPIC, value.encode(), partition=0)
    assert producer.flush(WAIT_S) == 0


def reader(console: GuardedConsole, name: str) -> None:
    console.add_users([name])
    console.grant(name, operations=["read"], topics=[TOPIC])


def basic(console: GuardedConsole, name: str) -> httpx.Client:
    return httpx.Client(base_url=console.http, auth=(name, PASSWORD))


def test_a_stream_ends_when_the_acls_do_not_allow_it_any_more(console: GuardedConsole) -> None:
    reader(console, "revoked")
    with basic(console, "revoked") as client, listening(client) as found:
        write(console, "before the revocation")
        eventually(lambda: "before the revocation" in found.text, "the record arrives")
        console.good(ADMIN, "POST", "/api/v1/acls/revocations", {"principals": ["revoked"], "all": True})
        write(console, "after the revocation")
        eventually(found.has_ended, "the stream ends")
        assert "event: problem" in found.lines
        assert "after the revocation" not in found.text


def test_a_stream_ends_when_its_topic_is_deleted(console: GuardedConsole) -> None:
    console.admin.create_topics([NewTopic("deleted", 1, 1)])["deleted"].result(WAIT_S)
    with basic(console, ADMIN) as client, listening(client, "/api/v1/topics/deleted/records/events") as found:
        eventually(lambda: '"records":[]' in found.text, "the stream begins")
        console.admin.delete_topics(["deleted"])["deleted"].result(WAIT_S)
        eventually(found.has_ended, "the stream ends")
        assert "there is no topic deleted" in found.text


@pytest.mark.parametrize("change", ["removal", "password"])
def test_a_stream_ends_with_the_credentials_that_opened_it(console: GuardedConsole, change: str) -> None:
    name = f"ended-{change}"
    reader(console, name)
    with basic(console, name) as client, listening(client) as found:
        write(console, f"before the {change}")
        eventually(lambda: f"before the {change}" in found.text, "the record arrives")
        if change == "removal":
            console.good(ADMIN, "DELETE", f"/api/v1/users/{name}")
        else:
            console.good(ADMIN, "PUT", f"/api/v1/users/{name}/password", {"generate": True})
        write(console, f"after the {change}")
        eventually(found.has_ended, "the stream ends")
        assert f"after the {change}" not in found.text


def test_a_stream_of_a_browser_ends_when_its_user_logs_out(console: GuardedConsole) -> None:
    with console.browser() as browser:
        browser.log_in(ADMIN, PASSWORD)
        with listening(browser) as found:
            write(console, "before the end")
            eventually(lambda: "before the end" in found.text, "the record arrives")
            browser.submit("/logout", hidden_fields(browser.open("/security")))
            write(console, "after the end")
            eventually(found.has_ended, "the stream ends")
            assert "after the end" not in found.text


def test_every_answer_has_the_headers_that_protect_it(console: GuardedConsole) -> None:
    for access in ROUTES:
        if access.method != "GET" or access.path.endswith("/events"):
            continue
        request = request_of(access)
        for name in ("", ADMIN):
            answer = console.ask(name, "GET", request.path + request.query, headers={"origin": console.http})
            headers = answer.headers
            assert "frame-ancestors 'none'" in headers["content-security-policy"], access.name
            assert "unsafe" not in headers["content-security-policy"], access.name
            assert headers["x-frame-options"] == "DENY", access.name
            assert headers["x-content-type-options"] == "nosniff", access.name
            assert headers["cross-origin-resource-policy"] == "same-origin", access.name
            assert not [each for each in headers if each.startswith("access-control-")], access.name
            assert headers["content-type"], access.name
            if access.name not in OPEN_FILES:
                assert headers["cache-control"] == "no-store", access.name


def test_pages_of_other_sites_change_nothing(console: GuardedConsole) -> None:
    """Also with a login that a browser adds by itself, and for routes that take no body."""
    for access in CHANGES:
        request = request_of(access)
        path = request.path.replace("{member}", "none") + request.query
        for origin in (EVIL, "null", f"{console.http}.evil.example"):
            answer = console.ask(ADMIN, access.method, path, request.body, headers={"origin": origin})
            assert (answer.status_code, "pages of other sites" in answer.text) == (403, True), access.name
        fetched = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
        assert console.ask(ADMIN, access.method, path, request.body, headers=fetched).status_code == 403
        preflight = console.ask("", "OPTIONS", path, headers={"origin": EVIL, "access-control-request-method": "POST"})
        assert preflight.status_code in {403, 405}
        if request.body is not None:
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
                sent = {"content-type": kind} if kind else {}
                content = json.dumps(request.body).encode()
                answer = console.ask(ADMIN, access.method, path, content=content, headers=sent)
                assert answer.status_code == 415, (access.name, kind)


def test_no_redirection_leaves_the_server(console: GuardedConsole) -> None:
    forwarded = {"x-forwarded-host": "evil.example", "x-forwarded-proto": "https", "forwarded": "host=evil.example"}
    for path in ("//evil.example/topics/", "/topics/", "/security/", "/\\evil.example/", "/login/", "//evil.example//"):
        for name in ("", ADMIN):
            answer = console.ask(name, "GET", path, headers={**forwarded, "accept": "text/html"})
            location = answer.headers.get("location", "/")
            assert location.startswith(("/", console.http)), (path, location)
            assert not location.startswith("//"), (path, location)
    with console.browser() as browser:
        browser.follow_redirects = False
        page = browser.open(f"/login?next={EVIL}&return_to=//evil.example")
        fields = {**hidden_fields(page), "name": ADMIN, "password": PASSWORD}
        answer = browser.submit(f"/login?next={EVIL}", fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_foreign_name_of_the_server_is_refused(console: GuardedConsole) -> None:
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        for path in ("/security", "/api/v1/users", "/login"):
            answer = console.ask(ADMIN, "GET", path, headers={"host": host})
            assert answer.status_code in {400, 403}, host
            assert "admin" not in answer.text


def test_names_cannot_add_headers(console: GuardedConsole) -> None:
    broken = quote("x\r\nset-cookie: a=b\r\n\r\n<script>", safe="")
    for path in (
        f"/api/v1/topics/{broken}/records.jsonl",
        f"/api/v1/topics/{broken}/records/0/0/payload",
        f"/api/v1/timelines/{broken}/messages/{broken}/body",
        f"/topics/{broken}",
        f"/groups/{broken}",
        f"/static/{broken}",
        f"/security/acls?search={broken}",
        f"/{broken}",
    ):
        answer = console.ask(ADMIN, "GET", path)
        assert answer.status_code in {200, 400, 404}, path
        assert "set-cookie" not in answer.headers
        assert "<script>" not in answer.text or not answer.headers["content-type"].startswith("text/html"), path


def test_hostile_names_are_text_on_every_page(console: GuardedConsole) -> None:
    console.add_users([PAYLOAD])
    console.grant(PAYLOAD, operations=["all"], topics=["*", PAYLOAD], groups=["*"], cluster=True)
    quota = {"entity": {"user": PAYLOAD, "client-id": PAYLOAD}, "quotas": {"producer_byte_rate": 10**9}}
    console.good(ADMIN, "PUT", "/api/v1/quotas", quota)
    write(console, PAYLOAD)
    options = {**console.kafka, "client.id": PAYLOAD, "group.instance.id": PAYLOAD}
    with member(options.pop("bootstrap.servers"), PAYLOAD, TOPIC, **options), console.browser() as browser:
        eventually(
            lambda: PAYLOAD in console.ask(ADMIN, "GET", "/api/v1/groups").json()["groups"][0]["group"], "joined"
        )
        browser.log_in(PAYLOAD, PASSWORD)
        seen = 0
        for path in hostile_paths():
            answer = browser.open(path)
            kind = answer.headers["content-type"]
            if kind.startswith("text/html"):
                seen += 1
                for raw in ("<img src=x", "<script>alert", "alert(2)</script>", ">49<"):
                    assert raw not in answer.text, path
            else:
                assert kind.startswith(("text/plain", "application/json")), path
        assert seen > len(PAGES)


def hostile_paths() -> Iterator[str]:
    """Every page, for names that exist and for those that do not, and with a hostile query."""
    for access in PAGES:
        request = request_of(access)
        yield request.path + request.query
        yield filled(access, quote(PAYLOAD, safe=""))
        for field in ("search", "name", "principal", "key", "value", "sort", "position", "sql", "after"):
            yield f"{filled(access, TOPIC)}?{field}={quote(PAYLOAD, safe='')}"


def filled(access: RouteAccess, name: str) -> str:
    return "/".join(name if piece.startswith("{") else piece for piece in access.path.split("/"))


def test_a_password_in_a_wrong_place_is_not_repeated(console: GuardedConsole) -> None:
    secret = "a-secret-in-a-wrong-place"
    bodies: tuple[Any, ...] = (
        {"user": 1, "password": secret},
        {"user": "x", "password": [secret]},
        {"user": "x", "password": secret, "generate": True},
        {"user": "*", "password": secret},
        {"user": "x", "password": secret, "mechanisms": "none"},
    )
    for body in bodies:
        answer = console.ask(ADMIN, "POST", "/api/v1/users", body)
        assert answer.status_code == 400
        assert secret not in answer.text
    answer = console.ask(ADMIN, "POST", "/api/v1/users", content=f'{{"password": "{secret}'.encode())
    assert secret not in answer.text
    assert secret not in console.log_text()


def test_only_the_login_page_and_files_are_open(console: GuardedConsole) -> None:
    for access in ROUTES:
        if access.login is LoginNeed.LOGIN and access.method == "GET":
            answer = console.ask("", "GET", request_of(access).path, headers={"sec-fetch-mode": "navigate"})
            is_api = access.path.startswith("/api/")
            assert (answer.status_code, answer.headers.get("location")) == ((401, None) if is_api else (303, "/login"))
