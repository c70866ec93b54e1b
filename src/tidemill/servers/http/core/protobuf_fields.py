"""Decodes Protobuf data without its schema: numbers of fields with their values.

The wire format does not say whether bytes are a text, a message or neither. Text that can be printed is shown as text,
other bytes as a message if they can be read as one, and as hex otherwise. Integers are shown as the unsigned numbers
that they are on the wire.
"""

from typing import Any

from tidemill.servers.http.core.avro_decoding import UndecodablePayload

FIELDS_MAX = 10_000
DEPTH_MAX = 20
VARINT_BITS_MAX = 63


class ProtobufFields:
    """Reads one message. All fields of all messages in it share a budget."""

    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def read(self, data: bytes, depth: int = 0) -> dict[str, Any]:
        """The fields by number. A number that is there several times has a list."""
        fields: dict[str, Any] = {}
        repeated: set[str] = set()
        at = 0
        while at < len(data):
            self._left -= 1
            if self._left < 0:
                raise UndecodablePayload(f"the message has more than {FIELDS_MAX} fields")
            tag, at = _varint(data, at)
            number, value, at = str(tag >> 3), *self._value(data, at, tag, depth)
            if number not in fields:
                fields[number] = value
            elif number in repeated:
                fields[number].append(value)
            else:
                fields[number] = [fields[number], value]
                repeated.add(number)
        return fields

    def _value(self, data: bytes, at: int, tag: int, depth: int) -> tuple[Any, int]:
        if not tag >> 3:
            raise UndecodablePayload("a field has the number 0")
        match tag & 7:
            case 0:
                return _varint(data, at)
            case 1:
                return int.from_bytes(_taken(data, at, 8), "little"), at + 8
            case 5:
                return int.from_bytes(_taken(data, at, 4), "little"), at + 4
            case 2:
                size, at = _varint(data, at)
                return self._bytes(_taken(data, at, size), depth), at + size
        raise UndecodablePayload(f"a field has the unknown type {tag & 7}")

    def _bytes(self, data: bytes, depth: int) -> Any:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        if text is not None and text.isprintable():
            return text
        if depth < DEPTH_MAX and data:
            try:
                return self.read(data, depth + 1)
            except UndecodablePayload:
                pass
        return data.hex()


def after_message_indexes(data: bytes) -> bytes:
    """The message after the indexes with which a registry's format names its type."""
    count, at = _varint(data, 0)
    count = (count >> 1) ^ -(count & 1)
    if not 0 <= count <= DEPTH_MAX:
        raise UndecodablePayload("the indexes of the message type are not valid")
    for _ in range(count):
        _, at = _varint(data, at)
    return data[at:]


def _taken(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise UndecodablePayload("the message ends too early")
    return data[at : at + size]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > VARINT_BITS_MAX:
            raise UndecodablePayload("a number has more than 64 bits")
    raise UndecodablePayload("the message ends too early")
