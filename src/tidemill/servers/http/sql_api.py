"""`POST /api/sql`: a question in SQL, answered as JSON, CSV or Parquet.

The body is JSON: `{"sql": "SELECT ...", "format": "json" | "csv" | "parquet"}`; `"skip_unreadable": true` leaves out
record batches that cannot be read. It has to say so by its content type, which a page of another site cannot do without
asking first; so none can put questions by a visitor's browser.

`GET /api/tables/NAME`: the part of a table that this broker has, as an Arrow stream, for the broker that is asked.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from tidemill.servers.http.server import Ask, Tell
from tidemill.sql.core.errors import SqlBusy, SqlRefused, SqlUnavailable

MEDIA_TYPES = {"json": "application/json", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
BODY_BYTES_MAX = 256 * 1024


def sql_endpoint(ask: Ask) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint over what answers questions."""

    async def sql(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != MEDIA_TYPES["json"]:
            return _refusal(415, "send JSON with the content type application/json")
        body = await _body(request)
        asked = None if body is None else _asked(body)
        if asked is None:
            return _refusal(
                400,
                'send {"sql": "SELECT ...", "format": "json", "csv" or "parquet", "skip_unreadable": true or false}',
            )
        try:
            found = await _while_connected(request, ask(*asked))
            return Response(found, media_type=MEDIA_TYPES[asked[1]])
        except SqlRefused as error:
            return _refusal(400, str(error))
        except (SqlBusy, SqlUnavailable) as error:
            return _refusal(503, str(error))

    return sql


def table_endpoint(tell: Tell) -> Callable[[Request], Awaitable[Response]]:
    """What this broker alone has of a table: other brokers of the cluster ask for it."""

    async def table(request: Request) -> Response:
        try:
            found = await tell(request.path_params["name"])
        except SqlUnavailable as error:
            return _refusal(503, str(error))
        if found is None:
            return _refusal(404, "there is no such table here")
        return Response(found, media_type="application/vnd.apache.arrow.stream")

    return table


async def _while_connected(request: Request, answering: Coroutine[Any, Any, bytes]) -> bytes:
    """The result of a query, which is cancelled when its client disconnects."""
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
    """The body, unless it is too long or does not come to its end."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size <= BODY_BYTES_MAX:
                parts.append(part)
    except ClientDisconnect:  # nobody is there to read the answer, nor is it a failure of the broker's
        return None
    # A body that is too long is read to its end: closing before that resets the connection, and the answer is lost.
    # One without an end is cut by the connection itself (`bounded`: REQUEST_BYTES_MAX, RECEIVE_S).
    return b"".join(parts) if size <= BODY_BYTES_MAX else None


def _asked(body: bytes) -> tuple[str, str, bool] | None:
    """The question, the format and whether to skip what cannot be read, if the body has them."""
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


def _is_text(question: str) -> bool:
    """JSON can write halves of characters, which are no text that an engine could read."""
    try:
        question.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status_code=status)
