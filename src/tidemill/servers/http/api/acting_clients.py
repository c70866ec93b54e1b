"""Kafka clients that act for the clients of the HTTP server.

A request that changes something, or that reads records, goes through the Kafka protocol, to this broker or to another
one, on a connection that acts for the client: rights, quotas, validation and the audit log are those of the Kafka
server. Idle Kafka clients are used again for the same client, because a new connection takes several round trips.
"""

import asyncio
import contextvars
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from tidemill.broker.broker import BrokerNode
from tidemill.client.kafka.client import KafkaClient
from tidemill.client.kafka.options import ActingLogin, ClientOptions
from tidemill.client.kafka.topology import BrokerEndpoint
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.peer_token import KAFKA_LOGIN, PeerCall, PeerClaims
from tidemill.security.core.principal import Principal
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.sql.peer_access import PeerAccess

THREADS_MAX = 8
"""Requests of all clients that use Kafka at the same time."""
CLIENT_REQUESTS_MAX = 4
"""Requests of one client that use or wait for Kafka at the same time."""
WAITING_MAX = 64
IDLE_MAX = 16
IDLE_S = 20.0
REQUEST_MS = 10_000
NO_KAFKA = "the Kafka server of this broker is off, and this request needs it; start the broker with --kafka"

R = TypeVar("R")
_Key = tuple[Principal, str]


class ActingClients:
    """The Kafka clients of one HTTP server."""

    def __init__(self, broker: BrokerNode, access: PeerAccess) -> None:
        self._broker = broker
        self._access = access
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="console-kafka")
        self._idle: OrderedDict[int, tuple[_Key, KafkaClient, float]] = OrderedDict()
        self._number = 0
        self._running: dict[_Key, int] = {}
        self._is_closed = False

    async def run(self, rights: ClientRights, work: Callable[[KafkaClient], R]) -> R:
        """The result of `work`, which gets a Kafka client with these rights, in a thread.

        A request whose HTTP client has left keeps its thread, so it counts until its thread has ended.
        """
        key = (rights.principal, rights.host)
        self._check_limits(key)
        client = self._take(key) or KafkaClient(self._options(rights))
        self._running[key] = self._running.get(key, 0) + 1
        running = asyncio.get_running_loop().run_in_executor(
            self._threads, partial(contextvars.copy_context().run, work, client)
        )
        running.add_done_callback(partial(self._ended, key, client))
        return await asyncio.shield(running)

    def sweep(self) -> None:
        """Close clients that were idle for a while."""
        now = asyncio.get_running_loop().time()
        while self._idle and next(iter(self._idle.values()))[2] < now - IDLE_S:
            self._idle.popitem(last=False)[1][1].close()

    def close(self) -> None:
        """Close all clients."""
        self._is_closed = True
        while self._idle:
            self._idle.popitem()[1][1].close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check_limits(self, key: _Key) -> None:
        mine = self._running.get(key, 0)
        if mine >= CLIENT_REQUESTS_MAX:
            raise ApiProblem(429, f"{mine} requests of this client are running; wait for one of them, then try again")
        if sum(self._running.values()) >= WAITING_MAX:
            raise ApiProblem(429, f"{WAITING_MAX} requests wait for the Kafka server; try again in a moment")

    def _ended(self, key: _Key, client: KafkaClient, running: asyncio.Future[Any]) -> None:
        """Keep the client for the next request, unless its connections may be in the middle of a response."""
        left = self._running.pop(key) - 1
        if left:
            self._running[key] = left
        if self._is_closed or running.cancelled() or running.exception() is not None:
            client.close()
        else:
            self._put(key, client)

    def _take(self, key: _Key) -> KafkaClient | None:
        self.sweep()
        for number, (owner, client, _) in self._idle.items():
            if owner == key:
                del self._idle[number]
                return client
        return None

    def _put(self, key: _Key, client: KafkaClient) -> None:
        self._number += 1
        self._idle[self._number] = (key, client, asyncio.get_running_loop().time())
        while len(self._idle) > IDLE_MAX:
            self._idle.popitem(last=False)[1][1].close()

    def _options(self, rights: ClientRights) -> ClientOptions:
        address = self._broker.view.address
        if not address[1]:
            raise ApiProblem(503, NO_KAFKA)
        claims = PeerClaims(self._broker.node_id, rights.principal, rights.host)

        def token(node_id: int) -> str:
            return self._access.tokens.sign(PeerCall(KAFKA_LOGIN, node_id, b""), claims)

        return ClientOptions(
            (BrokerEndpoint(*address),),
            client_id="tidemill-console",
            context=self._access.kafka_tls(),
            acting=ActingLogin(token),
            request_timeout_ms=REQUEST_MS,
            api_timeout_ms=REQUEST_MS,
        )
