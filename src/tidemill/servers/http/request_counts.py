"""Counts the HTTP requests of each route, their duration and their errors, for metrics.

Routes come from the table of the server. Requests of other paths, and requests that are refused before a route is
found, are counted together, so a client cannot make new names.
"""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.broker.metrics import HTTP_CLIENTS, BrokerMetrics
from tidemill.model.listeners import HTTP

OTHER_PATHS = "(other)"
ERROR_STATUS_MIN = 400
EVENT_STREAM_HEADER = (b"content-type", b"text/event-stream; charset=utf-8")
REPORTS_OF_HEALTH = frozenset({"GET /health", "GET /health/ready"})
"""Their status 503 is the answer to the question and no error."""


class RequestCounts:
    """Counts requests around the application. `names` has the name of each endpoint."""

    def __init__(self, app: ASGIApp, metrics: BrokerMetrics, names: Mapping[Callable[..., Any], str]) -> None:
        self._app = app
        self._metrics = metrics
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one request and count it when its response has been sent. Streams last until the client leaves, so
        their duration is the time to their beginning."""
        status, began, network = 500, perf_counter(), self._metrics.network(HTTP_CLIENTS)
        began_stream: float | None = None

        async def noted(message: Message) -> None:
            nonlocal status, began_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                if EVENT_STREAM_HEADER in message["headers"]:
                    began_stream = perf_counter()
            network.bytes_out += len(message.get("body", b"")) + sum(map(_line_bytes, message.get("headers", ())))
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            endpoint = scope.get("endpoint")
            name = OTHER_PATHS if endpoint is None else self._names.get(endpoint, OTHER_PATHS)
            traffic = self._metrics.api(HTTP, name)
            traffic.answered((began_stream or perf_counter()) - began)
            if status >= ERROR_STATUS_MIN and name not in REPORTS_OF_HEALTH:
                traffic.failed(str(status))


def _line_bytes(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(b": \r\n") + len(header[1])
