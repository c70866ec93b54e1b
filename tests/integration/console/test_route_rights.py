"""Every route of the console and of its API: without a login, without rights, with rights, read-only, and forged.

Requests are those of `tests/support/route_requests.py`.
"""

import threading
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer
from tests.support.browser import FormBrowser, hidden_fields
from tests.support.guarded_console import ADMIN, PASSWORD, GuardedConsole, guarded_console
from tests.support.route_requests import MARK, REQUESTS, fill, request_of, state_of, with_member
from tests.support.waiting import eventually

from tidemill.servers.http.api.dispatch import READONLY
from tidemill.servers.http.core.authorization_table import ROUTES
from tidemill.servers.http.core.route_access import PAGE, LoginNeed, RouteAccess

STRANGER, HOLDER = "stranger", "holder"
STREAM = "text/event-stream"
FOR_USERS = [each for each in ROUTES if each.login is LoginNeed.LOGIN]
READS = [each for each in FOR_USERS if not each.changes and (each.shapes is None or each.shapes.media_type != STREAM)]
READING = {"POST /api/v1/sql", "POST /sql/chart", "POST /api/v1/parts/{name}", "POST /login", "POST /logout"}
"""Queries are bodies because they are long; parts are for other brokers, which check the right of the change."""
CHANGES = [each for each in ROUTES if each.changes]
FORMS = [each for each in ROUTES if each.method != "GET" and each.login is LoginNeed.LOGIN]


def name_of(access: RouteAccess) -> str:
    return access.name


class WatchedConsole:
    """A console with data, and a member of a group that polls."""

    def __init__(self, console: GuardedConsole) -> None:
        self.console = console
        console.add_users([STRANGER, HOLDER])
        everything = {"topics": ["*"], "groups": ["*"], "transactional_ids": ["*"], "cluster": True}
        console.grant(HOLDER, operations=["all"], **everything)
        self._member = fill(console)
        self._stop = threading.Event()
        self._polling = threading.Thread(target=self._poll, args=(self._member,))
        self._polling.start()

    def _poll(self, member: Consumer) -> None:
        while not self._stop.is_set():
            member.poll(0.1)

    def close(self) -> None:
        self._stop.set()
        self._polling.join()
        self._member.close()

    def send(self, name: str, access: RouteAccess, **options: object) -> httpx.Response:
        request = with_member(self.console, request_of(access))
        return self.console.ask(name, access.method, request.path + request.query, request.body, **options)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedConsole]:
    with guarded_console(tmp_path_factory.mktemp("rights")) as running:
        made = WatchedConsole(running)
        try:
            yield made
        finally:
            made.close()


def test_every_route_that_is_not_get_has_a_request_in_the_table() -> None:
    """Add one to tests/support/route_requests.py with a new route."""
    assert {each.name for each in FORMS} <= REQUESTS.keys()
    assert REQUESTS.keys() <= {each.name for each in ROUTES}


def test_changes_are_those_that_do_not_only_read() -> None:
    """Otherwise a read-only console would let them through. A new name in READING needs a reason."""
    assert {each.name for each in ROUTES if each.method != "GET" and not each.changes} == READING


def test_no_route_answers_a_client_without_a_login(watched: WatchedConsole) -> None:
    before = state_of(watched.console)
    for access in FOR_USERS:
        answer = watched.send("", access)
        assert answer.status_code == 401, access.name
        assert MARK not in answer.text, access.name
    assert state_of(watched.console) == before


def test_no_route_shows_or_changes_anything_without_rights(watched: WatchedConsole) -> None:
    before = state_of(watched.console)
    for access in READS:
        answer = watched.send(STRANGER, access)
        # `explain` repeats the name that it was asked for, and says that nothing is allowed.
        is_echo = MARK in str(answer.request.url)
        assert answer.status_code in ({200, 403, 404} if not is_echo or "rights" in access.path else {403, 404}), access
        if answer.status_code == 200 and not is_echo:
            assert MARK not in answer.text, access.name
        if access.method == "GET" and access.shapes is not None and access.shapes.media_type == PAGE:
            assert answer.headers["content-type"].startswith("text/html"), access.name
    for access in CHANGES:
        answer = watched.send(STRANGER, access)
        assert answer.status_code in {403, 404}, (access.name, answer.text)
        assert set(answer.json()) == {"error"}
    assert state_of(watched.console) == before
    assert {each["who"] for each in watched.console.audit()} <= {f"User:{ADMIN}"}


def test_a_change_in_a_session_needs_the_token_of_its_page(watched: WatchedConsole) -> None:
    before = state_of(watched.console)
    with watched.console.browser() as browser, watched.console.browser() as other:
        browser.log_in(HOLDER, PASSWORD)
        other.log_in(ADMIN, PASSWORD)
        foreign = token_of(other)
        assert foreign != token_of(browser)
        for access in FORMS:
            request = with_member(watched.console, request_of(access))
            for token in ({}, {"x-csrf-token": ""}, {"x-csrf-token": "0" * 64}, {"x-csrf-token": foreign}):
                answer = browser.request(access.method, request.path + request.query, json=request.body, headers=token)
                assert answer.status_code == 403, access.name
                assert "token of its page" in answer.text
    assert state_of(watched.console) == before


def token_of(browser: FormBrowser) -> str:
    return hidden_fields(browser.open("/security"))["token"]


def test_a_read_only_console_changes_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("read-only")
    with guarded_console(folder) as running:
        running.add_users([HOLDER])
        running.grant(HOLDER, operations=["all"], cluster=True)
    with guarded_console(folder, is_readonly=True) as running:
        users = running.good(ADMIN, "GET", "/api/v1/users")
        for access in CHANGES:
            request = request_of(access)
            for name in (ADMIN, HOLDER):
                answer = running.ask(name, access.method, request.path + request.query, request.body)
                if name == ADMIN or "cluster" in access.path or "users" in access.path:
                    assert (answer.status_code, answer.json()["error"]) == (403, READONLY), access.name
        assert running.audit() == []
        assert running.good(ADMIN, "GET", "/api/v1/users") == users
        assert running.good(ADMIN, "GET", "/api/v1/me")["is_readonly"]
        for path in ("/security", "/security/users", "/security/acls", "/security/quotas", "/topics", "/timelines"):
            page = running.ask(ADMIN, "GET", path)
            assert page.status_code in {200, 404}
            assert "data-api=" not in page.text, path


def test_every_route_works_with_rights_and_every_change_is_audited(watched: WatchedConsole) -> None:
    """The last test, because it changes what the others look at."""
    console = watched.console
    for access in READS:
        answer = watched.send(HOLDER, access)
        assert answer.status_code == (request_of(access).status or 200), (access.name, answer.text[:300])
        assert "public" not in answer.headers["cache-control"], access.name
    for access in CHANGES:
        request = request_of(access)
        seen = len(changes_by(console, HOLDER))
        answer = watched.send(HOLDER, access)
        assert answer.status_code in ({request.status} if request.status else {200, 204}), (access.name, answer.text)
        if not request.no_audit:
            await_changes(console, seen + 1)
    assert {each["who"] for each in console.audit()} <= {f"User:{ADMIN}", f"User:{HOLDER}"}
    assert {each["host"] for each in console.audit()} == {"127.0.0.1"}


def await_changes(console: GuardedConsole, count: int) -> None:
    eventually(lambda: len(changes_by(console, HOLDER)) >= count, f"change {count} is audited")


def changes_by(console: GuardedConsole, name: str) -> list[str]:
    return [each["what"] for each in console.audit() if each["who"] == f"User:{name}"]
