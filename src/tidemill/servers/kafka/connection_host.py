"""The part of the Kafka server that its connections use: what all connections together may hold and do."""

import asyncio
from typing import Protocol, TypeVar

from tidemill.broker.broker import BrokerNode
from tidemill.security.core.event_limiter import EventLimiter
from tidemill.servers.kafka.api_table import ApiTable
from tidemill.servers.kafka.loop_guard import LoopGuard
from tidemill.servers.kafka.request_traffic import RequestTraffic

Connection_contra = TypeVar("Connection_contra", contravariant=True)


class ConnectionHost(Protocol[Connection_contra]):
    """The server of a connection."""

    broker: BrokerNode
    apis: ApiTable
    guard: LoopGuard
    traffic: RequestTraffic
    closings: EventLimiter
    """Which closed connections are logged: clients can repeat what they are closed for without end."""
    scratch: memoryview
    memory_short: bool
    is_crowded: bool
    eager_bytes: int

    def opened(self, connection: Connection_contra) -> None:
        """Register a connection."""

    def authenticated(self, connection: Connection_contra) -> None:
        """The client has logged in."""

    def closed(self, connection: Connection_contra) -> None:
        """Unregister a closed connection."""

    def adopt(self, task: asyncio.Task[None], held_bytes: int, *, waits: bool) -> None:
        """Keep a request whose client has disconnected, and count its memory, until it is done.

        `waits`: the request may wait for other clients, so a server that stops does not wait for it.
        """

    def owe(self, count: int) -> None:
        """Add `count` (may be negative) to the bytes of responses that slow clients have not read."""

    def hold(self, count: int) -> None:
        """Add `count` (may be negative) to the bytes of requests; closes the slowest uploads above the limit."""

    def stall(self, connection: Connection_contra) -> None:
        """Call `unstall` when all connections together are below the limit again."""
