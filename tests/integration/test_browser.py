"""The console in a real browser (Debian's Chromium): log in, see the page, log out. The page obeys its own policy."""

import re
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.certificates import Authority

from tidemill.testing import Broker

if TYPE_CHECKING:
    from playwright.sync_api import Page

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; run: make setup")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("there is no chromium; run: .ci/system tests", allow_module_level=True)

ADMIN, PASSWORD = "admin", "admin-password"
WAIT_S = 60.0
WAIT_MS = 60_000.0
REFUSED = re.compile(r"the server responded with a status of (401|403) ")
"""What the browser notes about a refused form."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(settings=settings, flags={"grpc": "none"}, admin_password=PASSWORD) as running:
        admin = AdminClient(
            {
                "bootstrap.servers": running.bootstrap_servers,
                "security.protocol": "sasl_ssl",
                "ssl.ca.location": authority.path,
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": ADMIN,
                "sasl.password": PASSWORD,
            }
        )
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)
        yield running


@pytest.fixture
def page(broker: Broker) -> Iterator["Page"]:
    """A page of a browser that trusts the certificate, and fails the test when something is blocked."""
    with sync_api.sync_playwright() as playwright:
        # The sandbox of Chromium does not run as root, as which CI runs tests. The pages here are our own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(ignore_https_errors=True, base_url=broker.http)
        opened = context.new_page()
        opened.set_default_timeout(WAIT_MS)
        complaints: list[str] = []
        opened.on("console", lambda message: complaints.append(message.text))
        opened.on("dialog", lambda dialog: complaints.append(dialog.message))
        yield opened
        browser.close()
    assert [each for each in complaints if not REFUSED.search(each)] == []


def log_in(page: "Page", name: str, password: str) -> None:
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_person_logs_in_and_out(page: "Page") -> None:
    page.goto("/")
    assert page.url.endswith("/login")
    log_in(page, ADMIN, PASSWORD)
    page.get_by_role("heading", name="Overview").wait_for()
    page.goto("/topics")
    assert page.get_by_role("cell", name="orders").count() == 1
    # The style comes from its own path, and nothing else is allowed.
    assert page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") != "none"
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Password").wait_for()
    page.goto("/")
    assert page.url.endswith("/login")


def test_a_wrong_password_and_a_name_with_markup(page: "Page") -> None:
    page.goto("/login")
    log_in(page, "<img src=x onerror=alert(1)>", "wrong")
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text() == "The user or the password is wrong."
    assert page.get_by_label("User").input_value() == "<img src=x onerror=alert(1)>"
    log_in(page, ADMIN, PASSWORD)
    page.get_by_role("button", name="Log out").wait_for()


def test_a_page_of_another_site_cannot_use_the_session(page: "Page", broker: Broker) -> None:
    page.goto("/login")
    log_in(page, ADMIN, PASSWORD)
    page.get_by_role("button", name="Log out").wait_for()
    form = f'<form method="post" action="{broker.http}/logout"><button>Win a prize</button></form>'
    page.route("https://evil.example/", lambda route: route.fulfill(body=form, content_type="text/html"))
    page.goto("https://evil.example/")
    with page.expect_response(f"{broker.http}/logout") as answer:
        page.get_by_role("button").click()
    assert answer.value.status == 403
    assert "cookie" not in answer.value.request.all_headers()
    page.goto(f"{broker.http}/")
    page.get_by_role("button", name="Log out").wait_for()
