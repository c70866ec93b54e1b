"""Unsigned varints: the lengths, counts and tags of flexible messages."""

from tidemill.model.errors import ProtocolViolation

VARINT_BYTES_MAX = 5
_ONE_BYTE = 0x80
_TABLE_SIZE = 1 << 11


def _encode(number: int) -> bytes:
    out = bytearray()
    while number >= _ONE_BYTE:
        out.append(number & 0x7F | _ONE_BYTE)
        number >>= 7
    out.append(number)
    return bytes(out)


_TABLE = [_encode(number) for number in range(_TABLE_SIZE)]


def uvarint(number: int) -> bytes:
    """Return the bytes of a number."""
    return _TABLE[number] if number < _TABLE_SIZE else _encode(number)


def read_uvarint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return the number at `position`, of at most 32 bits, and the position after it."""
    byte = data[position]
    if byte < _ONE_BYTE:
        return byte, position + 1
    number = byte & 0x7F
    for count in range(1, VARINT_BYTES_MAX):
        byte = data[position + count]
        number |= (byte & 0x7F) << (7 * count)
        if byte < _ONE_BYTE:
            return number & 0xFFFFFFFF, position + count + 1
    raise ProtocolViolation("a varint is longer than 5 bytes")
