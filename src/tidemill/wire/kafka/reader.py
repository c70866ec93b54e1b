"""Reads a message body into its kio class, from untrusted bytes.

kio's own reader is not used on bytes from clients. It allocates by the announced count of an array, and the process
ends when that fails. Here a count is checked against the remaining bytes. Unknown tagged fields are skipped (Kafka's
own rule). Bytes after the message are ignored (librdkafka sends some). Any other malformed input raises
ProtocolViolation. The result equals kio's result; the tests compare both.

A reader is built once per class from its layout. Every field is a function `(data, position, budget)` that returns the
value and the next position. `budget` counts down the array items of the whole request.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.layout import FIXED, STRUCT, MessageLayout, Slot, item_bytes_min, layout_of
from tidemill.wire.kafka.varint import read_uvarint

ITEMS_MAX = 200_000
"""The largest number of array items in one message, over all arrays. Requests have a lower limit."""
TAGS_MAX = 64
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MALFORMED = (struct_error, IndexError, UnicodeDecodeError, OverflowError)


class TooManyItems(ProtocolViolation):
    """The message has more array items than its reader accepts."""


class ItemBudget:
    """How many more array items the request may hold."""

    __slots__ = ("items",)

    def __init__(self, items: int = ITEMS_MAX) -> None:
        self.items = items

    def spend(self, count: int, available: int) -> None:
        """Count `count` items. Each needs at least one of `available`."""
        if count > available:
            raise ProtocolViolation(f"an array has the invalid item count {count}")
        self.items -= count
        if self.items < 0:
            raise TooManyItems(f"an array of {count} items exceeds the limit of one message; send smaller requests")


Read: TypeAlias = Callable[[bytes, int, ItemBudget], tuple[Any, int]]


class Tagged(NamedTuple):
    """A tagged field that the class has."""

    name: str
    read: Read


def read_message(message: Any, data: bytes, position: int = 0, items_max: int = ITEMS_MAX) -> tuple[Any, int]:
    """Return the message at `position`, and the position after it. Raise ProtocolViolation when it is malformed."""
    try:
        return message_reader(message)(data, position, ItemBudget(items_max))
    except _MALFORMED as error:
        raise ProtocolViolation(f"{message.__name__} is malformed: {error}") from None


@cache
def message_reader(message: Any) -> Read:
    """Return the reader of one class."""
    layout = layout_of(message)
    names = tuple(slot.name for slot in layout.slots)
    reads = tuple(_slot_reader(slot, layout) for slot in layout.slots)
    if not layout.flexible:
        return _plain_reader(message, names, reads)
    tagged = {slot.tag or 0: Tagged(slot.name, _slot_reader(slot, layout)) for slot in layout.tagged}
    defaults = {slot.name: slot.default for slot in layout.tagged}

    def read(data: bytes, position: int, budget: ItemBudget) -> tuple[Any, int]:
        values = dict(defaults)
        for name, step in zip(names, reads, strict=True):
            values[name], position = step(data, position, budget)
        if data[position]:
            position = _read_tags(tagged, values, data, position, budget)
        else:
            position += 1
        return message(**values), position

    return read


def _plain_reader(message: Any, names: tuple[str, ...], reads: tuple[Read, ...]) -> Read:
    def read(data: bytes, position: int, budget: ItemBudget) -> tuple[Any, int]:
        values = {}
        for name, step in zip(names, reads, strict=True):
            values[name], position = step(data, position, budget)
        return message(**values), position

    return read


def _read_tags(
    tagged: dict[int, Tagged], values: dict[str, Any], data: bytes, position: int, budget: ItemBudget
) -> int:
    count, position = read_uvarint(data, position)
    if count > TAGS_MAX:
        raise ProtocolViolation(f"the number of tagged fields, {count}, is invalid")
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = _end(data, position, size)
        known = tagged.get(tag)
        if known is not None:
            # Only the field is copied. Copying all bytes before it, for each item of an array, would take seconds.
            values[known.name], _ = known.read(data[position:end], 0, budget)
        position = end
    return position


def skip_tags(data: bytes | bytearray | memoryview, position: int) -> int:
    """Return the position after a section of unknown tagged fields."""
    if not data[position]:
        return position + 1
    count, position = read_uvarint(data, position)
    if count > TAGS_MAX:
        raise ProtocolViolation(f"the number of tagged fields, {count}, is invalid")
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position = _end(data, position, size)
    return position


def _end(data: bytes | bytearray | memoryview, position: int, size: int) -> int:
    end = position + size
    if size < 0 or end > len(data):
        raise ProtocolViolation(f"a field has the invalid length {size}")
    return end


def _slot_reader(slot: Slot, layout: MessageLayout) -> Read:
    item = _item_reader(slot, flexible=layout.flexible)
    nullable = slot.nullable and slot.tag is None
    if slot.kind in {"string", "bytes", "records"} and (slot.array or not nullable):
        item = _required(slot.name, item)  # an array may be null, its items must not be
    if slot.array:
        return _array_reader(slot, item, flexible=layout.flexible, nullable=nullable)
    if slot.kind == STRUCT and nullable:
        return _nullable_struct(item)
    return item


def _item_reader(slot: Slot, *, flexible: bool) -> Read:
    if slot.kind == STRUCT:
        return message_reader(slot.struct)
    if slot.kind in FIXED:
        return _fixed_reader(Struct(f">{FIXED[slot.kind]}"))
    if slot.kind == "string":
        return _compact_string if flexible else _string
    if slot.kind in {"bytes", "records"}:
        return _compact_bytes if flexible else _bytes
    return {
        "uuid": _uuid,
        "timedelta_i32": _duration_i32,
        "timedelta_i64": _duration_i64,
        "datetime_i64": _time,
    }[slot.kind]


def _fixed_reader(form: Struct) -> Read:
    unpack = form.unpack_from
    size = form.size

    def read(data: bytes, position: int, _budget: ItemBudget) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    return read


def _array_reader(slot: Slot, item: Read, *, flexible: bool, nullable: bool) -> Read:
    item_bytes = item_bytes_min(slot, flexible=flexible)

    def read(data: bytes, position: int, budget: ItemBudget) -> tuple[Any, int]:
        if flexible:
            count, position = read_uvarint(data, position)
            count -= 1
        else:
            count = _INT32.unpack_from(data, position)[0]
            position += 4
        if count < 0:
            if count == -1 and nullable:
                return None, position
            raise ProtocolViolation(f"{slot.name} has {count} items")
        budget.spend(count, (len(data) - position) // item_bytes)
        items = []
        for _ in range(count):
            value, position = item(data, position, budget)
            items.append(value)
        return tuple(items), position

    return read


def _nullable_struct(item: Read) -> Read:
    def read(data: bytes, position: int, budget: ItemBudget) -> tuple[Any, int]:
        return (None, position + 1) if data[position] == 0xFF else item(data, position + 1, budget)

    return read


def _required(name: str, item: Read) -> Read:
    def read(data: bytes, position: int, budget: ItemBudget) -> tuple[Any, int]:
        value, position = item(data, position, budget)
        if value is None:
            raise ProtocolViolation(f"{name} is null")
        return value, position

    return read


def _compact_bytes(data: bytes, position: int, _budget: ItemBudget) -> tuple[bytes | None, int]:
    size, position = read_uvarint(data, position)
    if not size:
        return None, position
    end = _end(data, position, size - 1)
    return data[position:end], end


def _bytes(data: bytes, position: int, _budget: ItemBudget) -> tuple[bytes | None, int]:
    size = _INT32.unpack_from(data, position)[0]
    if size == -1:
        return None, position + 4
    end = _end(data, position + 4, size)
    return data[position + 4 : end], end


def _compact_string(data: bytes, position: int, budget: ItemBudget) -> tuple[str | None, int]:
    raw, position = _compact_bytes(data, position, budget)
    return raw if raw is None else raw.decode(), position


def _string(data: bytes, position: int, _budget: ItemBudget) -> tuple[str | None, int]:
    size = _INT16.unpack_from(data, position)[0]
    if size == -1:
        return None, position + 2
    end = _end(data, position + 2, size)
    return data[position + 2 : end].decode(), end


def _uuid(data: bytes, position: int, _budget: ItemBudget) -> tuple[UUID | None, int]:
    end = _end(data, position, 16)
    raw = data[position:end]
    return (UUID(bytes=raw) if any(raw) else None), end


def _duration_i32(data: bytes, position: int, _budget: ItemBudget) -> tuple[timedelta, int]:
    return timedelta(milliseconds=_INT32.unpack_from(data, position)[0]), position + 4


def _duration_i64(data: bytes, position: int, _budget: ItemBudget) -> tuple[timedelta, int]:
    return timedelta(milliseconds=_INT64.unpack_from(data, position)[0]), position + 8


def _time(data: bytes, position: int, _budget: ItemBudget) -> tuple[datetime | None, int]:
    time_ms = _INT64.unpack_from(data, position)[0]
    return (None if time_ms == -1 else _EPOCH + timedelta(milliseconds=time_ms)), position + 8
