"""The HTTP server: the console, its JSON API, metrics and health, served on the broker's own event loop.

The address is bound at once. A thread loads the web framework after the broker is ready, and clients that connect
meanwhile wait in the listen queue. A broker that only serves records should not start slower because of the console.

Closing is bounded: running requests get two seconds, then their connections are cut, even if clients still read.
"""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import structlog

from tidemill.broker.broker import BrokerNode
from tidemill.model.listeners import HTTP, ServerSecurity, server_security
from tidemill.security.client_certificate import certificate_principal
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.principal import ANONYMOUS, Principal
from tidemill.security.tls import RELOAD_CHECK_S, ReloadingContext
from tidemill.servers.http.connection_acceptor import ConnectionAcceptor
from tidemill.servers.http.request_origin import AllowedOrigins
from tidemill.sql.core.sql_query import SqlQuery

BACKLOG = 128
STEP_S = 0.01
GRACE_STEPS = 200
CONNECTIONS_MAX = 1_000
KEEP_ALIVE_S = 15

log = structlog.get_logger("tidemill.console")


class SqlQueries(Protocol):
    """Runs SQL queries."""

    def problem(self) -> str | None:
        """Why this broker cannot run queries; None if nothing is missing."""

    async def ask(self, query: SqlQuery, rights: ClientRights) -> bytes:
        """The result of a query over what a client may see, in the format of the query."""

    async def table(self, name: str, rights: ClientRights) -> bytes | None:
        """This broker's part of a table as an Arrow stream; None for an unknown table."""


class HttpServer:
    """One listening address for browsers, scrapers and probes."""

    def __init__(
        self,
        broker: BrokerNode,
        facts: Callable[[], Mapping[str, str]],
        sql: SqlQueries,
        *,
        names: Sequence[str] = (),
        security: ServerSecurity | None = None,
        is_readonly: bool = False,
    ) -> None:
        self.address: tuple[str, int] = ("", 0)
        self._broker = broker
        self._facts = facts
        self._sql = sql
        self._names = names
        self._is_readonly = is_readonly
        self._security = security or server_security(HTTP, broker.settings, ())
        self._bound = ""
        self._context: ReloadingContext | None = None
        self._acceptor: ConnectionAcceptor | None = None
        self._state: Any = None
        self._logins: Any = None
        self._api: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen. Port 0 means any free port; `address` has the result."""
        self._bound = host
        loop = asyncio.get_running_loop()
        if self._security.uses_tls:
            self._context = ReloadingContext.open(self._security.settings, HTTP)
        family, kind, protocol, _, where = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
        self._socket = socket.socket(family, kind, protocol)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(where)
            self._socket.listen(BACKLOG)
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self.address = self._socket.getsockname()[:2]
        self._loading = asyncio.create_task(self._load(self._socket))
        self._tend()

    async def loaded(self) -> None:
        """Wait until requests are answered."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    async def close(self) -> None:
        """Accept no more connections, let running requests end for a while, then cut the rest."""
        if self._timer is not None:
            self._timer.cancel()
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is None:
            if self._socket is not None:
                self._socket.close()
            return
        await acceptor.close()
        self._api.streams.close()
        connections = self._state.connections
        for connection in list(connections):
            connection.shutdown()
        for _ in range(GRACE_STEPS):
            if not (connections or self._state.tasks):
                break
            await asyncio.sleep(STEP_S)
        for connection in list(connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        self._api.acting.close()

    def _callers(self) -> AllowedOrigins:
        names = [socket.gethostname()]
        return AllowedOrigins(self.address[0], self._bound, self._names, names, is_secure=self._security.uses_tls)

    def _tend(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(RELOAD_CHECK_S, self._tend)
        if self._context is not None:
            self._context.reload_if_changed()
        if self._logins is not None:
            self._logins.sweep()
        if self._api is not None:
            self._api.acting.sweep()

    def _identify(self, transport: asyncio.Transport) -> Principal | None:
        if self._context is None:
            return ANONYMOUS
        return certificate_principal(transport, self._security.settings)

    async def _load(self, listening: socket.socket) -> None:
        """Begin to serve. If that fails, clients are refused: otherwise they would wait in the listen queue."""
        try:
            await self._serve(listening)
        except Exception:
            listening.close()
            log.exception(
                "http_server_failed",
                address=f"{self.address[0]}:{self.address[1]}",
                next_step="repair the installation and restart the broker; records and timelines are served meanwhile",
            )
            raise

    async def _serve(self, listening: socket.socket) -> None:
        web = await asyncio.to_thread(import_module, "tidemill.servers.http.routes")
        self._logins = web.HttpLogins(
            self._broker.security,
            self._security,
            self.address[1],
            token_text=secrets.token_urlsafe,
            steady_s=time.monotonic,
        )
        self._api = web.make_context(self._broker, self._facts, self._sql, self._logins, is_readonly=self._is_readonly)
        app = web.make_app(self._api, self._logins, self._callers())
        metrics = self._broker.metrics
        self._state, make_protocol = web.protocol_factory(app, self._identify, metrics, keep_alive_s=KEEP_ALIVE_S)
        metrics.in_flight[HTTP] = lambda: len(self._state.tasks)
        self._acceptor = ConnectionAcceptor(
            listening,
            make_protocol,
            self._context,
            opened=self._state.connections,
            connections_max=CONNECTIONS_MAX,
        )
