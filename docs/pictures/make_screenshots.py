"""Photograph every page of the console, light and dark: `make screenshots`.

The pages show three brokers with traffic, and a broker with logins for the page about security. A browser that only
this program uses opens them.

    python docs/pictures/make_screenshots.py [--folder FOLDER] [--wait SECONDS] [NAME ...]
"""

# ruff: noqa: INP001 -- a program next to the pictures that it makes

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.chromium import console_page  # noqa: E402 -- the tests are no installed package
from tests.support.console_world import Shop, running_shop  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOLDER = Path(__file__).with_name("console")
WAIT_S = 150.0
"""Until the charts have a shape."""
SETTLED_MS = 700
WIDTH, HEIGHT = 1280, 860
PHONE_WIDTH, PHONE_HEIGHT = 390, 844


class Shot(NamedTuple):
    """One picture. `show` scrolls to a part of the page."""

    path: str
    show: str = ""
    is_phone: bool = False


SHOTS = {
    "overview": Shot("/"),
    "topics": Shot("/topics"),
    "topic": Shot("/topics/orders"),
    "records": Shot("/topics/orders/records"),
    "groups": Shot("/groups"),
    "group": Shot("/groups/warehouse"),
    "timelines": Shot("/timelines"),
    "timeline": Shot("/timelines/reminders"),
    "messages": Shot("/timelines/reminders/messages"),
    "cluster": Shot("/cluster"),
    "rebalance": Shot("/cluster/rebalance"),
    "broker": Shot("/cluster/brokers/1"),
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
        if shot.show:
            page.locator(shot.show).first.scroll_into_view_if_needed()
        target = folder / f"{name}-{scheme}.png"
        page.screenshot(path=target)
        print(
            f"{target.relative_to(ROOT) if target.is_relative_to(ROOT) else target} {target.stat().st_size // 1000} KB"
        )


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
    asked.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        shop: Shop = opened.enter_context(running_shop())
        print(f"three brokers with traffic for {asked.wait:.0f} s")
        time.sleep(asked.wait)
        page = opened.enter_context(console_page(shop.url(1)))
        for name, shot in SHOTS.items():
            if not asked.names or name in asked.names:
                shoot(page, shop.url(1), name, shot, asked.folder)


if __name__ == "__main__":
    main()
