"""`POST /api/sql`: a question in SQL, answered as JSON, CSV or Parquet.

The body is JSON: `{"sql": "SELECT ...", "format": "json" | "csv" | "parquet"}`. It has to say so by its content type,
which a page of another site cannot do without asking first; so none can put questions by a visitor's browser.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidemill.broker.sql.errors import SqlBusy, SqlRefused, SqlUnavailable
from tidemill.doors.console.server import Ask

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
            return _refusal(400, 'send {"sql": "SELECT ...", "format": "json", "csv" or "parquet"}')
        try:
            return Response(await ask(*asked), media_type=MEDIA_TYPES[asked[1]])
        except SqlRefused as error:
            return _refusal(400, str(error))
        except (SqlBusy, SqlUnavailable) as error:
            return _refusal(503, str(error))

    return sql


async def _body(request: Request) -> bytes | None:
    """The body, unless it is too long."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            return None
        parts.append(part)
    return b"".join(parts)


def _asked(body: bytes) -> tuple[str, str] | None:
    """The question and the format, if the body has them."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    sql, form = found.get("sql"), found.get("format", "json")
    return (sql, form) if isinstance(sql, str) and form in MEDIA_TYPES else None


def _refusal(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status_code=status)
