"""`POST /api/sql`: runs a SQL query and returns JSON, CSV or Parquet.

The body is JSON: `{"sql": "SELECT ...", "format": "json" | "csv" | "parquet"}`; `"skip_unreadable": true` skips record
batches that cannot be read. The content type must be JSON. A page of another site cannot send that without a CORS
preflight request, so it cannot run queries through a visitor's browser.

`GET /api/tables/NAME`: this broker's part of a table as an Arrow stream, for the broker that runs a query.
"""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.http.api.dispatch import Endpoint
from tidemill.servers.http.logins import HttpClient
from tidemill.servers.http.server import Ask, Tell
from tidemill.sql.core.errors import SqlBusy, SqlRefused, SqlUnavailable

MEDIA_TYPES = {"json": "application/json", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
BODY_BYTES_MAX = 256 * 1024


def has_any_right(rights: ClientRights) -> bool:
    """Whether a query of the client can have rows at all. Without, it only costs the broker time."""
    return any(
        rights.allows_anywhere(operation, resource_type)
        for operation, resource_type in (
            (Operation.READ, ResourceType.TOPIC),
            (Operation.DESCRIBE, ResourceType.TOPIC),
            (Operation.DESCRIBE, ResourceType.GROUP),
        )
    )


def sql_endpoint(ask: Ask) -> Endpoint:
    """Return the endpoint that runs queries."""

    async def sql(request: Request, client: HttpClient) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != MEDIA_TYPES["json"]:
            return _refusal(415, "send JSON with the content type application/json")
        if not has_any_right(client.rights):
            return _refusal(403, f"{client.rights.principal} may not read or describe any topic or group")
        body = await _body(request)
        asked = None if body is None else _asked(body)
        if asked is None:
            return _refusal(
                400,
                'send {"sql": "SELECT ...", "format": "json", "csv" or "parquet", "skip_unreadable": true or false}',
            )
        try:
            found = await _while_connected(request, ask(*asked, client.rights))
            return Response(found, media_type=MEDIA_TYPES[asked[1]])
        except SqlRefused as error:
            return _refusal(400, str(error))
        except (SqlBusy, SqlUnavailable) as error:
            return _refusal(503, str(error))

    return sql


def table_endpoint(tell: Tell) -> Endpoint:
    """Return the endpoint for this broker's part of a table, which other brokers of the cluster request."""

    async def table(request: Request, client: HttpClient) -> Response:
        try:
            found = await tell(request.path_params["name"], client.rights)
        except SqlUnavailable as error:
            return _refusal(503, str(error))
        if found is None:
            return _refusal(404, "the table does not exist on this broker")
        return Response(found, media_type="application/vnd.apache.arrow.stream")

    return table


async def _while_connected(request: Request, answering: Coroutine[Any, Any, bytes]) -> bytes:
    """Return the result of a query, which is cancelled when its client disconnects."""
    query = asyncio.ensure_future(answering)
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait([query, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not query.done():
            raise SqlRefused("the client has disconnected")
        return query.result()
    finally:
        leaving.cancel()
        query.cancel()
        await asyncio.gather(query, leaving, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes | None:
    """Return the body, unless it is too long or incomplete."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size <= BODY_BYTES_MAX:
                parts.append(part)
    except ClientDisconnect:  # no client is left to read the answer, and the broker did not fail
        return None
    # A body that is too long is read to its end: closing earlier resets the connection, and the answer is lost. The
    # connection itself cuts a body without an end (`bounded_protocol`: REQUEST_BYTES_MAX, RECEIVE_S).
    return b"".join(parts) if size <= BODY_BYTES_MAX else None


def _asked(body: bytes) -> tuple[str, str, bool] | None:
    """Return the query, the format and whether to skip unreadable batches, if the body has them."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    sql, form = found.get("sql"), found.get("format", "json")
    skip = found.get("skip_unreadable", False)
    if not isinstance(sql, str) or not isinstance(form, str) or not isinstance(skip, bool):
        return None
    return (sql, form, skip) if _is_text(sql) and form in MEDIA_TYPES else None


def _is_text(sql: str) -> bool:
    """Whether the text is valid: JSON can contain lone surrogates, which the engine cannot read."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status_code=status)
