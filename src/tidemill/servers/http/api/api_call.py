"""One request of the JSON API or of the console: its client, its path, its query and its body, checked and decoded.

Names of groups and other resources can have any characters, a slash too. `EncodedPath` makes the path of a request a
sequence of percent-encoded segments before a route is looked up, so a name is always one segment.
"""

import re
from collections.abc import Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, quote, unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.core.route_access import RouteRight
from tidemill.servers.http.logins import HttpClient

BODY_BYTES_MAX = 512 * 1024
QUERY_FIELDS_MAX = 32
JSON_TYPE = "application/json"
_PATH = re.compile(r"at `\$\.([a-z_]{1,100}(?:\.[a-z_]{1,100}){0,3})")
_SAFE = "-._~!$&'()*+,;=:@{}"

Q = TypeVar("Q")
B = TypeVar("B")


class ApiCall(Generic[Q, B]):
    """One request. `query` and `body` are of the classes that the row of the route names; None without one."""

    __slots__ = ("_required", "body", "client", "query", "request")

    def __init__(
        self, request: Request, client: HttpClient, query: Q, body: B, required: Sequence[RouteRight] = ()
    ) -> None:
        self.request = request
        self.client = client
        self.query = query
        self.body = body
        self._required = required

    @property
    def rights(self) -> ClientRights:
        """What the client may do."""
        return self.client.rights

    @property
    def is_allowed(self) -> bool:
        """Whether the client still has the rights on the cluster that its route requires."""
        return all(self.rights.allows(each.operation, each.resource_type, CLUSTER_NAME) for each in self._required)

    def name(self, parameter: str = "name") -> str:
        """A part of the path, decoded."""
        return unquote(self.request.path_params[parameter])


class EncodedPath:
    """Replaces the decoded path of a request by its percent-encoded segments."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on one request."""
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        segments = raw.partition(b"?")[0].decode("latin-1").split("/")
        scope["path"] = "/".join(quote(unquote(each, errors="replace"), safe=_SAFE) for each in segments)
        await self._app(scope, receive, send)


def decode_query(request: Request, kind: type[Q] | None) -> Q | None:
    """The query of the URL; ApiProblem if a field is unknown, malformed, or there twice."""
    text = request.scope["query_string"].decode("latin-1")
    if kind is None:
        return None
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX)
    except ValueError as error:
        raise ApiProblem(400, f"the query of the URL is not valid: {error}") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ApiProblem(400, "a field is twice in the query of the URL; give each once")
    return _converted(fields, kind, "the query of the URL")


async def read_body(request: Request) -> bytes:
    """The whole body; ApiProblem if it is too long, or the client leaves before its end."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size <= BODY_BYTES_MAX:
                parts.append(part)
    except ClientDisconnect:
        raise ApiProblem(400, "the client has disconnected") from None
    if size > BODY_BYTES_MAX:  # read to its end, because closing earlier would lose the answer
        raise ApiProblem(413, f"the body has {size} bytes, and {BODY_BYTES_MAX} are accepted")
    return b"".join(parts)


async def decode_body(request: Request, kind: type[B]) -> B:
    """The body as a document. Only JSON is accepted: a page of another site cannot send that without a preflight."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON_TYPE:
        raise ApiProblem(415, f"send JSON with the content type {JSON_TYPE}")
    return document_of(await read_body(request), kind)


def document_of(body: bytes, kind: type[B]) -> B:
    """A JSON document of a client."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise ApiProblem(400, f"the body is not valid: {_shown(error)}", _field_of(error)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ApiProblem(400, f"the body is not JSON: {_shown(error)}") from None


def _field_of(error: msgspec.ValidationError) -> str:
    """The part of the body that an error is about. Its message ends with the path: `... - at `$.partitions``."""
    found = _PATH.search(str(error))
    return "" if found is None else found[1]


def _converted(fields: dict[str, str], kind: type[Q], what: str) -> Q:
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ApiProblem(400, f"{what} is not valid: {_shown(error)}") from None


def _shown(error: Any) -> str:
    text = " ".join(str(error).split())
    return text[:1].lower() + text[1:300]
