"""The answers of this broker to other brokers."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from tidemill.servers.http.api.api_call import JSON_TYPE, ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.broker_parts import PartKind


async def make_part(context: ApiContext, call: ApiCall[None, None]) -> Response:
    """Make the part that another broker asks for, for the client that its token names."""
    made = await context.parts.make(call.name(), call.rights, call.request.state.body)
    return Response(made, media_type=JSON_TYPE)


HANDLERS: dict[str, ApiHandler] = {"POST /api/v1/parts/{name}": make_part}
PARTS: Sequence[PartKind[Any, Any]] = ()
