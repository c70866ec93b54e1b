"""SQL in the JSON API: the tables, and queries. A query ends when its client disconnects."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.http.api.api_call import JSON_TYPE, ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.core.api_routes.sql import RESULT_TYPES
from tidemill.servers.http.core.spreadsheet_text import guard_formulas
from tidemill.sql.core.catalog import TABLES
from tidemill.sql.core.errors import SqlBusy, SqlRefused, SqlUnavailable
from tidemill.sql.core.sql_query import SqlQuery
from tidemill.wire.http.sql import QueryRequest, ResultColumn, SqlColumnRow, SqlTableRow, SqlTables


class EngineStatistics(msgspec.Struct):
    """What a query has read."""

    rows_read: int
    bytes_read: int


class EngineResult(msgspec.Struct):
    """The engine's format `JSONCompact`. Rows stay encoded."""

    meta: list[ResultColumn]
    data: list[msgspec.Raw]
    statistics: EngineStatistics


async def list_tables(context: ApiContext, call: ApiCall[None, None]) -> SqlTables:
    """`GET /api/v1/sql/tables`."""
    check_any_right(call.rights)
    return described_tables(context)


def described_tables(context: ApiContext) -> SqlTables:
    """All tables, with their columns."""
    tables = [
        SqlTableRow(
            table=table.name,
            doc=table.doc,
            columns=[SqlColumnRow(name=each.name, type=each.kind, doc=each.doc) for each in table.columns],
        )
        for table in TABLES.values()
    ]
    return SqlTables(tables=tables, problem=context.sql.problem())


async def run_query(context: ApiContext, call: ApiCall[None, QueryRequest]) -> Response:
    """`POST /api/v1/sql`."""
    asked = call.body
    check_any_right(call.rights)
    is_document = asked.format == "json"
    # With one row more than asked for, the result shows whether there are more.
    rows_max = asked.limit + 1 if is_document and asked.limit is not None else asked.limit
    query = SqlQuery(asked.query, asked.format, asked.skip_unreadable, rows_max, asked.exact_integers)
    now = asyncio.get_running_loop().time
    began_s = now()
    try:
        found = await _while_connected(call.request, context.sql.ask(query, call.rights))
    except (SqlBusy, SqlUnavailable) as error:
        raise ApiProblem(503, str(error)) from None
    if is_document:
        return Response(
            await asyncio.to_thread(result_document, found, asked.limit, now() - began_s), media_type=JSON_TYPE
        )
    if asked.format == "csv" and asked.guard_formulas:
        found = await asyncio.to_thread(guard_formulas, found)
    headers = {"content-disposition": f'attachment; filename="result.{asked.format}"'}
    return Response(found, media_type=RESULT_TYPES[asked.format], headers=headers)


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


def check_any_right(rights: ClientRights) -> None:
    """Refuse a client whose queries have no rows."""
    if not has_any_right(rights):
        raise ApiProblem(403, f"{rights.principal} may not read or describe any topic or group")


def result_document(found: bytes, limit: int | None, elapsed_s: float) -> bytes:
    """The engine's result as a `QueryResult`. The rows are copied as they are, because there can be many."""
    result = msgspec.json.decode(found, type=EngineResult)
    rows = result.data[:limit]
    return msgspec.json.encode(
        {
            "columns": result.meta,
            "rows": rows,
            "row_count": len(rows),
            "truncated": len(rows) < len(result.data),
            "elapsed_s": round(elapsed_s, 4),
            "rows_read": result.statistics.rows_read,
            "bytes_read": result.statistics.bytes_read,
        }
    )


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


HANDLERS: dict[str, ApiHandler] = {"GET /api/v1/sql/tables": list_tables, "POST /api/v1/sql": run_query}
PARTS: Sequence[PartKind[Any, Any]] = ()
