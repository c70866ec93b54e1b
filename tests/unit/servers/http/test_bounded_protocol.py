"""The bytes of one request are bounded, and those before its headers are complete more tightly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from tidemill.broker.metrics import BrokerMetrics
from tidemill.security.core.principal import ANONYMOUS
from tidemill.servers.http import routes
from tidemill.servers.http.bounded_protocol import HEAD_BYTES_MAX, RECEIVE_S, REQUEST_BYTES_MAX

WAIT_S = 30


async def count_body(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the number of bytes of the body."""
    count, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        count, more = count + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(count).encode()})


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    app: Any = count_body
    _, make = routes.protocol_factory(app, lambda _: ANONYMOUS, BrokerMetrics(), keep_alive_s=WAIT_S)
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


async def is_cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bool:
    """Whether the server ends the connection after these bytes, long before it would tire of waiting."""
    try:
        async with asyncio.timeout(RECEIVE_S / 3):
            writer.write(data)
            await writer.drain()
            return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("line", [b"x-name: " + b"a" * 1000 + b"\r\n", b"a" * 1000], ids=["lines", "one line"])
async def test_headers_are_bounded(line: bytes) -> None:
    async with connected() as (reader, writer):
        begin = b"GET / HTTP/1.1\r\nhost: x\r\nx-first: "
        assert await is_cut(reader, writer, begin + line * (HEAD_BYTES_MAX // len(line) + 1))


async def test_headers_below_the_limit_are_served() -> None:
    async with connected() as (reader, writer), asyncio.timeout(WAIT_S):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nx-first: " + b"a" * (HEAD_BYTES_MAX - 100) + b"\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_body_may_be_larger_than_headers() -> None:
    size = 4 * HEAD_BYTES_MAX
    async with connected() as (reader, writer), asyncio.timeout(WAIT_S):
        for _ in range(2):  # the second request on the connection has the same limits
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size + b"b" * size)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert b"transfer-encoding: chunked" in head
            assert str(size).encode() in await reader.readuntil(b"0\r\n\r\n")


async def test_a_body_is_bounded() -> None:
    async with connected() as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk = b"2000\r\n" + b"b" * 0x2000 + b"\r\n"
        assert await is_cut(reader, writer, chunk * (REQUEST_BYTES_MAX // 0x2000 + 1))
