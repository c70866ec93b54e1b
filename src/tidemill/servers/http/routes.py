"""The pages and documents of the HTTP server. All user-defined names are escaped, and no record is shown as a page.

The routes are made from `core/authorization_table.py`. A handler runs after the login and the rights of its row were
checked, and gets the client. A change that a session makes needs a token that only a page of this server has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from tidemill.broker.broker import BrokerNode
from tidemill.broker.metrics import BrokerMetrics
from tidemill.broker.peer_access import peer_access
from tidemill.broker.prometheus import MetricsPage
from tidemill.model.errors import (
    RequestTimedOut,
    SaslAuthenticationFailed,
)
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.acting_clients import ActingClients
from tidemill.servers.http.api.api_call import EncodedPath, read_body
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.api_problem import DENIALS, ApiProblem
from tidemill.servers.http.api.broker_parts import BrokerParts
from tidemill.servers.http.api.dispatch import Endpoint, api_endpoint
from tidemill.servers.http.api.event_stream import EventStreams
from tidemill.servers.http.api.handlers import HANDLERS, PARTS
from tidemill.servers.http.api.schema_registry import SchemaRegistry
from tidemill.servers.http.bounded_protocol import BoundedProtocol, Identify
from tidemill.servers.http.broker_summary import (
    health_of,
    least_health_of,
    status_of,
    timelines_of,
    topics_of,
    unready,
    visible_topics,
)
from tidemill.servers.http.console.page import missing_page, page_endpoint, refusal_page
from tidemill.servers.http.console.pages import PAGES
from tidemill.servers.http.console.static import serve_static
from tidemill.servers.http.core.authorization_table import ROUTES
from tidemill.servers.http.core.metrics_format import MetricsFormat, metrics_format
from tidemill.servers.http.core.route_access import PAGE, LoginNeed, RouteAccess
from tidemill.servers.http.login_form import LoginForm
from tidemill.servers.http.logins import HttpClient, HttpLogins
from tidemill.servers.http.request_counts import RequestCounts
from tidemill.servers.http.request_origin import SAFE_METHODS, AllowedOrigins
from tidemill.servers.http.responses import SafetyHeaders, login_required, problem, wants_page
from tidemill.servers.http.server import SqlQueries
from tidemill.servers.http.sql_tables import table_endpoint

DETAIL_PARTITION = "partition"
REFUSALS = {
    404: "{path} does not exist; the console is at /, and /api/v1/openapi.json lists the API",
    405: "{path} does not accept {method}",
}
PATH_SHOWN_CHARS = 100
TOKEN_HEADER = "x-csrf-token"  # noqa: S105 -- the name of a header
Refuse = Callable[[Request, HttpClient, str], Awaitable[Response]]
Facts = Callable[[], Mapping[str, str]]


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
            await problem(scope["path"], refusal.status, refusal.reason)(scope, receive, send)


class Documents:
    """The handlers of pages and documents about the broker."""

    def __init__(self, broker: BrokerNode, facts: Facts) -> None:
        self._broker = broker
        self._facts = facts
        self._metrics = MetricsPage(broker.metrics)

    async def metrics(self, request: Request, _: HttpClient) -> Response:
        """`GET /metrics`, with `?detail=partition` also by partition."""
        detail = request.query_params.get("detail")
        if detail not in (None, DETAIL_PARTITION):
            reason = f"detail={detail[:PATH_SHOWN_CHARS]} is unknown; leave it out, or use detail={DETAIL_PARTITION}"
            return problem(request.url.path, 400, reason)
        by_partition = detail == DETAIL_PARTITION
        chosen = metrics_format(request.headers.get("accept", ""))
        is_openmetrics = chosen is MetricsFormat.OPENMETRICS
        text = await self._metrics.text(by_partition=by_partition, is_openmetrics=is_openmetrics)
        return Response(text, headers={"content-type": chosen.value, "vary": "Accept"})

    async def live(self, _: Request, __: HttpClient) -> Response:
        """`GET /health/live`."""
        return PlainTextResponse("live\n")

    async def ready(self, _: Request, client: HttpClient) -> Response:
        """`GET /health/ready`."""
        problems = unready(self._broker)
        if not problems:
            return PlainTextResponse("ready\n")
        shown = problems if describes_cluster(client) else []
        return PlainTextResponse("\n".join(["not ready", *shown]) + "\n", status_code=503)

    async def health(self, _: Request, client: HttpClient) -> Response:
        """`GET /health`."""
        found = health_of(self._broker)
        shown = found if describes_cluster(client) else least_health_of(found)
        return JSONResponse(shown, status_code=200 if found["state"] == "healthy" else 503)

    async def status(self, _: Request, __: HttpClient) -> Response:
        """`GET /api/status`."""
        return JSONResponse({**status_of(self._broker), "runs": dict(self._facts())})

    async def topics(self, _: Request, client: HttpClient) -> Response:
        """`GET /api/topics`."""
        topics = visible_topics(self._broker, client.rights)
        return JSONResponse({"topics": topics_of(self._broker, client.rights, topics)})

    async def timelines(self, _: Request, client: HttpClient) -> Response:
        """`GET /api/timelines`."""
        return JSONResponse({"timelines": timelines_of(self._broker, client.rights)})


def describes_cluster(client: HttpClient) -> bool:
    """Whether the client may see the state of the broker and of the cluster."""
    return client.rights.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def handlers_of(context: ApiContext, logins: HttpLogins) -> dict[str, Endpoint]:
    """The handler of each route."""
    documents, form = Documents(context.broker, context.facts), LoginForm(logins)
    rows = {each.name: each for each in ROUTES}
    return {
        **{name: api_endpoint(rows[name], handler, context) for name, handler in HANDLERS.items()},
        **{name: page_endpoint(rows[name], handler, context, logins) for name, handler in PAGES.items()},
        "GET /static/{name}": serve_static,
        "GET /login": form.show,
        "POST /login": form.log_in,
        "POST /logout": form.log_out,
        "GET /metrics": documents.metrics,
        "GET /health": documents.health,
        "GET /health/live": documents.live,
        "GET /health/ready": documents.ready,
        "GET /api/status": documents.status,
        "GET /api/topics": documents.topics,
        "GET /api/timelines": documents.timelines,
        "GET /api/tables/{name}": table_endpoint(context.sql),
    }


def guarded(
    access: RouteAccess, handler: Endpoint, logins: HttpLogins, refuse: Refuse
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of a route: it checks the login and the rights of its row, then calls the handler.

    `refuse` answers a client that has logged in and lacks a right.
    """

    async def endpoint(request: Request) -> Response:
        path = request.url.path
        try:
            # The token of a broker is for one body, so the body is read first.
            signed = request.state.body = await read_body(request) if access.login is LoginNeed.BROKER else b""
            client = await logins.client(request.scope, access.login, f"{access.method} {path}", signed)
            if client.session_id is not None and not _is_own_page(request, access, client.session_id, logins):
                return problem(path, 403, f"a change in a session needs the token of its page in {TOKEN_HEADER}")
            try:
                for right in access.rights:
                    if right.is_required:
                        client.rights.check(right.operation, right.resource_type, CLUSTER_NAME)
                return await handler(request, client)
            except DENIALS as error:
                return await refuse(request, client, f"{error}; {_next_step(logins)}")
        except SaslAuthenticationFailed as error:
            if access.login is LoginNeed.BROKER:
                return problem(path, 403, str(error))
            return login_required(request, str(error))
        except RequestTimedOut as error:
            return problem(path, 503, str(error))
        except ApiProblem as error:
            return problem(path, error.status, str(error))

    return endpoint


