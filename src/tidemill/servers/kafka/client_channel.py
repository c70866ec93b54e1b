"""What one connection is used for: bytes, whether it produces or consumes, and how it ends."""

from asyncio import Transport

import structlog

from tidemill.broker.metrics import BROKERS, KAFKA_CLIENTS, BrokerMetrics
from tidemill.model.metrics import NetworkTraffic
from tidemill.security.core.event_limiter import EventLimiter
from tidemill.servers.kafka.api import ConnectionIdentity
from tidemill.tcp_connections import round_trip_s

PRODUCE, FETCH = 0, 1

log = structlog.get_logger("tidemill.kafka")


class ClientChannel:
    """Its connection adds to these attributes while it serves requests; all else happens at the end or in a sweep."""

    __slots__ = ("_closings", "_metrics", "apis", "has_failed", "is_client", "traffic", "transport")

    def __init__(self, metrics: BrokerMetrics, closings: EventLimiter) -> None:
        self._metrics = metrics
        self._closings = closings
        self.traffic: NetworkTraffic = metrics.network(KAFKA_CLIENTS)
        self.is_client = True
        """Whether the other end is no broker of the cluster."""
        self.apis = 0
        """The keys of the APIs that were used, one bit each."""
        self.transport: Transport | None = None
        self.has_failed = False
        """Whether the broker has closed the connection because of what the client sent."""

    @property
    def produces(self) -> bool:
        """Whether the client has produced records."""
        return self.is_client and bool(self.apis & 1 << PRODUCE)

    @property
    def consumes(self) -> bool:
        """Whether the client has fetched records."""
        return self.is_client and bool(self.apis & 1 << FETCH)

    def belongs_to(self, identity: ConnectionIdentity) -> None:
        """Count the connection of another broker apart from those of clients, from its login on."""
        if identity.node_id is not None:
            self.is_client = False
            self.traffic = self._metrics.network(BROKERS)

    def fail(self, peer: str, reason: str) -> None:
        """Log, unless there were many of this kind, and count that the connection is closed for a reason."""
        self.has_failed = True
        counts = self._closings.admit((peer, reason))
        if counts is not None:
            log.info("connection_closed", peer=peer, reason=reason, **counts)

    def measure(self) -> None:
        """Count the round trip to the client, as TCP has measured it."""
        found_s = round_trip_s(self.transport)
        if found_s is not None:
            self.traffic.latency.add(found_s)
