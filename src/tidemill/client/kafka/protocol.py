"""The Kafka protocol of one connection, without IO: requests become bytes, frames become responses.

Every request gets the next correlation number. A broker answers in order, so the oldest open request says how to parse
the next frame. The first request is ApiVersions (version 0, which every broker supports). Later requests use the
highest version that both sides support.

A shell sends the bytes that `ask` returns and passes every received frame to `parse`. Bodies stay views into their
frame.
"""

from collections import deque
from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple, TypeAlias

from tidemill.client.kafka.apis import API_VERSIONS, ClientApi
from tidemill.client.kafka.errors import NotServed
from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.layout import layout_of
from tidemill.wire.kafka.reader import read_message, skip_tags
from tidemill.wire.kafka.requests import is_flexible
from tidemill.wire.kafka.schema import api_name, build, request_class, response_class
from tidemill.wire.kafka.writer import message_writer

Buffer: TypeAlias = bytes | bytearray | memoryview
Buffers: TypeAlias = list[Buffer]

_FRAME = Struct(">ihhih")  # size, key, version, number, length of the client id
_SIZE_BYTES = 4
_NUMBER = Struct(">i")
_NUMBER_MASK = 0x7FFFFFFF


class Request(NamedTuple):
    """A request: the API, and the function that writes its body in a version."""

    api: ClientApi
    write: Callable[[int], Buffers]
    answered: bool = True  # False for Produce with acks=0


class Answer(NamedTuple):
    """A response body in the version of its request."""

    number: int
    api: ClientApi
    version: int
    body: memoryview

    def message(self) -> Any:
        """The body as kio's object."""
        return read_message(response_class(self.api.key, self.version), bytes(self.body))[0]


class _Open(NamedTuple):
    number: int
    api: ClientApi
    version: int


def plain(api: ClientApi, fields: Mapping[str, Any]) -> Request:
    """A request from plain values in kio's spelling, nested as mappings. Fields that a version lacks are dropped."""

    def write(version: int) -> Buffers:
        kind = request_class(api.key, version)
        body = bytearray()
        message_writer(kind)(body, compose(kind, fields))
        return [body]

    return Request(api, write)


def compose(message: Any, given: Mapping[str, Any]) -> Any:
    """Build kio's object of this class from plain values."""
    layout = layout_of(message)
    values = dict(given)
    for slot in (*layout.slots, *layout.tagged):
        value = given.get(slot.name)
        if slot.struct is None or value is None:
            continue
        values[slot.name] = (
            tuple(compose(slot.struct, each) for each in value) if slot.array else compose(slot.struct, value)
        )
    return build(message, values)


class OpenRequests:
    """The open requests of one connection."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._versions: dict[int, tuple[int, int]] = {API_VERSIONS.key: (0, 0)}
        self._open: deque[_Open] = deque()
        self._next = 0

    def ask(self, request: Request) -> tuple[int, Buffers]:
        """The number of the request, and the bytes to send."""
        version = self.version_of(request.api)
        body = request.write(version)
        head = bytearray(_FRAME.size)
        head += self._client_id
        if is_flexible(request.api.key, version):
            head.append(0)  # no tagged fields
        number = self._next
        self._next = (number + 1) & _NUMBER_MASK
        size = len(head) - _SIZE_BYTES + sum(len(part) for part in body)
        _FRAME.pack_into(head, 0, size, request.api.key, version, number, len(self._client_id))
        if request.answered:
            self._open.append(_Open(number, request.api, version))
        return number, [head, *body]

    def parse(self, frame: bytearray) -> Answer:
        """Parse a frame (without its size) into a response. ProtocolViolation if it is malformed."""
        view = memoryview(frame)
        if not self._open:
            raise ProtocolViolation("the broker sent a response without a request")
        number, api, version = self._open.popleft()
        try:
            if _NUMBER.unpack_from(view)[0] != number:
                raise ProtocolViolation(f"the broker sent a response to another request than {number}")
            # ApiVersions has the old header in every version, so that it can be parsed before versions are known.
            flexible = response_class(api.key, version).__flexible__ and api.key != API_VERSIONS.key
            start = skip_tags(view, _NUMBER.size) if flexible else _NUMBER.size
        except (struct_error, IndexError) as error:
            raise ProtocolViolation(f"the header of a response is malformed: {error}") from None
        return Answer(number, api, version, view[start:])

    def learn(self, versions: Mapping[int, tuple[int, int]]) -> None:
        """Store the versions that the broker supports, from its ApiVersions response."""
        self._versions.update(versions)

    def version_of(self, api: ClientApi) -> int:
        """The highest version that both sides support."""
        low, high = self._versions.get(api.key, (0, -1))
        version = min(api.high, high)
        if version < max(api.low, low):
            served = f"supports versions {low} to {high}" if high >= 0 else "does not support it"
            raise NotServed(f"{api_name(api.key)}: the broker {served}, this client supports {api.low} to {api.high}")
        return version


def versions_in(answer: Answer) -> dict[int, tuple[int, int]]:
    """The version ranges in an ApiVersions response."""
    return {each.api_key: (each.min_version, each.max_version) for each in answer.message().api_keys}
