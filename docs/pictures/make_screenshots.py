"""Photograph every page of the console, light and dark: `make screenshots`.

The pages show three brokers with traffic, and a broker with logins for the page about security. A browser that only
this program uses opens them.

    python docs/pictures/make_screenshots.py [--folder FOLDER] [--wait SECONDS] [NAME ...]
"""

# ruff: noqa: INP001 -- a program next to the pictures that it makes

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote

from confluent_kafka.admin import NewTopic

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.chromium import console_page  # noqa: E402 -- the tests are no installed package
from tests.support.console_world import Shop, running_shop  # noqa: E402
from tests.support.guarded_console import ADMIN, PASSWORD, GuardedConsole, guarded_console  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOLDER = Path(__file__).with_name("console")
WAIT_S = 150.0
"""Until the charts have a shape."""
SETTLED_MS = 700
QUERY = (
    "SELECT JSONExtractString(assumeNotNull(value), 'item') AS item, count() AS orders,\n"
    "  round(sum(JSONExtractFloat(assumeNotNull(value), 'price')), 2) AS revenue\n"
    "FROM messages WHERE topic = 'orders' GROUP BY item ORDER BY revenue DESC"
)
WIDTH, HEIGHT = 1280, 860
PHONE_WIDTH, PHONE_HEIGHT = 390, 844


class Shot(NamedTuple):
    """One picture of a page, after a click on the button `press`."""

    path: str
    press: str = ""
    is_phone: bool = False
    is_guarded: bool = False
    """Whether the broker with logins shows the page."""


SHOTS = {
    "overview": Shot("/"),
    "topics": Shot("/topics"),
    "topic": Shot("/topics/orders"),
    "partitions": Shot("/topics/orders/partitions"),
    "settings": Shot("/topics/orders/settings"),
    "records": Shot("/topics/orders/records"),
    "record": Shot("/topics/orders/records/0/7"),
    "groups": Shot("/groups"),
    "group": Shot("/groups/warehouse"),
    "timelines": Shot("/timelines"),
    "timeline": Shot("/timelines/reminders"),
    "messages": Shot("/timelines/reminders/messages"),
    "cluster": Shot("/cluster"),
    "rebalance": Shot("/cluster/rebalance"),
    "broker": Shot("/cluster/brokers/1"),
    "pipelines": Shot("/pipelines"),
    "pipeline": Shot("/pipelines/shop"),
    "logs": Shot("/logs"),
    "sql": Shot(f"/sql?query={quote(QUERY)}", press="Run"),
    "security": Shot("/security", is_guarded=True),
    "users": Shot("/security/users", is_guarded=True),
    "acls": Shot("/security/acls", is_guarded=True),
    "rights": Shot("/security/rights?principal=User:mailer&resource=topic&name=orders", is_guarded=True),
    "phone": Shot("/", is_phone=True),
}


def shoot(page: "Page", url: str, name: str, shot: Shot, folder: Path) -> None:
    """Take both pictures of a page."""
    for scheme in schemes():
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        size = (PHONE_WIDTH, PHONE_HEIGHT) if shot.is_phone else (WIDTH, HEIGHT)
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.goto(url + shot.path)
        page.wait_for_timeout(SETTLED_MS)
        if shot.press:
            page.get_by_role("button", name=shot.press, exact=True).click()
            page.get_by_role("status").filter(has_text="rows").first.wait_for()
        target = folder / f"{name}-{scheme}.png"
        page.screenshot(path=target)
        print(
            f"{target.relative_to(ROOT) if target.is_relative_to(ROOT) else target} {target.stat().st_size // 1000} KB"
        )


def take(page: "Page", url: str, folder: Path, names: Sequence[str]) -> None:
    """Take the pictures with these names."""
    for name in names:
        shoot(page, url, name, SHOTS[name], folder)


def log_in(page: "Page", url: str) -> None:
    """Log in as the administrator."""
    page.goto(f"{url}/login")
    page.get_by_label("User").fill(ADMIN)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()


@contextmanager
def running_pipeline(shop: Shop) -> Iterator[None]:
    """The pipeline of `tidemill pipeline init` over the orders of the shop, with Spark on this machine."""
    program = Path(sys.executable).with_name("tidemill")
    with TemporaryDirectory() as folder:
        environment = os.environ | {"TIDEMILL_BOOTSTRAP": shop.brokers.bootstrap}
        subprocess.run([program, "pipeline", "init", "shop"], cwd=folder, env=environment, check=True)  # noqa: S603
        running = subprocess.Popen([program, "pipeline", "run", "shop"], cwd=folder, env=environment)  # noqa: S603
        try:
            yield
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()


@contextmanager
def guarded_shop() -> Iterator[GuardedConsole]:
    """A broker with logins, and what the users of the shop may do."""
    with TemporaryDirectory() as folder, guarded_console(Path(folder)) as running:
        for future in running.admin.create_topics([NewTopic("orders", 3, 1), NewTopic("payments", 3, 1)]).values():
            future.result()
        running.add_users(["mailer", "shop", "warehouse"])
        running.grant("User:shop", topics=["orders", "payments"], producer=True)
        running.grant("User:mailer", "User:warehouse", topics=["orders"], groups=["billing"], consumer=True)
        yield running


def schemes() -> tuple[Literal["light", "dark"], ...]:
    """Both colour schemes."""
    return ("light", "dark")


def main() -> None:
    """Start the brokers, wait, and take the pictures."""
    parser = argparse.ArgumentParser(description="Photograph every page of the console.")
    parser.add_argument("names", nargs="*", help=f"pictures to take (default: all): {', '.join(SHOTS)}")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go")
    parser.add_argument("--wait", type=float, default=WAIT_S, help="seconds of traffic before the first picture")
    asked = parser.parse_args()
    unknown = [each for each in asked.names if each not in SHOTS]
    if unknown:
        parser.error(f"there is no picture {unknown[0]}; choose from: {', '.join(SHOTS)}")
    wanted = asked.names or list(SHOTS)
    asked.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        shop: Shop = opened.enter_context(running_shop())
        if any(each.startswith("pipeline") for each in wanted):
            opened.enter_context(running_pipeline(shop))
        print(f"three brokers with traffic for {asked.wait:.0f} s")
        time.sleep(asked.wait)
        page = opened.enter_context(console_page(shop.url(1)))
        take(page, shop.url(1), asked.folder, [each for each in wanted if not SHOTS[each].is_guarded])
        if guarded := [each for each in wanted if SHOTS[each].is_guarded]:
            secured = opened.enter_context(guarded_shop())
            log_in(page, secured.http)
            take(page, secured.http, asked.folder, guarded)


if __name__ == "__main__":
    main()
