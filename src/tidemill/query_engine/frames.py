"""Messages between the broker and its query process: a kind, a length and a payload, over a socket pair.

The broker sends one request and answers pulls for rows until it gets a result or an error. The broker must not trust
the process: payloads are bounded, and none of them is code.
"""

import json
import socket
import struct
from enum import IntEnum
from typing import Any, NamedTuple

HEADER = struct.Struct(">BI")
CONTROL_BYTES_MAX = 16 * 1024 * 1024
"""The largest message that is not a result or rows: the list of functions, and query trees."""


class FrameKind(IntEnum):
    """The kind of a message."""

    READY = 1
    REQUEST = 2
    OPEN = 3
    PULL = 4
    ROWS = 5
    END = 6
    FAILED = 7
    RESULT = 8
    ERROR = 9


class Frame(NamedTuple):
    """One message."""

    kind: FrameKind
    payload: bytes

    def document(self) -> Any:
        """The payload as a JSON object."""
        try:
            found = json.loads(self.payload)
        except (ValueError, RecursionError) as error:
            raise PeerClosed from error
        if not isinstance(found, dict):
            raise PeerClosed
        return found


class PeerClosed(Exception):
    """The peer closed the connection, or sent a malformed message."""


def send(peer: socket.socket, kind: FrameKind, payload: Any = b"") -> None:
    """Send one message. Bytes are sent unchanged, anything else as JSON."""
    data = payload if isinstance(payload, bytes | bytearray | memoryview) else json.dumps(payload).encode()
    try:
        peer.sendall(HEADER.pack(kind, len(data)))
        peer.sendall(data)
    except OSError as error:
        raise PeerClosed from error


def receive(peer: socket.socket, bytes_max: int) -> Frame:
    """Return the next message. Raise PeerClosed also for a message that is too long."""
    kind, size = HEADER.unpack(_exactly(peer, HEADER.size))
    if size > bytes_max or kind not in list(FrameKind):
        raise PeerClosed
    return Frame(FrameKind(kind), bytes(_exactly(peer, size)))


def _exactly(peer: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        try:
            count = peer.recv_into(view)
        except OSError as error:
            raise PeerClosed from error
        if not count:
            raise PeerClosed
        view = view[count:]
    return data
