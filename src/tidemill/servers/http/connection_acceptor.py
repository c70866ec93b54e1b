"""Accepts the connections of the HTTP server, with TLS if there is a context.

A connection counts against the limit from the moment that it is accepted. So clients that never end their TLS handshake
cannot hold more sockets than clients that never end their request, and both are cut after a bounded time. When there
are too many connections, the address that has the most loses one to a client of another address.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from tidemill.security.tls import HANDSHAKE_TIMEOUT_S
from tidemill.servers.accept_loop import AcceptLoop
from tidemill.servers.http.core.fair_share import connection_to_end

SHUTDOWN_TIMEOUT_S = 2.0
"""How long the end of a TLS connection waits for the other side."""


class AcceptedConnection(Protocol):
    """An open connection, as far as the acceptor uses it."""

    client: tuple[str, int] | None
    transport: asyncio.Transport


class PendingConnection(NamedTuple):
    """A connection whose handshake has not ended."""

    protocol: asyncio.Protocol
    host: str


class ConnectionAcceptor:
    """Accepts connections of one listening socket until `close`. `opened` has the connections that are open."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
        *,
        opened: Collection[AcceptedConnection],
        connections_max: int,
    ) -> None:
        self._make_protocol = make_protocol
        self._context = context
        self._opened = opened
        self._connections_max = connections_max
        self._handshakes: dict[asyncio.Task[None], PendingConnection] = {}
        self._loop = asyncio.get_running_loop()
        self._accepting = AcceptLoop("http", [listening], self._admit)

    async def close(self) -> None:
        """Accept no more connections, and end those that are still in their handshake."""
        self._accepting.stop()
        await asyncio.sleep(0)  # a task that is cancelled before it begins would not close its socket
        handshakes = list(self._handshakes)
        for each in handshakes:
            each.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)

    def _admit(self, connected: socket.socket, host: str) -> None:
        opened: Collection[object] = self._opened
        # A connection may be open a moment before the task of its handshake ends.
        pending = {task: each for task, each in self._handshakes.items() if each.protocol not in opened}
        if len(opened) + len(pending) >= self._connections_max and not self._make_room(pending, host):
            connected.close()
            return
        protocol = self._make_protocol()
        task = asyncio.create_task(self._open(connected, protocol))
        self._handshakes[task] = PendingConnection(protocol, host)
        task.add_done_callback(self._handshakes.pop)

    def _make_room(self, pending: Mapping[asyncio.Task[None], PendingConnection], host: str) -> bool:
        """End a connection of the address that has the most; False if the new client has as many."""
        opened, tasks = [each for each in self._opened if not each.transport.is_closing()], list(pending)
        hosts = [each.host for each in pending.values()]
        hosts += [each.client[0] if each.client else "" for each in opened]
        chosen = connection_to_end(hosts, host)
        if chosen is None:
            return False
        if chosen < len(tasks):
            tasks[chosen].cancel()
        else:
            opened[chosen - len(tasks)].transport.abort()
        return True

    async def _open(self, connected: socket.socket, protocol: asyncio.Protocol) -> None:
        """Serve one connection; a handshake that fails or takes too long closes it."""
        connected.setblocking(False)
        seconds = {"ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S, "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_S}
        with suppress(OSError):
            await self._loop.connect_accepted_socket(
                lambda: protocol, connected, ssl=self._context, **(seconds if self._context is not None else {})
            )
