"""Shows keys and values as text: JSON, text, hex, base64, and Avro and Protobuf where a registry is known.

The result is text for a page or for JSON, never markup. It is cut, so that a page of large records stays small.
"""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tidemill.servers.http.core.avro_decoding import AvroSchema, UndecodablePayload
from tidemill.servers.http.core.protobuf_fields import ProtobufFields, after_message_indexes
from tidemill.servers.http.core.record_condition import MISSING
from tidemill.servers.http.core.record_filter import JSON_BYTES_MAX, json_in
from tidemill.wire.http.records import PayloadFormat, PayloadView

REGISTRY_MAGIC = 0
REGISTRY_HEAD_BYTES = 5
"""The magic byte and the id of the schema."""
INDENT = 2
_LAYOUT = "\n\r\t"


class RegisteredSchema(NamedTuple):
    """A schema of a registry. `avro` is None for other types."""

    kind: str
    avro: AvroSchema | None = None
    problem: str = ""


Schemas = Callable[[int], RegisteredSchema | None]
"""Looks up a schema by its id; None if there is no registry, or no such schema."""


class PayloadViews:
    """Makes views that are cut after `chars`, with JSON on several lines if `is_pretty`."""

    def __init__(self, schemas: Schemas, *, chars: int, is_pretty: bool = False) -> None:
        self._schemas = schemas
        self._chars = chars
        self._indent = INDENT if is_pretty else -1

    def view(self, payload: bytes | None, wanted: PayloadFormat = "auto", *, size: int | None = None) -> PayloadView:
        """The view of a key or value. `size` is the whole size where `payload` is only its beginning."""
        if payload is None:
            return PayloadView(format="null", text="", bytes=0, cut=False)
        whole = len(payload) if size is None else size
        is_whole = whole == len(payload)
        match wanted:
            case "hex" | "base64":
                return self._binary(payload, wanted, whole)
            case "text":
                return self._text(payload, whole)
            case "json":
                return self._json(payload, whole) if is_whole else self._text(payload, whole)
            case "avro" | "protobuf":
                return self._decoded(payload, whole, wanted) if is_whole else self._binary(payload, "hex", whole)
        return self._guessed(payload, whole, is_whole=is_whole)

    def json_of(self, payload: bytes | None) -> Any:
        """The JSON document in a payload, or the decoded one where a registry knows its schema."""
        schema_id = schema_id_of(payload)
        if payload is None or schema_id is None or len(payload) > JSON_BYTES_MAX:
            return json_in(payload)
        schema = self._schemas(schema_id)
        if schema is None:
            return json_in(payload)
        try:
            return _decode(schema, payload)
        except UndecodablePayload:
            return MISSING

    def _guessed(self, payload: bytes, whole: int, *, is_whole: bool) -> PayloadView:
        schema_id = schema_id_of(payload)
        if schema_id is not None and is_whole:
            schema = self._schemas(schema_id)
            if schema is not None:
                return self._registered(payload, whole, schema, schema_id)
        if is_whole and payload[:1].strip() in {b"{", b"["}:
            found = self._json(payload, whole)
            if found.format == "json":
                return found
        if is_text(payload, is_whole=is_whole):
            return self._text(payload, whole)
        return self._binary(payload, "hex", whole)

    def _registered(self, payload: bytes, whole: int, schema: RegisteredSchema, schema_id: int) -> PayloadView:
        try:
            document = _decode(schema, payload)
        except UndecodablePayload as error:
            note = f"schema {schema_id} does not decode it: {error}"
            return msgspec.structs.replace(self._binary(payload, "hex", whole), schema_id=schema_id, note=note)
        kind: Any = {"AVRO": "avro", "PROTOBUF": "protobuf"}.get(schema.kind, "json")
        note = "fields are shown by number, without their names" if kind == "protobuf" else ""
        text = self._formatted(msgspec.json.encode(document))
        shown, cut = self._cut(text)
        return PayloadView(format=kind, text=shown, bytes=whole, cut=cut, schema_id=schema_id, note=note)

    def _decoded(self, payload: bytes, whole: int, wanted: str) -> PayloadView:
        schema_id = schema_id_of(payload)
        schema = None if schema_id is None else self._schemas(schema_id)
        if schema is not None and schema_id is not None:
            return self._registered(payload, whole, schema, schema_id)
        if wanted == "protobuf":
            try:
                shown, cut = self._cut(self._formatted(msgspec.json.encode(ProtobufFields().read(payload))))
            except UndecodablePayload as error:
                return self._noted(payload, whole, str(error))
            note = "fields are shown by number, without their names"
            return PayloadView(format="protobuf", text=shown, bytes=whole, cut=cut, note=note)
        return self._noted(payload, whole, "no registry knows its schema; set tidemill.registry.url")

    def _noted(self, payload: bytes, whole: int, note: str) -> PayloadView:
        return msgspec.structs.replace(self._binary(payload, "hex", whole), note=note)

    def _json(self, payload: bytes, whole: int) -> PayloadView:
        if len(payload) > JSON_BYTES_MAX or json_in(payload) is MISSING:
            return msgspec.structs.replace(self._text(payload, whole), note="it is not JSON")
        text, cut = self._cut(self._formatted(payload))
        return PayloadView(format="json", text=text, bytes=whole, cut=cut)

    def _text(self, payload: bytes, whole: int) -> PayloadView:
        text, cut = self._cut(payload[: 4 * self._chars + 4].decode(errors="replace"))
        return PayloadView(format="text", text=text, bytes=whole, cut=cut or whole > len(payload))

    def _binary(self, payload: bytes, form: Any, whole: int) -> PayloadView:
        part = payload[: (self._chars + 1) // 3 if form == "hex" else self._chars // 4 * 3]
        text = part.hex(" ") if form == "hex" else b64encode(part).decode()
        return PayloadView(format=form, text=text, bytes=whole, cut=whole > len(part))

    def _formatted(self, document: bytes) -> str:
        return msgspec.json.format(document, indent=self._indent).decode(errors="replace")

    def _cut(self, text: str) -> tuple[str, bool]:
        return text[: self._chars], len(text) > self._chars


def schema_id_of(payload: bytes | None) -> int | None:
    """The id of the schema in the format of a registry; None without one."""
    if payload is None or len(payload) < REGISTRY_HEAD_BYTES or payload[0] != REGISTRY_MAGIC:
        return None
    return int.from_bytes(payload[1:REGISTRY_HEAD_BYTES], "big")


def is_text(payload: bytes, *, is_whole: bool = True) -> bool:
    """Whether a payload is text that can be read. The beginning of a payload may end inside a character."""
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(payload) - 3:
            return False
        text = payload[: error.start].decode()
    return all(char.isprintable() or char in _LAYOUT for char in text)


def _decode(schema: RegisteredSchema, payload: bytes) -> Any:
    data = payload[REGISTRY_HEAD_BYTES:]
    if schema.problem:
        raise UndecodablePayload(schema.problem)
    if schema.avro is not None:
        return schema.avro.decode(data)
    if schema.kind == "PROTOBUF":
        return ProtobufFields().read(after_message_indexes(data))
    found = json_in(data)
    if found is MISSING:
        raise UndecodablePayload("it is not JSON")
    return found
