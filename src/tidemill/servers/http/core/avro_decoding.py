"""Decodes Avro data to plain values that can be written as JSON, with a bound on the work.

The data comes from producers, and a few bytes of it can claim an array of billions of nulls. So every value counts
against a budget, whatever it takes in the data. Schemas come from a registry and can name types that contain
themselves, so the depth is bounded too.
"""

from base64 import b64encode
from collections.abc import Mapping
from struct import Struct
from struct import error as struct_error
from typing import Any

VALUES_MAX = 100_000
DEPTH_MAX = 50
VARINT_BITS_MAX = 63
_FLOAT = Struct("<f")
_DOUBLE = Struct("<d")


class UndecodablePayload(ValueError):
    """The data does not have the form that it should have."""


class AvroSchema:
    """A schema, with the types that it names."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._named: dict[str, Any] = {}
        self._collect(schema, "", 0)

    def decode(self, data: bytes) -> Any:
        """The value in the data. UndecodablePayload if the data is not of this schema."""
        reader = _Reader(data, self._named)
        try:
            value = reader.read(self._root, "", 0)
        except (IndexError, struct_error):
            raise UndecodablePayload("the data ends too early") from None
        if reader.at != len(data):
            raise UndecodablePayload(f"{len(data) - reader.at} bytes follow the value")
        return value

    def _collect(self, schema: Any, namespace: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise UndecodablePayload(f"the schema is nested more than {DEPTH_MAX} deep")
        if isinstance(schema, list):
            for each in schema:
                self._collect(each, namespace, depth + 1)
        elif isinstance(schema, Mapping):
            if schema.get("type") in {"record", "error", "enum", "fixed"}:
                name = full_name(schema.get("name"), schema.get("namespace") or namespace)
                self._named[name] = schema
                namespace = name.rpartition(".")[0]
            for part in (schema.get("items"), schema.get("values"), schema.get("type")):
                if isinstance(part, list | Mapping):
                    self._collect(part, namespace, depth + 1)
            for field in _fields(schema):
                self._collect(field.get("type"), namespace, depth + 1)


def full_name(name: Any, namespace: str) -> str:
    """The name of a type with its namespace."""
    if not isinstance(name, str):
        raise UndecodablePayload("a type of the schema has no name")
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _fields(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    fields = schema.get("fields", [])
    return [each for each in fields if isinstance(each, Mapping)] if isinstance(fields, list) else []


class _Reader:
    def __init__(self, data: bytes, named: Mapping[str, Any]) -> None:
        self._data = data
        self._named = named
        self._left = VALUES_MAX
        self.at = 0

    def read(self, schema: Any, namespace: str, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise UndecodablePayload(f"the data has more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise UndecodablePayload(f"the data is nested more than {DEPTH_MAX} deep")
        if isinstance(schema, list):
            return self.read(self._branch(schema), namespace, depth + 1)
        if isinstance(schema, str):
            return self._simple(schema, namespace, depth)
        if not isinstance(schema, Mapping):
            raise UndecodablePayload("the schema is not valid")
        kind = schema.get("type")
        match kind:
            case "record" | "error":
                inner = full_name(schema.get("name"), schema.get("namespace") or namespace).rpartition(".")[0]
                fields = _fields(schema)
                return {str(each.get("name")): self.read(each.get("type"), inner, depth + 1) for each in fields}
            case "enum":
                return self._of(schema.get("symbols"), self._long(), "symbol")
            case "fixed":
                return _text(self._take(_size(schema.get("size"))))
            case "array":
                return [self.read(schema.get("items"), namespace, depth + 1) for _ in self._blocks()]
            case "map":
                return {self._string(): self.read(schema.get("values"), namespace, depth + 1) for _ in self._blocks()}
            case _:
                return self.read(kind, namespace, depth + 1)

    def _simple(self, name: str, namespace: str, depth: int) -> Any:
        match name:
            case "null":
                return None
            case "boolean":
                return self._take(1) != b"\0"
            case "int" | "long":
                return self._long()
            case "float":
                return _FLOAT.unpack(self._take(4))[0]
            case "double":
                return _DOUBLE.unpack(self._take(8))[0]
            case "bytes":
                return _text(self._take(self._length()))
            case "string":
                return self._string()
        named = self._named.get(full_name(name, namespace), self._named.get(name))
        if named is None:
            raise UndecodablePayload(f"the schema does not have the type {name[:60]!r}")
        return self.read(named, namespace, depth + 1)

    def _branch(self, union: list[Any]) -> Any:
        return self._of(union, self._long(), "type of a union")

    def _of(self, choices: Any, index: int, what: str) -> Any:
        if not isinstance(choices, list) or not 0 <= index < len(choices):
            raise UndecodablePayload(f"the data names {what} {index}, which the schema does not have")
        return choices[index]

    def _blocks(self) -> Any:
        while count := self._long():
            if count < 0:  # the size of the block follows
                count = -count
                self._long()
            if count > self._left:
                raise UndecodablePayload(f"the data has more than {VALUES_MAX} values")
            yield from range(count)

    def _string(self) -> str:
        return self._take(self._length()).decode(errors="replace")

    def _length(self) -> int:
        return _size(self._long())

    def _take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self._data):
            raise UndecodablePayload("the data ends too early")
        taken = self._data[self.at : end]
        self.at = end
        return taken

    def _long(self) -> int:
        raw = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
            if shift > VARINT_BITS_MAX:
                raise UndecodablePayload("a number has more than 64 bits")


def _size(size: Any) -> int:
    if not isinstance(size, int) or size < 0:
        raise UndecodablePayload("a length is not valid")
    return size


def _text(data: bytes) -> str:
    """Bytes as text, or as base64 where they are not text."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return b64encode(data).decode()
