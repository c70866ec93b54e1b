"""The Kafka door: listens, takes connections in up to a limit, closes the quiet ones, and leaves in good order."""

import asyncio
import resource
from contextlib import suppress

import structlog

from tidemill.broker.broker import Broker
from tidemill.doors.kafka import (
    api_versions,
    configs,
    fetch,
    groups,
    metadata,
    nodes,
    offsets,
    peers,
    produce,
    topics,
    transactions,
)
from tidemill.doors.kafka.connection import Connection
from tidemill.doors.kafka.router import Router

DOOR = "kafka"
BACKLOG = 1024
SCRATCH_BYTES = 256 * 1024
FILES_RESERVE = 256
"""File descriptors that are left for segments when connections have taken theirs."""
HELD_BYTES_MAX = 512 * 1024 * 1024
"""Bytes of requests that have not been answered, all connections together."""
OWED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of answers that slow clients have not read, all together; above it answers to fetches are small."""
SWEEP_INTERVAL_S = 5.0
DRAIN_S = 10.0
"""How long a closing door waits for requests under way."""
FAREWELL_S = 1.0
"""How long it then waits for the last answers to leave."""

log = structlog.get_logger("tidemill.kafka")


def standard_router() -> Router:
    """Every API of this door; metadata and fetch keep state of their own, so each door has its own."""
    modules = (api_versions, configs, groups, nodes, offsets, peers, produce, topics, transactions)
    apis = [api for module in modules for api in module.APIS]
    return Router([*apis, *fetch.apis(), *metadata.apis()], [*groups.FEATURES, *transactions.FEATURES])


class KafkaDoor:
    """One listening address and the connections that came through it."""

    broker: Broker

    def __init__(self, router: Router | None = None) -> None:
        self.router = router or standard_router()
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.address: tuple[str, int] = ("", 0)
        self._connections: set[Connection] = set()
        self._connections_max = 0
        self._orphans: set[asyncio.Task[None]] = set()
        self._parked: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._refused = 0
        self._held_bytes = 0
        self._owed_bytes = 0
        self.memory_short = False
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, broker: Broker, host: str, port: int) -> None:
        """Listen; port 0 means any free port, `address` then names it."""
        self.broker = broker
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._connections_max = max(1, min(broker.settings.max_connections, files - FILES_RESERVE))
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), host, port, backlog=BACKLOG)
        self.address = self._server.sockets[0].getsockname()[:2]
        self._sweeper = loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    async def close(self) -> None:
        """Take nobody in any more, let what is asked be answered for a while, then end all connections."""
        if self._server is None:
            return
        self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in self._connections:
            connection.retire()
        under_way = [task for connection in self._connections for task in connection.under_way()]
        under_way += self._orphans
        if under_way:
            await asyncio.wait(under_way, timeout=DRAIN_S)
        for connection in list(self._connections):
            connection.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), FAREWELL_S)
        for connection in list(self._connections):
            connection.abort()
        await self._empty.wait()

    def opened(self, connection: Connection) -> bool:
        """Count a connection in; False when there are as many as may be."""
        if len(self._connections) >= self._connections_max:
            self._refused += 1
            return False
        self._connections.add(connection)
        self._empty.clear()
        self.broker.telemetry.connection_opened(DOOR)
        return True

    def closed(self, connection: Connection) -> None:
        """Count a connection out."""
        if connection in self._connections:
            self._connections.discard(connection)
            if not self._connections:
                self._empty.set()
            self.broker.telemetry.connection_closed(DOOR)

    def adopt(self, task: asyncio.Task[None], *, waits: bool) -> None:
        """Keep the work of a client that is gone until it is done; `waits` when a closing door need not wait for it."""
        home = self._parked if waits else self._orphans
        home.add(task)
        task.add_done_callback(home.discard)

    def owe(self, count: int) -> None:
        """Count bytes of answers in or out that clients are slow to read."""
        self._owed_bytes += count
        self.memory_short = self._owed_bytes > OWED_BYTES_MAX

    def hold(self, count: int) -> bool:
        """Count bytes of requests in or out; False when all connections together hold too many."""
        self._held_bytes += count
        return self._held_bytes <= HELD_BYTES_MAX

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        idle_s = self.broker.settings.connections_max_idle_ms / 1000
        for connection in list(self._connections):
            if connection.too_slow(now, idle_s):
                connection.abort()
        if self._refused:
            log.warning("connections refused", count=self._refused, limit=self._connections_max)
            self._refused = 0
        self._sweeper = loop.call_later(SWEEP_INTERVAL_S, self._sweep)
