"""Kafka requests as bytes, and a socket that sends them without the checks of a client."""

import socket
import ssl
from collections.abc import Mapping
from struct import Struct
from typing import Any, Self

from tidemill.client.kafka.protocol import compose
from tidemill.wire.kafka.reader import read_message, skip_tags
from tidemill.wire.kafka.requests import is_flexible
from tidemill.wire.kafka.schema import request_class, response_class
from tidemill.wire.kafka.writer import message_writer

API_VERSIONS = 18
SIZE = Struct(">i")
HEADER = Struct(">ihhih")
CLIENT_ID = b"test"


def body(key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    """A request body from plain values, with kio's names."""
    kind = request_class(key, version)
    out = bytearray()
    message_writer(kind)(out, compose(kind, fields))
    return bytes(out)


def frame(key: int, version: int, content: bytes, number: int = 0) -> bytes:
    """A whole request: size, header and body."""
    tags = b"\0" if is_flexible(key, version) else b""
    size = HEADER.size - SIZE.size + len(CLIENT_ID) + len(tags) + len(content)
    return HEADER.pack(size, key, version, number, len(CLIENT_ID)) + CLIENT_ID + tags + content


def unknown_request(key: int, content: bytes) -> bytes:
    """A request of an API that the broker does not have."""
    return (
        HEADER.pack(HEADER.size - SIZE.size + len(CLIENT_ID) + len(content), key, 0, 0, len(CLIENT_ID))
        + CLIENT_ID
        + content
    )


def request(key: int, version: int, fields: Mapping[str, Any]) -> bytes:
    """A whole request from plain values."""
    return frame(key, version, body(key, version, fields))


class Peer:
    """One connection to a broker."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 60.0, *, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            try:
                self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
            except BaseException:
                self._socket.close()
                raise

    def send(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self._socket.sendall(data)

    def receive(self) -> bytes | None:
        """The next response without its size; None when the broker has closed the connection."""
        head = self._exactly(SIZE.size)
        return None if head is None else self._exactly(SIZE.unpack(head)[0])

    def ask(self, key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """The response to a request, as kio's object."""
        self.send(request(key, version, fields))
        answer = self.receive()
        if answer is None:
            raise ConnectionError(f"the broker closed the connection after API {key} version {version}")
        kind = response_class(key, version)
        start = skip_tags(answer, SIZE.size) if kind.__flexible__ and key != API_VERSIONS else SIZE.size
        return read_message(kind, answer, start)[0]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exactly(self, count: int) -> bytes | None:
        out = bytearray()
        while len(out) < count:
            try:
                piece = self._socket.recv(min(count - len(out), 1 << 20))
            except (ConnectionError, ssl.SSLError):
                return None
            if not piece:
                return None
            out += piece
        return bytes(out)
