"""Connects handlers to routes: decodes the request, calls the handler, and encodes its document or its error."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidemill.model.errors import TidemillError
from tidemill.servers.http.api.api_call import JSON_TYPE, ApiCall, decode_body, decode_query
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import DENIALS, ApiProblem, status_of_error
from tidemill.servers.http.core.route_access import RouteAccess
from tidemill.servers.http.logins import HttpClient
from tidemill.servers.http.responses import problem

READONLY = "this console is read-only (--console-readonly); make the change with the command line, or at another broker"

Endpoint = Callable[[Request, HttpClient], Awaitable[Response]]


def api_endpoint(access: RouteAccess, handler: ApiHandler, context: ApiContext) -> Endpoint:
    """The endpoint of a route of the JSON API."""

    async def endpoint(request: Request, client: HttpClient) -> Response:
        try:
            return _answer(await handler(context, await decoded_call(access, context, request, client)))
        except ApiProblem as error:
            return problem(request.url.path, error.status, str(error), field=error.field)
        except DENIALS:
            raise  # `guarded` adds what an administrator can do
        except TidemillError as error:
            return problem(request.url.path, status_of_error(error), str(error))
        finally:
            if access.changes:
                context.parts.forget()

    return endpoint


async def decoded_call(
    access: RouteAccess, context: ApiContext, request: Request, client: HttpClient
) -> ApiCall[Any, Any]:
    """The request as its handler takes it; ApiProblem if it is not valid, or a change in a read-only console."""
    if access.changes and context.is_readonly:
        raise ApiProblem(403, READONLY)
    shapes = access.shapes
    query = decode_query(request, None if shapes is None else shapes.query)
    body = None if shapes is None or shapes.body is None else await decode_body(request, shapes.body)
    return ApiCall(request, client, query, body, [each for each in access.rights if each.is_required])


def _answer(found: Any) -> Response:
    if isinstance(found, Response):
        return found
    if found is None:
        return Response(status_code=204)
    return Response(msgspec.json.encode(found), media_type=JSON_TYPE)
