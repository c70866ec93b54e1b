"""The primitive fields of Kafka's formats, for the few structures that groups read and write themselves.

Plain fields have fixed-size lengths. Compact fields (of "flexible" versions) have varint lengths that are one higher
than the length, so that 0 means null. A reader never reads beyond its buffer. It raises `ValueError` for truncated,
negative or non-UTF-8 fields.
"""

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_VARINT_BYTES_MAX = 5

T = TypeVar("T")


class FieldWriter:
    """Writes fields into bytes, after a version of two bytes if one is given."""

    __slots__ = ("buffer",)

    def __init__(self, version: int | None = None) -> None:
        self.buffer = bytearray() if version is None else bytearray(_I16.pack(version))

    def done(self) -> bytes:
        """Return everything written so far."""
        return bytes(self.buffer)

    def int8(self, value: int) -> None:
        """Write one byte, signed."""
        self.buffer += _I8.pack(value)

    def int32(self, value: int) -> None:
        """Write four bytes."""
        self.buffer += _I32.pack(value)

    def int64(self, value: int) -> None:
        """Write eight bytes."""
        self.buffer += _I64.pack(value)

    def uuid(self, value: UUID) -> None:
        """Write sixteen bytes."""
        self.buffer += value.bytes

    def varint(self, value: int) -> None:
        """Write an unsigned number, seven bits per byte."""
        while value > 0x7F:
            self.buffer.append(value & 0x7F | 0x80)
            value >>= 7
        self.buffer.append(value)

    def string(self, value: str | None) -> None:
        """Write a length of two bytes (-1 for null) and UTF-8."""
        data = b"" if value is None else value.encode()
        self.buffer += _I16.pack(-1 if value is None else len(data))
        self.buffer += data

    def blob(self, value: bytes) -> None:
        """Write a length of four bytes and the bytes."""
        self.buffer += _I32.pack(len(value))
        self.buffer += value

    def compact_string(self, value: str | None) -> None:
        """Write a varint length and UTF-8."""
        self.compact_bytes(None if value is None else value.encode())

    def compact_bytes(self, value: bytes | None) -> None:
        """Write a varint length and the bytes."""
        self.varint(0 if value is None else len(value) + 1)
        self.buffer += value or b""

    def array(self, items: Iterable[T], write: Callable[[T], None]) -> None:
        """Write a count of four bytes and the items."""
        things = list(items)
        self.int32(len(things))
        for item in things:
            write(item)

    def compact_array(self, items: Iterable[T], write: Callable[[T], None]) -> None:
        """Write a varint count and the items."""
        things = list(items)
        self.varint(len(things) + 1)
        for item in things:
            write(item)

    def tags(self, fields: dict[int, bytes] | None = None) -> None:
        """Write the tagged fields that end a flexible structure."""
        fields = fields or {}
        self.varint(len(fields))
        for tag, data in sorted(fields.items()):
            self.varint(tag)
            self.varint(len(data))
            self.buffer += data


class FieldReader:
    """Reads fields from bytes."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise ValueError(f"a field of {size} bytes at position {self.position} exceeds the {len(self.data)} bytes")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def int8(self) -> int:
        """Read one byte, signed."""
        return self._number(_I8)

    def int16(self) -> int:
        """Read two bytes."""
        return self._number(_I16)

    def int32(self) -> int:
        """Read four bytes."""
        return self._number(_I32)

    def int64(self) -> int:
        """Read eight bytes."""
        return self._number(_I64)

    def _number(self, form: struct.Struct) -> int:
        try:
            value: int = form.unpack_from(self.data, self.position)[0]
        except struct.error:
            raise ValueError(f"a number at position {self.position} exceeds the {len(self.data)} bytes") from None
        self.position += form.size
        return value

    def uuid(self) -> UUID:
        """Read sixteen bytes."""
        return UUID(bytes=self.take(16))

    def varint(self) -> int:
        """Read an unsigned number of at most five bytes."""
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if not byte & 0x80:
                return value
        raise ValueError(f"the varint before position {self.position} has no end")

    def string(self) -> str:
        """Read a string that is not null."""
        value = self.nullable_string()
        if value is None:
            raise ValueError(f"null instead of a string before position {self.position}")
        return value

    def nullable_string(self) -> str | None:
        """Read a string or null."""
        length = self.int16()
        return None if length == -1 else self.take(length).decode()

    def blob(self) -> bytes:
        """Read bytes; null counts as empty."""
        length = self.int32()
        return b"" if length == -1 else self.take(length)

    def compact_string(self) -> str | None:
        """Read a compact string or null."""
        data = self.compact_bytes()
        return None if data is None else data.decode()

    def compact_bytes(self) -> bytes | None:
        """Read compact bytes or null."""
        length = self.varint()
        return None if length == 0 else self.take(length - 1)

    def array(self, read: Callable[[], T]) -> list[T]:
        """Read an array; null counts as empty. Every item takes at least one byte, which bounds the count."""
        return self._items(self.int32(), read)

    def compact_array(self, read: Callable[[], T]) -> list[T]:
        """Read a compact array; null counts as empty."""
        return self._items(self.varint() - 1, read)

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields that end a flexible structure."""
        pairs = self._items(self.varint(), lambda: (self.varint(), self.take(self.varint())))
        return dict(pairs)

    def _items(self, count: int, read: Callable[[], T]) -> list[T]:
        if count > len(self.data) - self.position:
            raise ValueError(f"an array of {count} items does not fit into {len(self.data) - self.position} bytes")
        return [read() for _ in range(count)]
