"""The Kafka door: listens, takes connections in up to a limit, closes the quiet ones, and leaves in good order."""

import asyncio
import resource
from contextlib import suppress

import structlog

from tidemill.broker.broker import BrokerNode
from tidemill.servers.kafka import (
    api_versions,
    cluster,
    configs,
    fetch,
    groups,
    log_offsets,
    metadata,
    peer_authentication,
    produce,
    topics,
    transactions,
)
from tidemill.servers.kafka.connection import ClientConnection
from tidemill.servers.kafka.eviction import Upload, slowest, to_replace
from tidemill.servers.kafka.loop_guard import LoopGuard
from tidemill.servers.kafka.router import Router
from tidemill.wire.kafka.frames import FRAME_BYTES_EAGER, FRAME_BYTES_SPARING

DOOR = "kafka"
BACKLOG = 1024
SCRATCH_BYTES = 256 * 1024
FILES_RESERVE = 256
"""File descriptors that are left for segments when connections have taken theirs."""
CONNECTIONS_SHARE = 4
"""A process that may open few files gives at least one of so many to connections."""
EVICTED_SHARE = 8
"""When requests take too much memory, slow uploads are closed until so great a part of the limit is free again."""
EAGER_SHARE = 4
"""Requests get their memory ahead of their bytes while all together take less than this part of the limit."""
OWED_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of answers that slow clients have not read, all together; above it answers to fetches are small."""
SEARCH_INTERVAL_S = 0.05
"""At a limit: how often connections are looked for that can be closed, when none was found."""
SWEEP_INTERVAL_S = 5.0
DRAIN_S = 10.0
"""How long a closing door waits for requests under way."""
FAREWELL_S = 1.0
"""How long it then waits for the last answers to leave."""

log = structlog.get_logger("tidemill.kafka")


def standard_router() -> Router:
    """Every API of this door; metadata and fetch keep state of their own, so each door has its own."""
    modules = (api_versions, configs, groups, cluster, log_offsets, peer_authentication, produce, topics, transactions)
    apis = [api for module in modules for api in module.APIS]
    return Router([*apis, *fetch.apis(), *metadata.apis()], [*groups.FEATURES, *transactions.FEATURES])


class KafkaServer:
    """One listening address and the connections that came through it."""

    broker: BrokerNode

    def __init__(self, router: Router | None = None) -> None:
        self.router = router or standard_router()
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.guard = LoopGuard()
        self.address: tuple[str, int] = ("", 0)
        self._connections: set[ClientConnection] = set()
        self._connections_max = 0
        self._orphans: set[asyncio.Task[None]] = set()
        self._parked: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._refused = 0
        self._held_bytes = 0
        self._owed_bytes = 0
        self.memory_short = False
        self.is_crowded = False
        self.eager_bytes = FRAME_BYTES_EAGER
        self._held_bytes_max = 0
        self._stalled: set[ClientConnection] = set()
        self._evicted = 0
        self._replaceable: list[ClientConnection] = []
        self._next_search = 0.0
        self._next_eviction = 0.0
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, broker: BrokerNode, host: str, port: int) -> None:
        """Listen; port 0 means any free port, `address` then names it."""
        self.broker = broker
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._connections_max = connections_max(files, broker.settings.max_connections)
        if self._connections_max < broker.settings.max_connections:
            log.warning(
                "connections limited by file descriptors",
                limit=self._connections_max,
                file_descriptors=files,
                next_step=f"ulimit -n {broker.settings.max_connections + FILES_RESERVE}",
            )
        settings = broker.settings
        self._held_bytes_max = max(settings.queued_max_request_bytes, settings.socket_request_max_bytes)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ClientConnection(self), host, port, backlog=BACKLOG)
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
        self.guard.close()

    def opened(self, connection: ClientConnection) -> bool:
        """Count a connection in; False when there are as many as may be, and all of them are in use."""
        if len(self._connections) >= self._connections_max and not self._replace():
            self._refused += 1
            return False
        self._connections.add(connection)
        self._empty.clear()
        self.broker.telemetry.connection_opened(DOOR)
        return True

    def closed(self, connection: ClientConnection) -> None:
        """Count a connection out."""
        self._stalled.discard(connection)
        if connection in self._connections:
            self._connections.discard(connection)
            if not self._connections:
                self._empty.set()
            self.broker.telemetry.connection_closed(DOOR)

    def adopt(self, task: asyncio.Task[None], held_bytes: int, *, waits: bool) -> None:
        """Keep the work of a client that is gone, and the memory of its request, until it is done.

        `waits` when a closing door need not wait for it.
        """
        home = self._parked if waits else self._orphans
        home.add(task)
        task.add_done_callback(home.discard)
        task.add_done_callback(lambda _: self.hold(-held_bytes))

    def owe(self, count: int) -> None:
        """Count bytes of answers in or out that clients are slow to read."""
        self._owed_bytes += count
        self.memory_short = self._owed_bytes > OWED_BYTES_MAX

    def hold(self, count: int) -> None:
        """Count bytes of requests in or out; closes the slowest uploads when all connections hold too many."""
        self._held_bytes += count
        if count > 0 and self._held_bytes > self._held_bytes_max:
            self._make_room()
        self.is_crowded = self._held_bytes > self._held_bytes_max
        spare = self._held_bytes < self._held_bytes_max // EAGER_SHARE
        self.eager_bytes = FRAME_BYTES_EAGER if spare else FRAME_BYTES_SPARING
        if self._stalled and not self.is_crowded:
            stalled, self._stalled = self._stalled, set()
            for connection in stalled:
                connection.unstall()

    def stall(self, connection: ClientConnection) -> None:
        """Call `unstall` when all connections together hold less again."""
        self._stalled.add(connection)

    def _make_room(self) -> None:
        """Close the slowest uploads. Where nothing is being uploaded, requests under way will end."""
        now = asyncio.get_running_loop().time()
        if now < self._next_eviction:
            return
        wanted = self._held_bytes - self._held_bytes_max + self._held_bytes_max // EVICTED_SHARE
        chosen = slowest(self._uploads(), wanted)
        for connection in chosen:
            self._evict(connection)
        if not chosen:
            self._next_eviction = now + SEARCH_INTERVAL_S

    def _replace(self) -> bool:
        """Whether a connection gave way to a new one; all are looked at now and then, not for each newcomer."""
        now = asyncio.get_running_loop().time()
        if not self._replaceable and now >= self._next_search:
            self._next_search = now + SEARCH_INTERVAL_S
            resting = (each.resting(now) for each in self._connections)
            self._replaceable = to_replace(self._uploads(), (each for each in resting if each is not None))
        while self._replaceable:
            found = self._replaceable.pop()
            if found in self._connections and found.last_active < self._next_search - SEARCH_INTERVAL_S:
                self._evict(found)
                return True
        return False

    def _uploads(self) -> list[Upload[ClientConnection]]:
        now = asyncio.get_running_loop().time()
        uploads = (each.upload(now) for each in self._connections)
        return [each for each in uploads if each is not None]

    def _evict(self, connection: ClientConnection) -> None:
        self._evicted += 1
        connection.evict()
        self.closed(connection)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        # Armed first: a sweep that fails is reported by the loop, and the next one runs all the same.
        self._sweeper = loop.call_later(SWEEP_INTERVAL_S, self._sweep)
        now = loop.time()
        idle_s = self.broker.settings.connections_max_idle_ms / 1000
        for connection in list(self._connections):
            if connection.too_slow(now, idle_s):
                connection.abort()
        if self._refused:
            log.warning("connections refused", count=self._refused, limit=self._connections_max)
            self._refused = 0
        if self._evicted:
            log.warning(
                "slow connections closed",
                count=self._evicted,
                connections_max=self._connections_max,
                queued_max_request_bytes=self._held_bytes_max,
            )
            self._evicted = 0


def connections_max(file_descriptors: int, asked: int) -> int:
    """How many connections a process accepts that may open so many files."""
    room = max(file_descriptors - FILES_RESERVE, file_descriptors // CONNECTIONS_SHARE)
    return max(1, min(asked, room))
