"""The pages of security in a real browser: users, ACLs, quotas, and what a user may do, by mouse and by keyboard."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import NewTopic
from tests.support.chromium import console_page
from tests.support.guarded_console import ADMIN, PASSWORD, WAIT_S, GuardedConsole, guarded_console

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPT = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
CLIENT_ID = "'><svg onload=alert(3)>"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedConsole]:
    with guarded_console(tmp_path_factory.mktemp("pages")) as running:
        for future in running.admin.create_topics([NewTopic("orders", 1, 1), NewTopic("payroll", 1, 1)]).values():
            future.result(WAIT_S)
        yield running


@pytest.fixture
def page(console: GuardedConsole) -> Iterator["Page"]:
    with console_page(console.http) as opened:
        log_in(opened, ADMIN)
        yield opened


def log_in(page: "Page", name: str) -> None:
    page.goto("/login")
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Log out").wait_for()


def row(page: "Page", text: str) -> str:
    found = page.get_by_role("row").filter(has_text=text).first
    found.wait_for()
    return found.inner_text()


def test_a_user_gets_rights_and_loses_them(page: "Page", console: GuardedConsole) -> None:
    page.goto("/security")
    page.get_by_role("link", name="Users", exact=True).click()
    page.get_by_role("button", name="Add a user").click()
    dialog = page.locator("#add-user")
    dialog.get_by_label("Name").fill("shop")
    dialog.get_by_label("Generate a password").check()
    dialog.get_by_role("button", name="Add user").click()
    page.get_by_role("button", name="I have stored it").wait_for()
    password = page.locator("[data-password]").inner_text()
    assert len(password) >= 32
    page.get_by_role("button", name="I have stored it").click()
    page.get_by_text("The user was added").wait_for()
    assert password not in page.content()
    assert "none yet" in row(page, "shop")

    page.get_by_role("navigation", name="Views").get_by_role("link", name="ACLs").click()
    page.get_by_role("button", name="Grant rights").click()
    page.locator("textarea[name=principals]").fill("shop")
    page.locator("textarea[name=topics]").fill("orders\nparcels")
    page.get_by_role("button", name="Preview").click()
    review = page.locator("#review")
    review.get_by_role("heading", name="Grant 6 ACLs").wait_for()
    review.get_by_role("button", name="Grant").click()
    page.get_by_text("The rights were changed").wait_for()
    assert "6 ACLs" in row(page, "User:shop")

    page.get_by_role("link", name="Effective rights").click()
    page.get_by_label("User").fill("shop")
    page.get_by_label("Name").fill("orders")
    page.get_by_role("button", name="Explain").click()
    assert "allowed" in row(page, "allow write on topic orders to User:shop")
    assert "denied" in row(page, "alter-configs")

    page.goto("/security/acls?search=shop")
    page.get_by_role("button", name="Revoke: allow write on topic parcels to User:shop").click()
    review.get_by_role("heading", name="Revoke 1 ACL").wait_for()
    review.get_by_role("button", name="Revoke").click()
    page.get_by_text("The ACLs were revoked").wait_for()
    page.get_by_role("button", name="Revoke all ACLs of User:shop").click()
    review.get_by_role("heading", name="Revoke 5 ACLs").wait_for()
    assert review.get_by_role("button", name="Revoke").is_disabled()
    review.locator("[data-typed] input").fill("User:shop")
    review.get_by_role("button", name="Revoke").click()
    page.get_by_text("No ACL matches").wait_for()

    page.goto("/security/users")
    page.get_by_role("button", name="Remove shop").click()
    removal = page.locator("#remove-user")
    assert removal.get_by_role("button", name="Remove user").is_disabled()
    removal.get_by_label("Type the name").fill("shop")
    removal.get_by_role("button", name="Remove user").click()
    page.get_by_text("The user was removed").wait_for()
    assert page.get_by_role("cell", name="shop", exact=True).count() == 0
    assert password not in console.log_text()


def test_the_last_super_user_cannot_be_removed_by_accident(page: "Page", console: GuardedConsole) -> None:
    page.goto("/security/users")
    page.get_by_role("button", name=f"Remove {ADMIN}").click()
    removal = page.locator("#remove-user")
    removal.get_by_text("This is your own user").wait_for()
    removal.get_by_label("Type the name").fill(ADMIN)
    removal.get_by_role("button", name="Remove user").click()
    removal.get_by_role("alert").filter(has_text="the last super user").wait_for()
    assert console.ask(ADMIN, "GET", "/api/v1/me").status_code == 200


def test_quotas_are_set_changed_shown_and_removed(page: "Page") -> None:
    page.goto("/security/quotas")
    page.get_by_text("There are no quotas yet").wait_for()
    page.get_by_role("button", name="Set a quota").click()
    dialog = page.locator("#quota")
    dialog.locator("select[name=kind]").select_option("user client-id")
    dialog.locator("input[name=user]").fill("shop")
    dialog.locator("[data-entity=client-id]").get_by_label("Every one").check()
    dialog.locator("input[name=producer_byte_rate]").fill("1048576")
    dialog.get_by_role("button", name="Set").click()
    page.get_by_text("The quota was set").wait_for()
    assert "1.0 MiB/s" in row(page, "user shop, every other client-id")
    page.get_by_role("button", name="Change the quotas of user shop").click()
    assert dialog.locator("input[name=producer_byte_rate]").input_value() == "1048576"
    dialog.locator("input[name=producer_byte_rate]").fill("")
    dialog.locator("input[name=request_percentage]").fill("25")
    dialog.get_by_role("button", name="Set").click()
    page.get_by_text("The quota was set").wait_for()
    assert "producer_byte_rate" not in row(page, "25 %")
    applied = page.locator("#applied")
    applied.get_by_label("User").fill("shop")
    applied.get_by_label("Client id").fill("any")
    applied.get_by_role("button", name="Show").click()
    applied.get_by_text("request_percentage: 25, from user shop, every other client-id").wait_for()
    page.get_by_role("button", name="Remove the quotas of user shop").click()
    page.locator("#quota-removal").get_by_role("button", name="Remove").click()
    page.get_by_text("There are no quotas yet").wait_for()


def test_hostile_names_are_shown_as_text(page: "Page", console: GuardedConsole) -> None:
    console.add_users([SCRIPT])
    console.grant(SCRIPT, operations=["read"], topics=[SCRIPT], groups=[SCRIPT])
    console.good(
        ADMIN,
        "PUT",
        "/api/v1/quotas",
        {"entity": {"user": SCRIPT, "client-id": CLIENT_ID}, "quotas": {"producer_byte_rate": 1}},
    )
    alerts: list[str] = []
    page.on("dialog", lambda dialog: alerts.append(dialog.message))
    page.goto("/security/users")
    page.get_by_role("button", name=f"Remove {SCRIPT}").click()
    page.locator("#remove-user strong", has_text=SCRIPT).wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("link", name=SCRIPT).click()
    page.wait_for_url("**/security/acls?**")
    for sort in ("principal", "resource"):
        page.goto(f"/security/acls?sort={sort}")
        page.get_by_text(SCRIPT).first.wait_for()
    page.get_by_role("button", name=f"Revoke: allow read on topic {SCRIPT}").click()
    page.locator("#review td", has_text=SCRIPT).first.wait_for()
    page.goto("/security/quotas")
    page.get_by_role("button", name=f"Remove the quotas of user {SCRIPT}").click()
    page.locator("#quota-removal strong", has_text=CLIENT_ID).wait_for()
    page.goto("/security/rights")
    page.get_by_label("User").fill(SCRIPT)
    page.get_by_label("Name").fill(SCRIPT)
    page.get_by_role("button", name="Explain").click()
    assert "allowed" in row(page, f"allow read on topic {SCRIPT}")
    assert alerts == []
    assert page.locator("main img, main svg[onload]").count() == 0
    console.good(ADMIN, "POST", "/api/v1/acls/revocations", {"principals": [SCRIPT], "all": True})


def test_keyboard_alone_adds_a_user_and_grants(page: "Page", console: GuardedConsole) -> None:
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/security")
    page.get_by_role("link", name="Users", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/security/users")
    page.get_by_role("button", name="Add a user").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("keys")
    page.keyboard.press("Tab")
    page.keyboard.type("a long password")
    page.keyboard.press("Enter")
    page.get_by_text("The user was added").wait_for()
    page.goto("/security/acls")
    page.get_by_role("button", name="Grant rights").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("keys")
    page.locator("textarea[name=topics]").focus()
    page.keyboard.type("orders")
    page.get_by_role("button", name="Preview").focus()
    page.keyboard.press("Enter")
    page.locator("#review").get_by_role("button", name="Grant").wait_for()
    page.keyboard.press("Enter")
    page.get_by_text("The rights were changed").wait_for()
    granted = console.good(ADMIN, "GET", "/api/v1/acls?search=keys")
    assert granted["total"] == 3


def test_a_user_sees_only_what_its_acls_allow(console: GuardedConsole) -> None:
    console.add_users(["clerk"])
    console.grant("clerk", operations=["describe"], topics=["orders"])
    with console_page(console.http) as page:
        log_in(page, "clerk")
        page.goto("/topics")
        page.get_by_role("cell", name="orders").first.wait_for()
        assert page.get_by_text("payroll").count() == 0
        page.goto("/security")
        page.get_by_text("User:clerk").first.wait_for()
        assert page.get_by_role("navigation", name="Views of security").inner_text().split("\n") == [
            "Overview",
            "Effective rights",
        ]
        page.get_by_label("Topic or timeline").fill("orders")
        page.get_by_role("button", name="Explain").click()
        assert "allowed" in page.get_by_role("row").filter(has=page.get_by_text("describe", exact=True)).inner_text()
        for path in ("/security/users", "/security/acls", "/security/quotas", "/cluster"):
            page.goto(path)
            page.get_by_role("heading", name="Not allowed").wait_for()
            page.get_by_text("tidemill acl grant").wait_for()
