"""The Kafka server: accepts connections up to a limit, closes idle and slow ones, and drains requests when it stops.

It bounds the memory of all connections together: request bytes, and response bytes that slow clients have not read.
"""

import asyncio
import resource
import select
import time
from contextlib import suppress

import structlog

from tidemill.broker.broker import BrokerNode
from tidemill.model.addresses import Address
from tidemill.model.listeners import PLAINTEXT, ListenerSpec, inter_broker_listener
from tidemill.security.core.connection_limits import REFUSED, Admission, ConnectionLimits
from tidemill.security.core.event_limiter import EventLimiter
from tidemill.security.tls import ReloadingContext
from tidemill.servers.kafka.acceptor import Acceptor, listening_sockets
from tidemill.servers.kafka.api_table import ApiTable, standard_table
from tidemill.servers.kafka.connection import ClientConnection
from tidemill.servers.kafka.connection_events import ConnectionEvents, EarlyEnd
from tidemill.servers.kafka.connection_settings import ConnectionSettings
from tidemill.servers.kafka.eviction import Throttled, Upload, largest, slowest, to_replace
from tidemill.servers.kafka.handshakes import Handshakes, Opening
from tidemill.servers.kafka.listener_metrics import ListenerMetrics
from tidemill.servers.kafka.loop_guard import LoopGuard
from tidemill.servers.kafka.newcomers import Newcomers
from tidemill.servers.kafka.request_traffic import RequestTraffic
from tidemill.wire.kafka.frames import FRAME_BYTES_EAGER, FRAME_BYTES_SPARING

SERVER_NAME = "kafka"
SCRATCH_BYTES = 256 * 1024
FILES_RESERVE = 256
"""File descriptors that connections leave for segments."""
CONNECTIONS_SHARE = 4
"""With a small limit of open files, one of this many descriptors is still for connections."""
EVICTED_SHARE = 8
"""When requests use too much memory, slow uploads are closed until 1/8 of the limit is free."""
EAGER_SHARE = 4
"""Memory for a request is allocated ahead of its bytes while all requests use less than 1/4 of the limit."""
OWED_BYTES_MAX = 256 * 1024 * 1024
"""Total bytes of responses that slow clients have not read; above it, fetch responses are small."""
SEARCH_INTERVAL_S = 0.05
"""The pause between two searches for connections to close, when a search found none."""
SWEEP_INTERVAL_S = 5.0
DRAIN_S = 10.0
"""How long a server that stops waits for requests in progress."""
FLUSH_S = 1.0
"""How long it then waits for the last responses to be sent."""

NEWCOMERS_SHARE = 2
"""Silent clients may have one of this many connections, so that new clients are served where few are allowed."""

log = structlog.get_logger("tidemill.kafka")


