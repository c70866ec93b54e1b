"""New connections: limits of addresses, rates, handshakes in progress, and a process without file descriptors."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.support.kafka_server import HOST, RawClient, running_kafka_server
from tests.support.quotas import set_quotas
from tests.support.waiting import eventually_async

from tidemill.model.addresses import Address
from tidemill.model.errors import InvalidConfig
from tidemill.model.listeners import ListenerSpec
from tidemill.servers import accept_loop
from tidemill.servers.kafka.connection_events import EarlyEnd
from tidemill.servers.kafka.listener import KafkaServer


async def is_served(address: Address) -> bool:
    """Whether a new connection gets a response."""
    reader, writer = await asyncio.open_connection(*address)
    client = RawClient(reader, writer)
    try:
        return int((await client.ask(18, 0)).error_code) == 0
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    finally:
        await client.close()


async def refused(address: Address) -> RawClient | None:
    """A new connection if it is served."""
    client = RawClient(*await asyncio.open_connection(*address))
    try:
        await client.ask(18, 0)
    except (ConnectionError, asyncio.IncompleteReadError):
        await client.close()
        return None
    return client


async def test_an_address_has_a_number_of_connections(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, {"max.connections.per.ip": "2"}) as server:
        kept = [await refused(server.address) for _ in range(3)]
        assert [each is not None for each in kept] == [True, True, False]
        assert kept[0] is not None
        await kept[0].close()
        await eventually_async(lambda: len(server._connections) == 1)
        assert await is_served(server.address)
        assert kept[1] is not None
        await kept[1].close()
        await eventually_async(lambda: server._limits.open_from(HOST) == 0)


async def test_single_addresses_have_other_limits(tmp_path: Path) -> None:
    settings = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "localhost:1,10.0.0.7:9"}
    async with running_kafka_server(tmp_path, settings) as server:
        assert await is_served(server.address)


async def test_an_override_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"max\.connections\.per\.ip\.overrides"):
        async with running_kafka_server(tmp_path, {"max.connections.per.ip.overrides": "home"}):
            pass


async def test_an_address_above_its_quota_is_closed_after_a_while(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, {"quota.window.num": "2"}) as server:
        client = await RawClient.connect(server)
        await set_quotas(client, {"ip": HOST}, connection_creation_rate=2.0)
        assert [await is_served(server.address) for _ in range(2)] == [True, True]
        began = asyncio.get_running_loop().time()
        assert not await is_served(server.address)
        assert asyncio.get_running_loop().time() - began > 0.2
        await set_quotas(client, {"ip": HOST}, connection_creation_rate=None)
        assert await is_served(server.address)
        await client.close()


@pytest.mark.parametrize(
    "setting", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
async def test_a_listener_above_its_rate_accepts_later(tmp_path: Path, setting: str) -> None:
    async with running_kafka_server(tmp_path, {setting: "5", "quota.window.num": "2"}) as server:
        began = asyncio.get_running_loop().time()
        assert all([await is_served(server.address) for _ in range(8)])
        assert asyncio.get_running_loop().time() - began > 0.4  # 5 at once, and 3 at 5 in a second


async def test_a_process_without_file_descriptors_accepts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_kafka_server(tmp_path) as server:
        made = server._acceptors[0]._accepting
        listening = made._sockets[0]

        class Short:
            failures = 3

            def fileno(self) -> int:
                return listening.fileno()

            def accept(self) -> Any:
                if Short.failures:
                    Short.failures -= 1
                    raise OSError(errno.EMFILE, "too many open files")
                return listening.accept()

            def close(self) -> None:
                listening.close()

        monkeypatch.setattr(accept_loop, "SHORTAGE_PAUSE_S", 0.01)
        made._loop.remove_reader(listening)
        made._sockets = [Short()]  # type: ignore[list-item]
        made._resume()
        assert await is_served(server.address)
        assert not Short.failures


@asynccontextmanager
async def tls_server(
    folder: Path, settings: dict[str, str]
) -> AsyncIterator[tuple[KafkaServer, Address, ssl.SSLContext]]:
    authority = Authority(folder / "ca")
    given = {"ssl.keystore.location": authority.issue("/CN=broker", "broker"), **settings}
    async with running_kafka_server(folder, given) as server:
        address = await server.listen(ListenerSpec("TLS", Address(HOST, 0), protocol="SSL"), HOST, 0)
        yield server, address, ssl.create_default_context(cafile=authority.path)


@pytest.mark.event_loop("uvloop")
async def test_half_open_handshakes_do_not_keep_others_out_uvloop(tmp_path: Path) -> None:
    await _half_open_handshakes(tmp_path)


async def test_half_open_handshakes_do_not_keep_others_out(tmp_path: Path) -> None:
    await _half_open_handshakes(tmp_path)


async def _half_open_handshakes(tmp_path: Path) -> None:
    most = 20
    settings = {"tidemill.unauthenticated.connections.max": f"{most}"}
    async with tls_server(tmp_path, settings) as (server, address, context):
        with ExitStack() as stack:
            for _ in range(3 * most):
                stack.enter_context(socket.create_connection(address))
            await eventually_async(lambda: len(server._handshakes) == most)
            reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
            client = RawClient(reader, writer)
            assert int((await client.ask(18, 0)).error_code) == 0
            assert len(server._handshakes) <= most
            await client.close()
        await eventually_async(lambda: not server._handshakes and not server._connections)
        assert server._limits.open_from(HOST) == 0


async def test_a_client_that_speaks_no_tls_is_closed_and_counted(tmp_path: Path) -> None:
    async with tls_server(tmp_path, {}) as (server, address, _):
        assert not await is_served(address)
        await eventually_async(lambda: server._events.news(EarlyEnd.HANDSHAKE_FAILED) == 1)
        assert server._limits.open_from(HOST) == 0


async def test_handshakes_in_progress_do_not_delay_the_end(tmp_path: Path) -> None:
    async with tls_server(tmp_path, {}) as (server, address, _):
        half_open = socket.create_connection(address)
        await eventually_async(lambda: len(server._handshakes) == 1)
    half_open.close()


async def test_logins_in_progress_are_bounded(tmp_path: Path) -> None:
    settings = {"tidemill.unauthenticated.connections.max": "3"}
    async with running_kafka_server(tmp_path, settings) as server:
        address = await server.listen(ListenerSpec("IN", Address(HOST, 0), protocol="SASL_PLAINTEXT"), HOST, 0)
        kept = [await refused(address) for _ in range(5)]
        clients = [each for each in kept if each is not None]
        assert len(clients) == 5
        await eventually_async(lambda: len(server._connections) == 3)
        assert all([await each.ended() for each in clients[:2]])
        for each in clients:
            await each.close()
        await eventually_async(lambda: len(server._newcomers) == 0)


async def test_a_broker_gets_a_connection_when_clients_have_them_all(tmp_path: Path) -> None:
    async with running_kafka_server(tmp_path, {"max.connections": "2"}) as server:
        server._protected = "BROKERS"
        address = await server.listen(ListenerSpec("BROKERS", Address(HOST, 0)), HOST, 0)
        clients = [await RawClient.connect(server) for _ in range(2)]
        for each in clients:
            await each.ask(18, 0)
        assert not await is_served(server.address)
        assert await is_served(address)
        assert await clients[0].ended()
        for each in clients:
            await each.close()
