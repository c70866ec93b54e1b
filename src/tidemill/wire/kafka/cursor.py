"""Reads lengths, strings and counts of both encodings, for Produce and Fetch.

These two requests are read field by field instead of through kio's classes. The records of a batch must stay a view
into the frame and not be copied, and the two requests arrive thousands of times per second.
"""

from struct import Struct
from typing import TypeAlias
from uuid import UUID

from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.reader import ItemBudget
from tidemill.wire.kafka.varint import read_uvarint

Frame: TypeAlias = bytes | bytearray | memoryview
# How responses name a topic: by its name, or by its id in versions that have ids.
TopicKey: TypeAlias = str | UUID

_INT16 = Struct(">h").unpack_from
_INT32 = Struct(">i").unpack_from


def read_string(data: Frame, position: int, *, flexible: bool) -> tuple[str | None, int]:
    """Return a string or None."""
    if flexible:
        size, position = read_uvarint(data, position)
        size -= 1
    else:
        size = _INT16(data, position)[0]
        position += 2
    if size < 0:
        if size == -1:
            return None, position
        raise ProtocolViolation(f"a string has the invalid length {size}")
    end = position + size
    if end > len(data):
        raise ProtocolViolation(f"a string has the invalid length {size}")
    return str(data[position:end], "utf-8"), end


def read_count(
    data: Frame, position: int, item_bytes_min: int, budget: ItemBudget, *, flexible: bool
) -> tuple[int, int]:
    """Return the item count of an array, which the remaining bytes must be able to hold. Null counts as 0."""
    if flexible:
        count, position = read_uvarint(data, position)
        count -= 1
    else:
        count = _INT32(data, position)[0]
        position += 4
    if count <= 0:
        if count < -1:
            raise ProtocolViolation(f"an array has the invalid item count {count}")
        return 0, position
    budget.spend(count, (len(data) - position) // item_bytes_min)
    return count, position


def read_topic(data: Frame, position: int, *, flexible: bool, by_id: bool) -> tuple[TopicKey, int]:
    """Return a topic's name or id."""
    if by_id:
        raw = bytes(data[position : position + 16])
        if len(raw) < 16:
            raise ProtocolViolation("a topic id is truncated")
        return UUID(bytes=raw), position + 16
    name, position = read_string(data, position, flexible=flexible)
    if name is None:
        raise ProtocolViolation("a topic's name is null")
    return name, position
