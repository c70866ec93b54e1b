"""A frame from a client: its header, and the body behind it.

Header version 1 is key, version, correlation id and client id (a string with a 16-bit length in every version);
version 2 adds a section of tagged fields. Which one it is follows from the body: flexible bodies have header 2.
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
"""Array items of one request, all arrays together; a commit of 20,000 partitions in 5,000 topics has as many."""


class Header(NamedTuple):
    """Who asks for what; `body` is the position of the body in the frame."""

    key: int
    version: int
    correlation: int
    client_id: str
    body: int


def peek(frame: Frame) -> tuple[int, int]:
    """The API key and version of a frame, before anything else of it is believed."""
    if len(frame) < HEADER_BYTES_MIN:
        raise ProtocolViolation("the frame is shorter than a request header")
    key, version, _, _ = _HEADER.unpack_from(frame)
    return key, version


@cache
def is_flexible(key: int, version: int) -> bool:
    """Whether this version of the API uses compact lengths and tagged fields."""
    return bool(request_class(key, version).__flexible__)


def read_header(frame: Frame, *, flexible: bool) -> Header:
    """The header of a frame of at least HEADER_BYTES_MIN bytes."""
    key, version, correlation, size = _HEADER.unpack_from(frame)
    end = HEADER_BYTES_MIN + max(size, 0)
    if size < -1 or end > len(frame):
        raise ProtocolViolation(f"the client id announces {size} bytes")
    try:
        client_id = str(frame[HEADER_BYTES_MIN:end], "utf-8")
        return Header(key, version, correlation, client_id, skip_tags(frame, end) if flexible else end)
    except (IndexError, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"the request header is malformed: {error}") from None


def read_body(header: Header, frame: Frame, items_max: int = REQUEST_ITEMS_MAX) -> Any:
    """The request, as kio's object; bytes behind it are ignored. TooManyItems when it has more array items."""
    data = bytes(frame)
    request, _ = read_message(request_class(header.key, header.version), data, header.body, items_max)
    return request
