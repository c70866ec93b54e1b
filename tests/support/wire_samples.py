"""Random messages of kio's classes, drawn from a seed."""

import io
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from tidemill.wire.kafka.layout import STRUCT, Slot, layout_of

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def kio_bytes(message: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(message))(out, message)
        return out.getvalue()


def sample(message: Any, rng: random.Random) -> Any:
    layout = layout_of(message)
    return message(**{slot.name: _value(slot, rng) for slot in (*layout.slots, *layout.tagged)})


def _value(slot: Slot, rng: random.Random) -> Any:
    if slot.tag is not None and rng.random() < 0.5:
        return slot.default
    if slot.nullable and slot.tag is None and rng.random() < 0.3:
        return None
    if slot.array:
        return tuple(_item(slot, rng) for _ in range(rng.choice((0, 1, 2) if slot.struct else (0, 1, 3, 130))))
    return _item(slot, rng)


def _item(slot: Slot, rng: random.Random) -> Any:
    kind = slot.kind
    if kind == STRUCT:
        return sample(slot.struct, rng)
    if kind in _BITS:
        bits = _BITS[kind]
        return rng.choice((0, -1, 5, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))))
    if kind == "string":
        return rng.choice(("", "orders", "ü€", "x" * 300))
    if kind in {"bytes", "records"}:
        return rng.choice((b"", b"ab", b"y" * 200))
    return {
        "bool": rng.random() < 0.5,
        "error_code": rng.choice((ErrorCode.none, ErrorCode.corrupt_message, ErrorCode.unknown_server_error)),
        "uuid": rng.choice((None, UUID(int=rng.getrandbits(127) + 1))),
        "float64": 2.5,
        "timedelta_i32": timedelta(milliseconds=rng.choice((0, -1, 30_000, 2**31 - 1))),
        "timedelta_i64": timedelta(milliseconds=rng.choice((0, -1, 30_000))),
        "datetime_i64": datetime.fromtimestamp(rng.choice((0, 1_700_000_000.123)), UTC),
    }[kind]