class KafkaServer:
    """The listeners of a broker and their connections. Limits hold for all of them together."""

    broker: BrokerNode
    traffic: RequestTraffic
    _connection_settings: ConnectionSettings
    _handshakes: Handshakes
    _limits: ConnectionLimits

    def __init__(self, apis: ApiTable | None = None) -> None:
        self.apis = apis or standard_table()
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.guard = LoopGuard()
        self.closings = EventLimiter(time.monotonic)
        self.addresses: dict[str, Address] = {}
        self._connections: set[ClientConnection] = set()
        self._connections_max = 0
        self._orphans: set[asyncio.Task[None]] = set()
        self._parked: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._events = ConnectionEvents()
        self._metrics = ListenerMetrics(self._connections)
        self._held_bytes = 0
        self._owed_bytes = 0
        self.memory_short = False
        self.is_crowded = False
        self.eager_bytes = FRAME_BYTES_EAGER
        self._held_bytes_max = 0
        self._stalled: set[ClientConnection] = set()
        self._replaceable: list[ClientConnection] = []
        self._next_search = 0.0
        self._next_eviction = 0.0
        self._quotas_version = 0
        self._acceptors: list[Acceptor] = []
        self._protected = ""
        self._newcomers: Newcomers[ClientConnection | Opening] = Newcomers(1)
        self._handshake_failure = ""
        self._contexts: list[ReloadingContext] = []
        self._sweeper: asyncio.TimerHandle | None = None

    def prepare(self, broker: BrokerNode) -> None:
        """Take the limits of this broker."""
        self.broker = broker
        self.traffic = RequestTraffic(broker.metrics)
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._connections_max = connections_max(files, broker.settings.max_connections)
        if self._connections_max < broker.settings.max_connections:
            log.warning(
                "connections_limited_by_file_descriptors",
                limit=self._connections_max,
                file_descriptors=files,
                next_step=f"ulimit -n {broker.settings.max_connections + FILES_RESERVE}",
            )
        settings = broker.settings
        self._held_bytes_max = max(settings.queued_max_request_bytes, settings.socket_request_max_bytes)
        share = max(1, self._connections_max // NEWCOMERS_SHARE)
        newcomers_max = min(settings.security.tidemill_unauthenticated_connections_max, share)
        self._newcomers = Newcomers(newcomers_max)
        self._handshakes = Handshakes(newcomers_max, self._newcomers.remove)
        broker.metrics.sources.append(self._events.readings)
        broker.metrics.sources.append(lambda: self._metrics.readings(self._held_bytes, self._owed_bytes))
        broker.metrics.in_flight[SERVER_NAME] = self._metrics.in_flight
        listeners = broker.identity.listeners
        between_brokers = inter_broker_listener(settings.security, listeners) if len(listeners) > 1 else None
        self._protected = "" if between_brokers is None else between_brokers.name
        loop = asyncio.get_running_loop()
        self._connection_settings = ConnectionSettings(settings, loop.time())
        self._limits = self._connection_settings.limits()
        self._sweeper = loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    async def listen(self, listener: ListenerSpec, host: str, port: int) -> Address:
        """Accept connections of one listener; with port 0 the system chooses the port of the returned address."""
        context = None
        if listener.uses_tls:
            context = ReloadingContext.open(self.broker.settings.of_listener(listener.name), listener.name)
            self._contexts.append(context)
        now, is_protected = asyncio.get_running_loop().time(), listener.name == self._protected
        rates = self._connection_settings.rates(listener.name, now, is_protected=is_protected)
        self._limits.limit(listener.name, rates)
        sockets = await listening_sockets(host, port)
        bound = self.addresses[listener.name] = Address(*sockets[0].getsockname()[:2])
        self._acceptors.append(Acceptor(self, listener, sockets, context))
        return bound

    async def start(self, broker: BrokerNode, host: str, port: int) -> None:
        """Listen without TLS and without logins."""
        self.prepare(broker)
        await self.listen(ListenerSpec(PLAINTEXT, Address(host, port)), host, port)

    @property
    def address(self) -> Address:
        """The address of the first listener."""
        return next(iter(self.addresses.values()))

    async def close(self) -> None:
        """Accept no more connections, wait a bounded time for requests in progress, then close all connections."""
        for acceptor in self._acceptors:
            acceptor.stop()
            await acceptor.stopped()
        if self._acceptors:
            self._handshakes.close()
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
            await asyncio.wait_for(self._empty.wait(), FLUSH_S)
        for connection in list(self._connections):
            connection.abort()
        await self._empty.wait()
        self.guard.close()

    def accept_wait_s(self, listener: ListenerSpec) -> float:
        """How long the listener waits before it accepts the next connection."""
        return self._limits.accept_wait_s(listener.name, asyncio.get_running_loop().time())

    def admit(self, listener: ListenerSpec, address: str) -> Admission:
        """Whether a new connection is served. It is not when the limit is reached and all connections are in use."""
        now = asyncio.get_running_loop().time()
        self._limits.accepted(listener.name, now)
        is_full = len(self._connections) + len(self._handshakes) >= self._connections_max
        if is_full and not self._replace() and not (listener.name == self._protected and self._replace_any()):
            self._events.count(EarlyEnd.REFUSED)
            return REFUSED
        table = self.broker.security.throttle.table
        quota = table.of_address(address) if table.limits_connections else None
        found = self._limits.admit(address, quota, now)
        if not found.is_admitted:
            self._events.count(EarlyEnd.REFUSED)
        return found

    def connection(self, listener: ListenerSpec, address: str) -> ClientConnection:
        """The protocol of a connection that is served."""
        return ClientConnection(self, listener, address)

    def opening(self, opening: Opening) -> None:
        """Begin a TLS handshake; when there are too many newcomers, one is dropped."""
        self._welcome(opening, opening.address)
        self._handshakes.add(opening)

    def opened_or_failed(self, opening: Opening, *, has_begun: bool, error: BaseException | None) -> None:
        """Unregister a handshake; `has_begun`: it succeeded, and the connection counts from now on."""
        self._newcomers.remove(opening)
        self._handshakes.remove(opening)
        if not has_begun:
            self._limits.release(opening.address)
        if error is not None and not has_begun:
            self._events.count(EarlyEnd.HANDSHAKE_FAILED)
            self._handshake_failure = str(error)

    def opened(self, connection: ClientConnection) -> None:
        """Register a connection."""
        self._connections.add(connection)
        self._empty.clear()
        self.broker.metrics.connection_opened(SERVER_NAME)
        if not connection.is_authenticated:
            self._welcome(connection, connection.address)

    def authenticated(self, connection: ClientConnection) -> None:
        """The client has logged in."""
        self._newcomers.remove(connection)

    def _welcome(self, newcomer: ClientConnection | Opening, address: str) -> None:
        dropped = self._newcomers.add(newcomer, address)
        if dropped is not None:
            self._events.count(EarlyEnd.NOT_AUTHENTICATED)
            dropped.drop()

    def closed(self, connection: ClientConnection) -> None:
        """Unregister a connection."""
        self._stalled.discard(connection)
        self._newcomers.remove(connection)
        if connection in self._connections:
            self._limits.release(connection.address)
            self._connections.discard(connection)
            self._metrics.ended(connection)
            if connection.channel.has_failed:
                self._events.count(EarlyEnd.INVALID_REQUEST)
            if not self._connections:
                self._empty.set()
            self.broker.metrics.connection_closed(SERVER_NAME)

    def adopt(self, task: asyncio.Task[None], held_bytes: int, *, waits: bool) -> None:
        """Keep a request whose client has disconnected, and count its memory, until it is done.

        `waits`: the request may wait for other clients, so a server that stops does not wait for it.
        """
        tasks = self._parked if waits else self._orphans
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: self.hold(-held_bytes))

    def owe(self, count: int) -> None:
        """Add `count` (may be negative) to the bytes of responses that slow clients have not read."""
        self._owed_bytes += count
        self.memory_short = self._owed_bytes > OWED_BYTES_MAX

    def hold(self, count: int) -> None:
        """Add `count` (may be negative) to the bytes of requests; closes the slowest uploads above the limit."""
        self._held_bytes += count
        if count > 0 and self._held_bytes > self._held_bytes_max:
            self._free_memory()
        self.is_crowded = self._held_bytes > self._held_bytes_max
        spare = self._held_bytes < self._held_bytes_max // EAGER_SHARE
        self.eager_bytes = FRAME_BYTES_EAGER if spare else FRAME_BYTES_SPARING
        if self._stalled and not self.is_crowded:
            stalled, self._stalled = self._stalled, set()
            for connection in stalled:
                connection.unstall()

    def stall(self, connection: ClientConnection) -> None:
        """Call `unstall` when all connections together are below the limit again."""
        self._stalled.add(connection)

    def _free_memory(self) -> None:
        """Close throttled clients and the slowest uploads. Without any, requests in progress will end."""
        now = asyncio.get_running_loop().time()
        if now < self._next_eviction:
            return
        wanted = self._held_bytes - self._held_bytes_max + self._held_bytes_max // EVICTED_SHARE
        found = [Throttled(each, held) for each in self._connections if (held := each.held_throttled_bytes)]
        throttled = largest(found, wanted)
        chosen = [each.connection for each in throttled]
        left = wanted - sum(each.memory_bytes for each in throttled)
        chosen += [each for each in slowest(self._uploads(), left) if each not in chosen]
        for connection in chosen:
            self._evict(connection)
        if not chosen:
            self._next_eviction = now + SEARCH_INTERVAL_S

    def _replace(self) -> bool:
        """Close one connection for a new one, if possible; the search runs at intervals, not for each new one."""
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

    def _replace_any(self) -> bool:
        """Close the connection that was idle for longest, for a broker of the cluster."""
        clients = [each for each in self._connections if each.listener_name != self._protected]
        if not clients:
            return False
        self._evict(min(clients, key=lambda each: each.last_active))
        return True

    def _uploads(self) -> list[Upload[ClientConnection]]:
        now = asyncio.get_running_loop().time()
        uploads = (each.upload(now) for each in self._connections)
        return [each for each in uploads if each is not None]

    def _evict(self, connection: ClientConnection) -> None:
        self._events.count(EarlyEnd.SLOW)
        connection.evict()
        self.closed(connection)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        # Scheduled first, so that the next sweep runs even if this one fails.
        self._sweeper = loop.call_later(SWEEP_INTERVAL_S, self._sweep)
        now = loop.time()
        for context in self._contexts:
            context.reload_if_changed()
        idle_s = self.broker.settings.connections_max_idle_ms / 1000
        connections = list(self._connections)
        for connection in connections:
            if connection.too_slow(now, idle_s):
                connection.abort()
        self._metrics.sweep(connections)
        self._tend_throttled(now)
        self._limits.expire(now)
        self._report()

    def _report(self) -> None:
        """Log what has ended early since the last sweep."""
        settings, news = self.broker.settings, self._events.news
        if count := news(EarlyEnd.REFUSED):
            log.warning("connections_refused", count=count, limit=self._connections_max)
        if count := news(EarlyEnd.HANDSHAKE_FAILED):
            log.info("tls_handshakes_failed", count=count, last_reason=self._handshake_failure)
        if count := news(EarlyEnd.NOT_AUTHENTICATED):
            limit = settings.security.tidemill_unauthenticated_connections_max
            log.warning("unauthenticated_connections_closed", count=count, limit=limit)
        if count := news(EarlyEnd.SLOW):
            log.warning(
                "slow_connections_closed",
                count=count,
                connections_max=self._connections_max,
                queued_max_request_bytes=self._held_bytes_max,
            )

    def _tend_throttled(self, now: float) -> None:
        """Close throttled connections whose clients have left, and let clients go when quotas have changed."""
        security = self.broker.security
        security.throttle.expire(now)
        muted = {file: each for each in self._connections if (file := each.muted_file) is not None}
        if security.quotas.version != self._quotas_version:
            self._quotas_version = security.quotas.version
            for connection in muted.values():
                connection.unmute()
        elif muted:
            poller = select.poll()
            for file in muted:
                poller.register(file, select.POLLRDHUP)
            for file, _ in poller.poll(0):
                muted[file].leave()


def connections_max(file_descriptors: int, asked: int) -> int:
    """How many connections a process with this limit of open files accepts."""
    available = max(file_descriptors - FILES_RESERVE, file_descriptors // CONNECTIONS_SHARE)
    return max(1, min(asked, available))
