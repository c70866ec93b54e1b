"""Accepts the connections of one listener, and checks the limits before anything is spent on a connection.

The event loop's own server accepts whatever comes and begins the TLS handshake at once. This one asks the limits before
the handshake, stops accepting above a rate, and bounds the handshakes in progress.
"""

import asyncio
import errno
import socket
import ssl
from contextlib import ExitStack
from functools import partial
from typing import Protocol

import structlog

from tidemill.model.listeners import ListenerSpec
from tidemill.security.core.connection_limits import Admission
from tidemill.security.core.quotas import plain_address
from tidemill.security.tls import HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S
from tidemill.servers.accept_loop import AcceptLoop
from tidemill.servers.kafka.connection import ClientConnection
from tidemill.servers.kafka.handshakes import Opening

BACKLOG = 1024
CLOSED_LATE_MAX = 1000
"""Refused connections that wait for their end, of one listener; above it they are closed at once."""

log = structlog.get_logger("tidemill.kafka")


class AcceptingServer(Protocol):
    """The part of the Kafka server that its acceptors use."""

    def accept_wait_s(self, listener: ListenerSpec) -> float:
        """How long the listener waits before it accepts the next connection."""

    def admit(self, listener: ListenerSpec, address: str) -> Admission:
        """Whether a new connection is served."""

    def connection(self, listener: ListenerSpec, address: str) -> ClientConnection:
        """The protocol of a connection that is served."""

    def opening(self, opening: Opening) -> None:
        """Register a connection that needs a TLS handshake."""

    def opened_or_failed(self, opening: Opening, *, has_begun: bool, error: BaseException | None) -> None:
        """Unregister it; `has_begun`: the connection is established."""


class Acceptor:
    """The listening sockets of one listener."""

    def __init__(
        self,
        server: AcceptingServer,
        listener: ListenerSpec,
        sockets: list[socket.socket],
        context: ssl.SSLContext | None,
    ) -> None:
        self._server = server
        self._listener = listener
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._openings: set[Opening] = set()
        self._closed_late: dict[socket.socket, asyncio.TimerHandle] = {}
        self._accepting = AcceptLoop(listener.name, sockets, self._begin, partial(server.accept_wait_s, listener))

    def stop(self) -> None:
        """Accept no more connections; handshakes in progress end."""
        self._accepting.stop()
        for opening in list(self._openings):
            opening.drop()
        for refused, timer in self._closed_late.items():
            timer.cancel()
            refused.close()
        self._closed_late.clear()

    async def stopped(self) -> None:
        """Wait until the handshakes have ended."""
        tasks = [opening.task for opening in self._openings if opening.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, accepted: socket.socket, host: str) -> None:
        address = plain_address(host.partition("%")[0])
        admission = self._server.admit(self._listener, address)
        if admission.is_admitted:
            self._prepare(accepted, address)
        elif admission.wait_s > 0 and len(self._closed_late) < CLOSED_LATE_MAX:
            self._closed_late[accepted] = self._loop.call_later(admission.wait_s, self._close_refused, accepted)
        else:
            accepted.close()

    def _prepare(self, accepted: socket.socket, address: str) -> None:
        accepted.setblocking(False)
        opening = Opening(address, accepted)
        self._openings.add(opening)
        connection = self._server.connection(self._listener, address)
        opening.end = partial(self._ended, opening, connection)
        opening.start = partial(self._started, opening, connection)
        if self._context is None:
            opening.task = opening.start()
        else:
            self._server.opening(opening)

    def _close_refused(self, refused: socket.socket) -> None:
        self._closed_late.pop(refused, None)
        refused.close()

    def _started(self, opening: Opening, connection: ClientConnection) -> asyncio.Task[None]:
        task = self._loop.create_task(self._open(opening.accepted, connection))
        # A callback and not a `finally`: a task that is cancelled before its first step runs no code.
        task.add_done_callback(partial(self._ended, opening, connection))
        return task

    async def _open(self, accepted: socket.socket, connection: ClientConnection) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self._loop.connect_accepted_socket(
            lambda: connection,
            accepted,
            ssl=self._context,
            ssl_handshake_timeout=None if self._context is None else HANDSHAKE_TIMEOUT_S,
            ssl_shutdown_timeout=None if self._context is None else SHUTDOWN_TIMEOUT_S,
        )

    def _ended(self, opening: Opening, connection: ClientConnection, task: asyncio.Task[None] | None = None) -> None:
        """The connection is established, or closed."""
        if opening.has_ended:
            return
        opening.has_ended = True
        self._openings.discard(opening)
        error = None if task is None or task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError):
            log.error("connection_not_opened", listener=self._listener.name, exc_info=error)
        self._server.opened_or_failed(opening, has_begun=connection.has_begun, error=error)
        if not connection.has_begun:
            opening.accepted.close()


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of a host; with port 0 the system chooses one port for all of them."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[socket.socket] = []
    with ExitStack() as opened:
        for family, kind, protocol, _, name in dict.fromkeys(found):
            try:
                listening = socket.socket(family, kind, protocol)
            except OSError:  # a host without IPv6
                continue
            made.append(opened.enter_context(listening))
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((name[0], name[1] or made[0].getsockname()[1], *name[2:]))
            listening.listen(BACKLOG)
        if not made:
            raise OSError(errno.EAFNOSUPPORT, f"no address of {host}:{port} can be used")
        opened.pop_all()
    return made