def _refusal_of(access: RouteAccess, context: ApiContext, logins: HttpLogins) -> Refuse:
    """How a route refuses a client that lacks a right: a page of the console by a page with its navigation."""
    is_page = access.shapes is not None and access.shapes.media_type == PAGE

    async def refuse(request: Request, client: HttpClient, reason: str) -> Response:
        if is_page:
            return await refusal_page(request, client, reason, context, logins)
        return problem(request.url.path, 403, reason)

    return refuse


def _is_own_page(request: Request, access: RouteAccess, session_id: str, logins: HttpLogins) -> bool:
    """Whether a request of a session comes from a page of this server. Endpoints of forms check it by themselves."""
    if request.method in SAFE_METHODS or access.has_form:
        return True
    return logins.is_session_token(session_id, request.headers.get(TOKEN_HEADER))


def _next_step(logins: HttpLogins) -> str:
    if not logins.requires_login:
        return f"this server logs no clients in (tidemill.http.security={logins.protocol})"
    return "an administrator can allow it with: tidemill acl grant"


def make_context(
    broker: BrokerNode, facts: Facts, sql: SqlQueries, logins: HttpLogins, *, is_readonly: bool
) -> ApiContext:
    """What the handlers of the API and of the console share."""
    access = peer_access(broker)
    streams = EventStreams(lambda client: logins.is_over(client, broker.clock_ms()))
    parts, acting = BrokerParts(broker, access, PARTS), ActingClients(broker, access)
    schemas = SchemaRegistry(broker.settings.tidemill_registry_url)
    return ApiContext(broker, facts, sql, parts, acting, streams, schemas, is_readonly)


def make_app(context: ApiContext, logins: HttpLogins, callers: AllowedOrigins) -> Starlette:
    """Build the application for one broker."""
    handlers = handlers_of(context, logins)
    routes = []
    names = {}
    for each in ROUTES:
        endpoint = guarded(each, handlers[each.name], logins, _refusal_of(each, context, logins))
        names[endpoint] = each.name
        routes.append(Route(each.path, endpoint, methods=[each.method]))
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(EncodedPath),
            Middleware(RequestCounts, metrics=context.broker.metrics, names=names),
            Middleware(SafetyHeaders, is_secure=logins.is_secure),
            Middleware(CallerCheck, callers=callers),
        ],
        exception_handlers={HTTPException: _refused},
    )


async def _refused(request: Request, error: Exception) -> Response:
    """Answer an error such as 404 or 405: a page for a person, JSON for the API, one line of text otherwise."""
    code, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (500, None)
    path = request.url.path
    reason = REFUSALS.get(code, "{method} {path} is not allowed").format(
        method=request.method, path=path[:PATH_SHOWN_CHARS]
    )
    if code == 404 and wants_page(request):
        return missing_page(unquote(path)[:PATH_SHOWN_CHARS])
    return problem(path, code, reason, headers)


def protocol_factory(
    app: Starlette, identify: Identify, metrics: BrokerMetrics, *, keep_alive_s: int
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
        # A client could name another address in these headers, and addresses count for ACLs and for limits.
        proxy_headers=False,
    )
    config.load()
    state = ServerState()

    def make() -> asyncio.Protocol:
        return BoundedProtocol(
            config=config, server_state=state, app_state=_no_state(), identify=identify, metrics=metrics
        )

    return state, make


def _no_state() -> dict[str, Any]:
    return {}
