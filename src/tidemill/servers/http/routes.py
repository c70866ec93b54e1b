"""The pages and documents of the HTTP server. All of them are read-only, and all user-defined names are escaped."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from tidemill.broker.broker import BrokerNode
from tidemill.broker.prometheus import registry_of, render
from tidemill.servers.http.bounded_protocol import BoundedProtocol, Identify
from tidemill.servers.http.broker_summary import health_of, status_of, timelines_of, topics_of, unready
from tidemill.servers.http.front_page import ROWS_SHOWN_MAX, front_page
from tidemill.servers.http.request_origin import AllowedOrigins
from tidemill.servers.http.server import Ask, Tell
from tidemill.servers.http.sql_api import sql_endpoint, table_endpoint

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
API = "/api/"
REFUSALS = {404: "{path} does not exist; / lists the endpoints", 405: "{path} does not accept {method}"}
PATH_SHOWN_CHARS = 100
SAFETY_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class SafetyHeaders:
    """Adds the security headers to every answer.

    It does not use the framework's base class, which fails with a traceback when a client disconnects before its
    answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SAFETY_HEADERS)
            await send(message)

        await self._app(scope, receive, send_safely)


class CallerCheck:
    """Rejects requests that are not allowed, before any other code sees them."""

    def __init__(self, app: ASGIApp, callers: AllowedOrigins) -> None:
        self._app = app
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject or pass on one request."""
        refusal = self._callers.refuse(scope["method"], scope["path"], scope["headers"])
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await _problem(scope["path"], refusal.status, refusal.reason)(scope, receive, send)


def make_app(
    broker: BrokerNode, facts: Callable[[], Mapping[str, str]], ask: Ask, tell: Tell, callers: AllowedOrigins
) -> Starlette:
    """Build the application for one broker."""
    registry = registry_of(broker.metrics, broker.partitions)

    async def front(_: Request) -> Response:
        shown = topics_of(broker, first=ROWS_SHOWN_MAX)
        left = len(broker.view.topics()) - len(shown)
        return HTMLResponse(
            front_page(facts(), health_of(broker), status_of(broker), shown, timelines_of(broker), topics_left=left)
        )

    async def metrics(_: Request) -> Response:
        return Response(render(registry), media_type=METRICS_TYPE)

    async def live(_: Request) -> Response:
        return PlainTextResponse("live\n")

    async def ready(_: Request) -> Response:
        problems = unready(broker)
        if problems:
            return PlainTextResponse("not ready\n" + "\n".join(problems) + "\n", status_code=503)
        return PlainTextResponse("ready\n")

    async def health(_: Request) -> Response:
        found = health_of(broker)
        return JSONResponse(found, status_code=200 if found["state"] == "healthy" else 503)

    async def status(_: Request) -> Response:
        return JSONResponse({**status_of(broker), "runs": dict(facts())})

    async def topics(_: Request) -> Response:
        return JSONResponse({"topics": topics_of(broker)})

    async def timelines(_: Request) -> Response:
        return JSONResponse({"timelines": timelines_of(broker)})

    routes = [
        Route("/", front),
        Route("/metrics", metrics),
        Route("/health", health),
        Route("/health/live", live),
        Route("/health/ready", ready),
        Route("/api/status", status),
        Route("/api/topics", topics),
        Route("/api/timelines", timelines),
        Route("/api/sql", sql_endpoint(ask), methods=["POST"]),
        Route("/api/tables/{name}", table_endpoint(tell)),
    ]
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(SafetyHeaders),
            Middleware(CallerCheck, callers=callers),
        ],
        exception_handlers={HTTPException: _refused},
    )


async def _refused(request: Request, error: Exception) -> Response:
    """Answer an error such as 404 or 405: JSON for the API, one line of text otherwise."""
    code, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (500, None)
    path = request.url.path
    reason = REFUSALS.get(code, "{method} {path} is not allowed").format(
        method=request.method, path=path[:PATH_SHOWN_CHARS]
    )
    return _problem(path, code, reason, headers)


def _problem(path: str, status: int, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    if path.startswith(API):
        return JSONResponse({"error": reason}, status_code=status, headers=headers)
    return PlainTextResponse(f"{reason}\n", status_code=status, headers=headers)


def protocol_factory(
    app: Starlette, identify: Identify, *, keep_alive_s: int
) -> tuple[ServerState, Callable[[], asyncio.Protocol]]:
    """Return uvicorn's HTTP protocol without its server: the node owns the loop, signals and shutdown."""
    config = Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=keep_alive_s,
        ws="none",
    )
    config.load()
    state = ServerState()

    def make() -> asyncio.Protocol:
        return BoundedProtocol(config=config, server_state=state, app_state=_no_state(), identify=identify)

    return state, make


def _no_state() -> dict[str, Any]:
    return {}
