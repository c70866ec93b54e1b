"""Reads the header and the body of a request frame.

Header version 1 is key, version, correlation id and client id (a string with a 16-bit length in every version). Version
2 adds a section of tagged fields. Flexible bodies have header version 2.
"""

from functools import cache
from struct import Struct
from typing import Any, NamedTuple

from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.reader import read_message, skip_tags
from tidemill.wire.kafka.schema import request_class

Frame = bytes | bytearray | memoryview
_HEADER = Struct(">hhih")
HEADER_BYTES_MIN = _HEADER.size
REQUEST_ITEMS_MAX = 25_000
"""The largest number of array items in one request. A commit of 20,000 partitions in 5,000 topics has as many."""


class Header(NamedTuple):
    """The header of a request. `body` is the position of the body in the frame."""

    key: int
    version: int
    correlation: int
    client_id: str
    body: int


def peek(frame: Frame) -> tuple[int, int]:
    """Return the API key and version of a frame, before anything else is parsed."""
    if len(frame) < HEADER_BYTES_MIN:
        raise ProtocolViolation("the frame is shorter than a request header")
    key, version, _, _ = _HEADER.unpack_from(frame)
    return key, version


@cache
def is_flexible(key: int, version: int) -> bool:
    """Whether this version of the API uses compact lengths and tagged fields."""
    return bool(request_class(key, version).__flexible__)


def read_header(frame: Frame, *, flexible: bool) -> Header:
    """Return the header of a frame of at least HEADER_BYTES_MIN bytes."""
    key, version, correlation, size = _HEADER.unpack_from(frame)
    end = HEADER_BYTES_MIN + max(size, 0)
    if size < -1 or end > len(frame):
        raise ProtocolViolation(f"the client id has the invalid length {size}")
    try:
        client_id = str(frame[HEADER_BYTES_MIN:end], "utf-8")
        return Header(key, version, correlation, client_id, skip_tags(frame, end) if flexible else end)
    except (IndexError, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"the request header is malformed: {error}") from None


def read_body(header: Header, frame: Frame, items_max: int = REQUEST_ITEMS_MAX) -> Any:
    """Return the request as kio's object. Extra bytes are ignored. Raise TooManyItems when it has more array items."""
    data = bytes(frame)
    request, _ = read_message(request_class(header.key, header.version), data, header.body, items_max)
    return request
