"""Writes kio's message objects, five to ten times as fast as kio does.

A writer is built once per class from its layout. Adjacent fields of fixed size become one `struct.pack`, every other
field one function `(out, message)`. Handlers may also pass plain milliseconds where kio has durations and times, and
error codes as numbers. Kafka writes a tagged field only when it differs from its default, in the order of the tags. The
tests compare every served class with kio's own bytes.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby
from operator import attrgetter
from struct import Struct, pack
from typing import Any, TypeAlias

from tidemill.wire.kafka.layout import FIXED, STRUCT, MessageLayout, Slot, layout_of
from tidemill.wire.kafka.varint import uvarint

_INT16 = Struct(">h").pack
_INT32 = Struct(">i").pack
_INT64 = Struct(">q").pack
_NO_ID = bytes(16)
_NULL_INT16 = b"\xff\xff"
_NULL_INT32 = b"\xff\xff\xff\xff"
_NULL_COMPACT = b"\0"
_NULL_STRUCT = b"\xff"
_PRESENT_STRUCT = b"\x01"
_MILLISECOND = timedelta(milliseconds=1)

Write: TypeAlias = Callable[[bytearray, Any], None]


@cache
def message_writer(message: Any) -> Write:
    """Return the function that appends a message of this class to a bytearray."""
    layout = layout_of(message)
    steps: list[Write] = []
    for fixed, slots in groupby(layout.slots, key=_is_fixed):
        run = list(slots)
        steps += [_run_writer(run)] if fixed else [_field_writer(slot, layout) for slot in run]
    if layout.flexible:
        steps.append(_tags_writer(layout) if layout.tagged else _write_no_tags)
    if len(steps) == 1:
        return steps[0]

    def write(out: bytearray, value: Any) -> None:
        for step in steps:
            step(out, value)

    return write


def _is_fixed(slot: Slot) -> bool:
    return not slot.array and slot.kind in FIXED


def _run_writer(slots: list[Slot]) -> Write:
    encode = Struct(">" + "".join(FIXED[slot.kind] for slot in slots)).pack
    get = attrgetter(*(slot.name for slot in slots))
    if len(slots) == 1:

        def write_one(out: bytearray, message: Any) -> None:
            out += encode(get(message))

        return write_one

    def write(out: bytearray, message: Any) -> None:
        out += encode(*get(message))

    return write


def _write_no_tags(out: bytearray, _message: Any) -> None:
    out.append(0)


def _field_writer(slot: Slot, layout: MessageLayout) -> Write:
    get = attrgetter(slot.name)
    write_value = _value_writer(slot, layout)

    def write(out: bytearray, message: Any) -> None:
        write_value(out, get(message))

    return write


def _tags_writer(layout: MessageLayout) -> Write:
    fields = [
        (uvarint(slot.tag or 0), attrgetter(slot.name), slot.default, _value_writer(slot, layout))
        for slot in layout.tagged
    ]

    def write(out: bytearray, message: Any) -> None:
        count = 0
        section = bytearray()
        for tag, get, default, write_value in fields:
            value = get(message)
            if value is default or value == default:
                continue
            body = bytearray()
            write_value(body, value)
            section += tag + uvarint(len(body)) + body
            count += 1
        out += uvarint(count)
        out += section

    return write


def _value_writer(slot: Slot, layout: MessageLayout) -> Write:
    write_item = _item_writer(slot, flexible=layout.flexible)
    if slot.array:
        return _array_writer(slot, write_item, flexible=layout.flexible)
    if slot.kind == STRUCT and slot.nullable and slot.tag is None:
        return _nullable_struct_writer(write_item)
    return write_item


def _item_writer(slot: Slot, *, flexible: bool) -> Write:
    if slot.kind == STRUCT:
        return message_writer(slot.struct)
    if slot.kind in FIXED:
        return _fixed_writer(Struct(f">{FIXED[slot.kind]}"))
    if slot.kind == "string":
        return _write_compact_string if flexible else _write_string
    if slot.kind in {"bytes", "records"}:
        return _write_compact_bytes if flexible else _write_bytes
    return {
        "uuid": _write_uuid,
        "timedelta_i32": _write_duration_i32,
        "timedelta_i64": _write_duration_i64,
        "datetime_i64": _write_time,
    }[slot.kind]


def _fixed_writer(form: Struct) -> Write:
    encode = form.pack

    def write(out: bytearray, value: Any) -> None:
        out += encode(value)

    return write


def _array_writer(slot: Slot, write_item: Write, *, flexible: bool) -> Write:
    form = FIXED.get(slot.kind)

    def write(out: bytearray, items: Any) -> None:
        if items is None:
            out += _NULL_COMPACT if flexible else _NULL_INT32
            return
        out += uvarint(len(items) + 1) if flexible else _INT32(len(items))
        if form is not None:
            out += pack(f">{len(items)}{form}", *items)
            return
        for item in items:
            write_item(out, item)

    return write


def _nullable_struct_writer(write_item: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out += _NULL_STRUCT
            return
        out += _PRESENT_STRUCT
        write_item(out, value)

    return write


def _write_compact_string(out: bytearray, value: str | None) -> None:
    _write_compact_bytes(out, value if value is None else value.encode())


def _write_compact_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += _NULL_COMPACT
        return
    out += uvarint(len(value) + 1)
    out += value


def _write_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += _NULL_INT16
        return
    raw = value.encode()
    out += _INT16(len(raw))
    out += raw


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += _NULL_INT32
        return
    out += _INT32(len(value))
    out += value


def _write_uuid(out: bytearray, value: Any) -> None:
    out += _NO_ID if value is None else value.bytes


def _write_duration_i32(out: bytearray, value: timedelta | int) -> None:
    out += _INT32(value // _MILLISECOND if isinstance(value, timedelta) else value)


def _write_duration_i64(out: bytearray, value: timedelta | int) -> None:
    out += _INT64(value // _MILLISECOND if isinstance(value, timedelta) else value)


def _write_time(out: bytearray, value: datetime | int | None) -> None:
    if value is None:
        value = -1
    out += _INT64(round(value.timestamp() * 1000) if isinstance(value, datetime) else value)
