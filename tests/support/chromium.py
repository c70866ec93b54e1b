"""A page of Debian's Chromium. A script error, or anything that the page's own policy blocks, fails the test."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium")
WAIT_MS = 15_000.0
REFUSED = "the server responded with a status of 4"
"""What the browser notes about a request that the API refuses; pages show the reason."""


@contextmanager
def console_page(url: str, *, width: int = 1280, height: int = 900) -> Iterator["Page"]:
    """An open page of a console."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; run: make setup")
    if CHROMIUM is None:
        pytest.skip("there is no chromium; run: .ci/system tests")
    problems: list[str] = []
    with sync_api.sync_playwright() as playwright:
        # The sandbox of Chromium does not run as root, as which CI runs tests. The pages here are our own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(base_url=url, viewport={"width": width, "height": height})
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: problems.append(f"script: {error}"))
        page.on("console", lambda note: problems.append(note.text) if note.type == "error" else None)
        yield page
        browser.close()
    assert [each for each in problems if REFUSED not in each] == []
