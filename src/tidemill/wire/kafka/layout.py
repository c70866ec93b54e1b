"""The wire layout of a message, derived from its kio class.

A kio class is a dataclass. The order of its fields is their order on the wire. `kafka_type` in a field's metadata is
its encoding, and `tag` makes it a tagged field. `X | None` makes it nullable, a tuple makes it an array, and another
such class makes it a structure. `__flexible__` selects one of Kafka's two encodings of lengths for the whole message.
Reader and writer are both built from this description.
"""

from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from tidemill.wire.kafka.schema import zero_of

STRUCT = "struct"
# The struct.pack format of the kinds with a fixed size.
FIXED = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float64": "d", "error_code": "h"}
FIXED |= {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q"}
SIZES = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float64": 8, "error_code": 2}
SIZES |= {"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8}
SIZES |= {"uuid": 16, "timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8}


class Slot(NamedTuple):
    """One field: its name, its encoding, and its value when it is absent on the wire."""

    name: str
    kind: str
    struct: Any
    array: bool
    nullable: bool
    tag: int | None
    default: Any


class MessageLayout(NamedTuple):
    """A message: its fields in order, its tagged fields by tag, and its smallest size in bytes."""

    message: Any
    flexible: bool
    slots: tuple[Slot, ...]
    tagged: tuple[Slot, ...]
    bytes_min: int


@cache
def layout_of(message: Any) -> MessageLayout:
    """Return the layout of a kio class."""
    slots = [_slot(field) for field in fields(message)]
    plain = tuple(slot for slot in slots if slot.tag is None)
    tagged = tuple(sorted((slot for slot in slots if slot.tag is not None), key=lambda slot: slot.tag or 0))
    flexible: bool = message.__flexible__
    fewest = sum(bytes_min(slot, flexible=flexible) for slot in plain) + flexible
    return MessageLayout(message, flexible, plain, tagged, fewest)


def _slot(field: Any) -> Slot:
    kind, nullable = _without_none(field.type)
    array = get_origin(kind) is tuple
    if array:
        kind, _ = _without_none(get_args(kind)[0])
    struct = kind if is_dataclass(kind) else None
    name = STRUCT if struct else field.metadata["kafka_type"]
    default = zero_of(field) if field.default is MISSING else field.default
    return Slot(field.name, name, struct, array, nullable, field.metadata.get("tag"), default)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) is not UnionType:
        return kind, False
    (inner,) = (part for part in get_args(kind) if part is not NoneType)
    return inner, True


def bytes_min(slot: Slot, *, flexible: bool) -> int:
    """Return the smallest size of the field in bytes."""
    if slot.array or slot.kind in {"bytes", "records"}:
        return 1 if flexible else 4
    return item_bytes_min(slot, flexible=flexible) if not (slot.struct and slot.nullable) else 1


def item_bytes_min(slot: Slot, *, flexible: bool) -> int:
    """Return the smallest size of one array item in bytes, to check an array's count against."""
    if slot.struct:
        return max(1, layout_of(slot.struct).bytes_min)
    return SIZES.get(slot.kind, 1 if flexible else 2)
