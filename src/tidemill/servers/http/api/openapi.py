"""The OpenAPI document, made from the table of routes and the classes of `wire/http`."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from tidemill import __version__
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.core.authorization_table import ROUTES
from tidemill.servers.http.core.route_access import LoginNeed, RouteAccess, RouteShapes
from tidemill.wire.http.document import Problem

API = "/api/v1/"
REFERENCE = "#/components/schemas/{name}"
_ERRORS = {
    "400": "The request is not valid.",
    "401": "A login is needed, or the login is wrong.",
    "403": "The client has no right to this.",
    "404": "The resource does not exist.",
    "409": "The state of the resource does not allow it.",
    "413": "The body is too large.",
    "415": "The content type is not JSON.",
    "429": "Too many requests of this client are running, or a quota is used up.",
    "500": "The broker failed.",
    "503": "A broker or a store does not answer.",
}


@cache
def openapi_document() -> dict[str, Any]:
    """The whole document."""
    routes = [(each, each.shapes) for each in ROUTES if each.path.startswith(API) and each.shapes is not None]
    kinds = [
        kind
        for _, shapes in routes
        for kind in (shapes.response, shapes.body)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ]
    _, schemas = msgspec.json.schema_components([*dict.fromkeys(kinds), Problem], ref_template=REFERENCE)
    paths: dict[str, Any] = {}
    for access, shapes in routes:
        paths.setdefault(access.path, {})[access.method.lower()] = _operation(access, shapes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemill",
            "version": __version__,
            "description": "Topics, records, groups, timelines and pipelines of a Tidemill cluster.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(access: RouteAccess, shapes: RouteShapes) -> dict[str, Any]:
    words = access.path.removeprefix(API).replace("{", "").replace("}", "").replace(".", "_").replace("-", "_")
    operation: dict[str, Any] = {
        "operationId": f"{access.method.lower()}_{words.replace('/', '_')}",
        "summary": shapes.summary,
        "tags": [words.partition("/")[0]],
        "parameters": [*_path_parameters(access), *_query_parameters(shapes)],
        "responses": {**_success(shapes), **{code: _problem(text) for code, text in _ERRORS.items()}},
    }
    if access.login is not LoginNeed.NONE:
        operation["security"] = [{}, {"basic": []}, {"bearer": []}]
    if shapes.body is not None:
        schema = {"$ref": REFERENCE.format(name=shapes.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _path_parameters(access: RouteAccess) -> Iterator[dict[str, Any]]:
    for piece in access.path.split("/"):
        if piece.startswith("{"):
            name = piece.strip("{}").partition(":")[0]
            yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(shapes: RouteShapes) -> Iterator[dict[str, Any]]:
    if shapes.query is None:
        return
    _, found = msgspec.json.schema_components([shapes.query], ref_template=REFERENCE)
    schema = found[shapes.query.__name__]
    for name, field in schema["properties"].items():
        yield {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": field}


def _success(shapes: RouteShapes) -> dict[str, Any]:
    if shapes.response is None and shapes.media_type == "application/json":
        return {"204": {"description": "Done."}}
    schema: dict[str, Any] = {"type": "string"}
    if shapes.response is dict:
        schema = {"type": "object"}
    elif shapes.response is not None:
        schema = {"$ref": REFERENCE.format(name=shapes.response.__name__)}
    others: dict[str, Any] = {each: {"schema": {"type": "string"}} for each in shapes.more_types}
    return {"200": {"description": shapes.summary, "content": {shapes.media_type: {"schema": schema}, **others}}}


def _problem(text: str) -> dict[str, Any]:
    schema = {"$ref": REFERENCE.format(name=Problem.__name__)}
    return {"description": text, "content": {"application/json": {"schema": schema}}}


async def describe_api(_: ApiContext, __: ApiCall[None, None]) -> dict[str, Any]:
    """The OpenAPI document."""
    return openapi_document()


HANDLERS: dict[str, ApiHandler] = {"GET /api/v1/openapi.json": describe_api}
PARTS: Sequence[PartKind[Any, Any]] = ()
