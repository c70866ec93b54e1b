"""Random bytes at the HTTP server: each connection gets a response or is closed, and the next client is served."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.kafka_server import running_kafka_server
from tests.support.no_sql import NoSql

from tidemill.servers.http import bounded_protocol
from tidemill.servers.http.server import HttpServer

pytestmark = pytest.mark.event_loop("uvloop")


ROUNDS = 150
LIMIT_S = 30
FLOOD_BYTES = 16 * bounded_protocol.REQUEST_BYTES_MAX
SQL = b"POST /api/v1/sql HTTP/1.1\r\ncontent-type: application/json\r\n"
PIECES = (
    b"GET ", b"POST ", b"HEAD ", b"/", b"/api/v1/sql", b"/api/tables/", b"/%00%ff", b"/metrics", b"*", b" HTTP/1.1\r\n",
    b" HTTP/9.9\r\n", b"\r\n", b"\n", b"\r\n\r\n", b"Host: x\r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n",
    b"Content-Type: application/json\r\n", b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\n", b"5\r\nhello\r\n",
    b"0\r\n\r\n", b"ffffffffffffffff\r\n", b'{"query": "SELECT 1"}', b'{"query": ' + b"[" * 1_000, b"\0", b"\xff\xfe",
    b":",
)  # fmt: skip


@asynccontextmanager
async def running_http_server(folder: Path) -> AsyncIterator[tuple[str, int]]:
    async with running_kafka_server(folder) as kafka:
        server = HttpServer(kafka.broker, lambda: {"node": "1", "version": "0"}, NoSql())
        await server.start("127.0.0.1", 0)
        await server.loaded()
        try:
            yield server.address
        finally:
            await server.close()


async def answer(address: tuple[str, int], data: bytes, *, end: bool = True) -> bytes:
    """Whatever comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection(*address)
    found = b""
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        if end:
            writer.write_eof()
        async with asyncio.timeout(LIMIT_S):
            found = await reader.read()
    writer.close()
    return found


async def is_served(address: tuple[str, int]) -> bool:
    found = await answer(address, b"GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", end=False)
    return found.startswith(b"HTTP/1.1 200") and found.endswith(b"live\n")


@pytest.fixture(autouse=True)
def _no_failures_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Neither the event loop nor the web framework may log a failure."""
    yield
    assert [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


async def test_noise(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)

    async with running_http_server(tmp_path) as address:
        for _ in range(ROUNDS):
            found = await answer(address, b"".join(rng.choices(PIECES, k=rng.randrange(1, 14))))
            assert b"HTTP/1.1 500" not in found
        assert await is_served(address)


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nx: ",
        SQL + b"transfer-encoding: chunked\r\n\r\n0\r\nx: ",
        SQL + b"transfer-encoding: chunked\r\n\r\nfffffff\r\n",
        SQL + b"content-length: 268435456\r\n\r\n",
    ],
    ids=["path", "header", "trailer", "chunked body", "announced body"],
)
async def test_an_endless_request_is_cut_off(tmp_path: Path, begin: bytes) -> None:

    async with running_http_server(tmp_path) as address:
        _, writer = await asyncio.open_connection(*address)
        sent = 0
        with contextlib.suppress(ConnectionError):
            writer.write(begin)
            while sent < FLOOD_BYTES:
                writer.write(b"a" * 65_536)
                sent += 65_536
                async with asyncio.timeout(LIMIT_S):
                    await writer.drain()
        assert sent < FLOOD_BYTES
        writer.close()
        assert await is_served(address)


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\nhost", SQL + b"content-length: 9\r\n\r\n{"])
async def test_a_client_that_stops_within_a_request_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(bounded_protocol, "RECEIVE_S", 0.05)

    async with running_http_server(tmp_path) as address:
        await answer(address, begin, end=False)


async def test_one_connection_too_many_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.servers.http.server.CONNECTIONS_MAX", 3)

    async with running_http_server(tmp_path) as address:
        held = [await asyncio.open_connection(*address) for _ in range(3)]
        assert await answer(address, b"", end=False) == b""
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(LIMIT_S):
            while not await is_served(address):  # the server hears of it a moment later
                pass
