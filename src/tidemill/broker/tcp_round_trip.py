"""The round trip of a TCP connection, as the operating system has measured it."""

import socket
from asyncio import Transport
from struct import Struct

_INFO_BYTES, _ROUND_TRIP_AT = 104, 68
"""Of the struct tcp_info of Linux: how much of it is read, and where it has the round trip in microseconds."""
_MICROSECONDS = Struct("=I")


def round_trip_s(transport: Transport | None) -> float | None:
    """Seconds to the other end and back; None for a connection that is closed, and where the system does not say."""
    option = getattr(socket, "TCP_INFO", None)
    if option is None or transport is None or transport.is_closing():
        return None
    found = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, option, _INFO_BYTES)
    if len(found) != _INFO_BYTES:
        return None
    return float(_MICROSECONDS.unpack_from(found, _ROUND_TRIP_AT)[0]) / 1e6
