"""A page of the console: a template and its values, and the endpoint that renders it.

Templates escape every value. A page has no script and no style inside: both come from static files, and the content
security policy forbids others. So a name or a record is text, whatever it contains.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tidemill.model.errors import TidemillError
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.api_problem import DENIALS, ApiProblem, status_of_error
from tidemill.servers.http.api.dispatch import Endpoint, decoded_call
from tidemill.servers.http.console.rendering import render
from tidemill.servers.http.core.route_access import RouteAccess
from tidemill.servers.http.logins import HttpClient, HttpLogins
from tidemill.servers.http.responses import CONTENT_POLICY

PAGE_HEADERS = {
    CONTENT_POLICY: "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
}
RENDERER = ThreadPoolExecutor(1, thread_name_prefix="console-pages")
"""A large page takes tens of milliseconds; a thread makes it while the event loop serves other clients. There is one
thread, because threads that compute take turns with the event loop: with several, Kafka clients would wait longer.
"""
PROBLEM_TEMPLATE = "problem.html"
MISSING_TEMPLATE = "missing.html"


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its title, its template, and the values of the template."""

    title: str
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


PageHandler = Callable[[ApiContext, ApiCall[Any, Any]], Awaitable[Page | Response]]


def page_endpoint(access: RouteAccess, handler: PageHandler, context: ApiContext, logins: HttpLogins) -> Endpoint:
    """The endpoint of a page."""

    async def endpoint(request: Request, client: HttpClient) -> Response:
        try:
            page = await handler(context, await decoded_call(access, context, request, client))
        except ApiProblem as error:
            page = _problem(error.status, str(error))
        except DENIALS:
            raise  # `guarded` adds what an administrator can do
        except TidemillError as error:
            page = _problem(status_of_error(error), str(error))
        if isinstance(page, Response):
            return page
        return await _rendered(page, request, context, client, logins)

    return endpoint


async def refusal_page(
    request: Request, client: HttpClient, reason: str, context: ApiContext, logins: HttpLogins
) -> Response:
    """The page for a client that may not see the one it asked for."""
    return await _rendered(_problem(403, reason), request, context, client, logins)


def missing_page(path: str) -> Response:
    """The page for a path that no route has. It has no navigation, because the client has not logged in here."""
    return HTMLResponse(render(MISSING_TEMPLATE, {"missing": path}), status_code=404, headers=PAGE_HEADERS)


def _problem(status: int, reason: str) -> Page:
    title = "Not found" if status == 404 else "Not allowed" if status == 403 else "This page cannot be shown"
    return Page(title, PROBLEM_TEMPLATE, {"reason": reason, "status": status}, status)


async def _rendered(
    page: Page, request: Request, context: ApiContext, client: HttpClient, logins: HttpLogins
) -> Response:
    token = None if client.session_id is None else logins.session_token(client.session_id)
    values = {
        **page.values,
        "title": page.title,
        "path": request.url.path,
        "query": dict(request.query_params),
        "visitor": client.rights.principal.name if client.has_logged_in else None,
        "form_token": token,
        "node_id": context.broker.node_id,
        "is_readonly": context.is_readonly,
    }
    text = await asyncio.get_running_loop().run_in_executor(RENDERER, render, page.template, values)
    return HTMLResponse(text, status_code=page.status, headers=PAGE_HEADERS)
