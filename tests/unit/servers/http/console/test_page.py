"""Pages: they are rendered one at a time, so that the event loop shares the interpreter with one thread."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.console import page
from tidemill.servers.http.console.page import Page, page_endpoint
from tidemill.servers.http.core.route_access import LoginNeed, RouteAccess

PAGES = 4
OVERLAP_S = 0.05


class Renderer:
    """Renders nothing, and counts how many threads do so at the same time."""

    def __init__(self) -> None:
        self.most = 0
        self._running = 0
        self._done = threading.Event()

    def render(self, template: str, _: Any) -> str:
        self._running += 1
        self.most = max(self.most, self._running)
        self._done.wait(OVERLAP_S)
        self._running -= 1
        return template


async def test_pages_are_rendered_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Renderer()
    monkeypatch.setattr(page, "render", renderer.render)

    async def handler(_: ApiContext, __: ApiCall[Any, Any]) -> Page:
        return Page("Title", "some.html")

    context: Any = SimpleNamespace(is_readonly=False, broker=SimpleNamespace(node_id=1))
    client: Any = SimpleNamespace(session_id=None, has_logged_in=False)
    logins: Any = None
    endpoint = page_endpoint(RouteAccess("GET", "/some", LoginNeed.NONE), handler, context, logins)
    request = Request({"type": "http", "method": "GET", "path": "/some", "query_string": b"", "headers": []})
    answers = await asyncio.gather(*(endpoint(request, client) for _ in range(PAGES)))
    assert [each.body for each in answers] == [b"some.html"] * PAGES
    assert renderer.most == 1
