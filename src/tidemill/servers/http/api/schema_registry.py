"""Schemas of a registry with Confluent's API, for the keys and values that name one.

Lookups block and run in threads. A payload can begin with any bytes, so what looks like the id of a schema may be
none: results are cached, also that there is none, and one request makes only a few lookups.
"""

import threading
import time
from base64 import b64encode
from collections import OrderedDict
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request

import msgspec

from tidemill.client.http import fetch
from tidemill.servers.http.core.avro_decoding import AvroSchema, UndecodablePayload
from tidemill.servers.http.core.payload_views import RegisteredSchema, Schemas

SCHEMAS_MAX = 1_000
LOOKUPS_PER_REQUEST = 20
TIMEOUT_S = 2.0
MISSING_S = 60.0
"""How long it is remembered that the registry has no such schema, or does not answer."""
AVRO = "AVRO"


class _CachedSchema(NamedTuple):
    schema: RegisteredSchema | None
    until: float


class _Answer(msgspec.Struct):
    schema: str
    schemaType: str = AVRO  # noqa: N815 -- the registry's own name
    references: list[msgspec.Raw] = []


class SchemaRegistry:
    """The schemas of one registry. Without a URL it knows none."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._known: OrderedDict[int, _CachedSchema] = OrderedDict()
        self._lock = threading.Lock()
        self._silent_until = 0.0

    def for_request(self) -> Schemas:
        """A lookup for one request."""
        if not self._url:
            return lambda _: None
        left = LOOKUPS_PER_REQUEST

        def find(schema_id: int) -> RegisteredSchema | None:
            nonlocal left
            known = self._cached(schema_id)
            if known is not None:
                return known.schema
            if left <= 0:
                return None
            left -= 1
            return self._look_up(schema_id)

        return find

    def _cached(self, schema_id: int) -> _CachedSchema | None:
        with self._lock:
            known = self._known.get(schema_id)
            if known is None or known.until < time.monotonic():
                return None
            self._known.move_to_end(schema_id)
            return known

    def _look_up(self, schema_id: int) -> RegisteredSchema | None:
        if time.monotonic() < self._silent_until:
            return RegisteredSchema("", problem="the schema registry does not answer")
        until = time.monotonic() + MISSING_S
        try:
            found: RegisteredSchema | None = _schema_in(fetch(self._request(schema_id), timeout_s=TIMEOUT_S))
            until = float("inf")
        except HTTPError as error:
            with error:
                found = (
                    None if error.code == 404 else RegisteredSchema("", problem=f"the registry answers {error.code}")
                )
        except (OSError, HTTPException, ValueError) as error:
            self._silent_until = until
            return RegisteredSchema("", problem=f"the schema registry does not answer: {error}")
        with self._lock:
            self._known[schema_id] = _CachedSchema(found, until)
            while len(self._known) > SCHEMAS_MAX:
                self._known.popitem(last=False)
        return found

    def _request(self, schema_id: int) -> Request:
        parts = urlsplit(self._url)
        request = Request(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}/schemas/ids/{schema_id}")  # noqa: S310 -- the operator's own URL
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            request.add_header("authorization", f"Basic {b64encode(login.encode()).decode()}")
        return request


def _schema_in(answer: bytes) -> RegisteredSchema:
    try:
        found = msgspec.json.decode(answer, type=_Answer)
        if found.schemaType != AVRO:
            return RegisteredSchema(found.schemaType)
        if found.references:
            return RegisteredSchema(AVRO, problem="it refers to other schemas, which is not supported")
        return RegisteredSchema(AVRO, AvroSchema(msgspec.json.decode(found.schema)))
    except (msgspec.DecodeError, RecursionError, UndecodablePayload) as error:
        return RegisteredSchema(AVRO, problem=f"the registry's schema cannot be read: {error}")
