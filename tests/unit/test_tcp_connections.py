"""The bytes and the round trip of connections, as the operating system counts them."""

import asyncio
import socket
import sys
from typing import cast

import pytest

from tidemill.tcp_connections import TcpBytes, TcpTraffic, bytes_of_socket, bytes_of_transport, round_trip_s

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the bytes of a connection")
SIZE = 100_000


async def exchange(traffic: TcpTraffic) -> asyncio.StreamWriter:
    """Send `SIZE` bytes to a server that returns a tenth of them; the connection, which is watched."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(SIZE)
        writer.write(bytes(SIZE // 10))
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    transport = writer.transport
    traffic.watch(lambda: bytes_of_transport(transport))
    writer.write(bytes(SIZE))
    await reader.readexactly(SIZE // 10)
    server.close()
    return writer


@pytest.mark.event_loop("uvloop")
async def test_bytes_of_open_and_closed_connections_are_counted() -> None:
    traffic = TcpTraffic()
    first = await exchange(traffic)
    assert traffic.totals().received == SIZE // 10
    assert SIZE <= traffic.totals().sent <= SIZE + 2, "the handshake counts as a byte"
    transport = cast("asyncio.Transport", first.transport)
    assert round_trip_s(transport) is not None
    first.close()
    assert round_trip_s(transport) is None
    second = await exchange(traffic)
    assert traffic.totals().received == 2 * SIZE // 10
    second.close()
    assert traffic.totals().received == 2 * SIZE // 10, "closed connections keep their bytes"


def test_a_connection_that_is_not_tcp_or_closed_has_no_bytes() -> None:
    one, two = socket.socketpair()
    with one, two:
        assert bytes_of_socket(one) is None
    closed = socket.socket()
    closed.close()
    assert bytes_of_socket(closed) is None


def test_a_closed_connection_keeps_its_last_count_and_is_forgotten() -> None:
    traffic, counts = TcpTraffic(), [TcpBytes(1, 2), TcpBytes(5, 6)]
    asked = []

    def count() -> TcpBytes | None:
        asked.append(len(counts))
        return counts.pop(0) if counts else None

    traffic.watch(count)
    assert [traffic.totals() for _ in range(4)] == [(1, 2), (5, 6), (5, 6), (5, 6)]
    assert len(asked) == 3
