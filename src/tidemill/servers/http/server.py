"""The HTTP door: the console, a JSON API, metrics and health, served on the broker's own event loop.

The address is bound at once; the web framework is loaded after the broker is ready, in a thread, and whoever connects
meanwhile waits in the listening queue for that moment. A broker that is asked for records only should not start
slower for a page that nobody opens.

Closing is bounded: requests under way get two seconds, then their connections are cut, whether their clients read or
not.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from importlib import import_module
from typing import Any

import structlog

from tidemill.broker.broker import BrokerNode
from tidemill.servers.http.request_origin import AllowedOrigins

BACKLOG = 128
STEP_S = 0.01
GRACE_STEPS = 200
CONNECTIONS_MAX = 1_000
KEEP_ALIVE_S = 15

Ask = Callable[[str, str, bool], Coroutine[Any, Any, bytes]]
"""Answers a question in SQL, in a format."""
Tell = Callable[[str], Awaitable[bytes | None]]
"""What this broker has of a table, as an Arrow stream; None for a table that there is not."""

log = structlog.get_logger("tidemill.console")


class HttpServer:
    """One listening address for browsers, scrapers and probes."""

    def __init__(
        self,
        broker: BrokerNode,
        facts: Callable[[], Mapping[str, str]],
        ask: Ask,
        tell: Tell,
        *,
        names: Sequence[str] = (),
    ) -> None:
        self.address: tuple[str, int] = ("", 0)
        self._broker = broker
        self._facts = facts
        self._ask = ask
        self._tell = tell
        self._names = names
        self._bound = ""
        self._server: asyncio.Server | None = None
        self._state: Any = None
        self._loading: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 means any free port, `address` then names it."""
        self._bound = host
        loop = asyncio.get_running_loop()
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
        self._loading = asyncio.create_task(self._serve(self._socket))

    async def loaded(self) -> None:
        """Wait until requests are answered."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    async def close(self) -> None:
        """Take nobody in any more, let requests end for a while, then cut what is left."""
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._server is None:
            if self._socket is not None:
                self._socket.close()
            return
        self._server.close()
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

    def _callers(self) -> AllowedOrigins:
        return AllowedOrigins(self.address[0], self._bound, self._names, [socket.gethostname()])

    async def _serve(self, listening: socket.socket) -> None:
        web = await asyncio.to_thread(import_module, "tidemill.servers.http.routes")
        self._state, protocol = web.protocol_factory(
            web.make_app(self._broker, self._facts, self._ask, self._tell, self._callers()),
            connections_max=CONNECTIONS_MAX,
            keep_alive_s=KEEP_ALIVE_S,
        )
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(protocol, sock=listening, backlog=BACKLOG)
