"""What the operating system counts for TCP connections: round trips, and bytes to servers that this broker uses.

The counts need no code in the path of the bytes. They are of Linux; elsewhere they are missing.
"""

import socket
from asyncio import BaseTransport, Transport
from collections.abc import Callable
from struct import Struct
from threading import Lock
from typing import NamedTuple, Protocol, runtime_checkable

_INFO_BYTES = 136
"""How much of the struct tcp_info of Linux is read."""
_ROUND_TRIP, _ROUND_TRIP_AT = Struct("=I"), 68
_BYTES, _BYTES_AT = Struct("=QQ"), 120
"""The bytes that the other end has acknowledged, and those that were received."""


class TcpBytes(NamedTuple):
    """The bytes of one or more connections."""

    received: int
    sent: int

    def plus(self, other: "TcpBytes") -> "TcpBytes":
        """The bytes of both."""
        return TcpBytes(self.received + other.received, self.sent + other.sent)


NO_BYTES = TcpBytes(0, 0)
Count = Callable[[], TcpBytes | None]


class TcpTraffic:
    """The bytes of all connections to one kind of server, also of those that were closed.

    A closed connection counts with what was last read of it. Threads may open connections while others are counted.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: list[tuple[Count, TcpBytes]] = []
        self._closed = NO_BYTES

    def watch(self, count: Count) -> None:
        """Count a new connection, until `count` returns None because it is closed."""
        with self._lock:
            self._read()
            self._open.append((count, NO_BYTES))

    def totals(self) -> TcpBytes:
        """The bytes until now."""
        with self._lock:
            self._read()
            found = self._closed
            for _, each in self._open:
                found = found.plus(each)
            return found

    def _read(self) -> None:
        still_open: list[tuple[Count, TcpBytes]] = []
        for count, last in self._open:
            now = count()
            if now is None:
                self._closed = self._closed.plus(last)
            else:
                still_open.append((count, now))
        self._open = still_open


@runtime_checkable
class UsesNetwork(Protocol):
    """A store on servers."""

    traffic: TcpTraffic


def bytes_of_transport(transport: BaseTransport) -> TcpBytes | None:
    """The bytes of a connection; None if it is closed or not one of TCP. A closed one has no descriptor of its own."""
    return None if transport.is_closing() else bytes_of_socket(transport.get_extra_info("socket"))


def bytes_of_socket(connected: socket.socket) -> TcpBytes | None:
    """The bytes of a connection; None if it is closed, and where the system does not say."""
    found = _tcp_info(connected)
    if len(found) < _INFO_BYTES:
        return None
    acknowledged, received = _BYTES.unpack_from(found, _BYTES_AT)
    return TcpBytes(received, acknowledged)


def round_trip_s(transport: Transport | None) -> float | None:
    """Seconds to the other end and back; None for a connection that is closed, and where the system does not say."""
    if not hasattr(socket, "TCP_INFO") or transport is None or transport.is_closing():
        return None
    found = _tcp_info(transport.get_extra_info("socket"))
    if len(found) < _ROUND_TRIP_AT + _ROUND_TRIP.size:
        return None
    return float(_ROUND_TRIP.unpack_from(found, _ROUND_TRIP_AT)[0]) / 1e6


def _tcp_info(connected: socket.socket) -> bytes:
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return b""
    try:
        return connected.getsockopt(socket.IPPROTO_TCP, option, _INFO_BYTES)
    except OSError:  # closed, or no TCP
        return b""
