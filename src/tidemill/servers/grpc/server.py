"""The gRPC server with TimelineService and BrokerService.

All limits are named constants: the size of a message, the streams of one connection, the wait for running calls at a
stop. Importing gRPC takes longer than starting everything else, so the node imports this module late (see `app`).
"""

import asyncio
import errno
import socket

# A thread loads this module. The package comes first: two threads that import its parts in another order deadlock.
import grpc
import grpc.aio

from tidemill.broker.broker import BrokerNode
from tidemill.client.rpc import IN_USE
from tidemill.cluster.core.registration import Endpoint
from tidemill.model.listeners import GRPC, server_security
from tidemill.model.topic_settings import INT32_MAX
from tidemill.security.tls import HANDSHAKE_TIMEOUT_S
from tidemill.servers.grpc.broker_service import BrokerService
from tidemill.servers.grpc.call import SERVER_NAME
from tidemill.servers.grpc.call_interceptor import CallInterceptor
from tidemill.servers.grpc.channel_options import CHANNEL_OPTIONS
from tidemill.servers.grpc.connection_count import connection_readings
from tidemill.servers.grpc.credentials_loading import load_certificate
from tidemill.servers.grpc.login import GrpcLogin
from tidemill.servers.grpc.move_hints import MoveHints
from tidemill.servers.grpc.routing import Routes
from tidemill.servers.grpc.timeline_peers import add_timeline_peers
from tidemill.servers.grpc.timeline_relay import TimelineRelay
from tidemill.servers.grpc.timeline_service import TimelineService
from tidemill.wire.grpc import broker_pb2_grpc, timeline_pb2_grpc

STREAMS_PER_CONNECTION_MAX = 1_000
KEEPALIVE_MS = 10_000
STOP_GRACE_S = 0.2
EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 -- compared with, not listened on


class GrpcServer:
    """A gRPC server on one address."""

    def __init__(self, broker: BrokerNode) -> None:
        self.address: tuple[str, int] = ("", 0)
        self._broker = broker
        self._server: grpc.aio.Server | None = None
        security = server_security(GRPC, broker.settings, broker.identity.listeners)
        certificate = self._certificate = load_certificate(security.settings) if security.uses_tls else None
        self._login = GrpcLogin(
            broker.security,
            requires_login=security.protocol.startswith("SASL_"),
            names=None if certificate is None else certificate.names(),
        )
        credentials = None if certificate is None else certificate.channel_credentials
        self._routes = Routes(broker, CHANNEL_OPTIONS, credentials)

    async def start(self, host: str, port: int) -> None:
        """Listen. Port 0 means any free one; `address` has the result."""
        options = (
            *CHANNEL_OPTIONS,
            ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
            ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
            ("grpc.so_reuseport", 0),
            ("grpc.server_handshake_timeout_ms", round(HANDSHAKE_TIMEOUT_S * 1000)),
            ("grpc.max_connection_idle_ms", min(self._broker.settings.connections_max_idle_ms, INT32_MAX)),
        )
        metrics = self._broker.metrics
        interceptor = CallInterceptor(self._broker.security, self._login, metrics)
        metrics.in_flight[SERVER_NAME] = lambda: sum(
            traffic.in_flight for (server, _), traffic in metrics.apis.items() if server == SERVER_NAME
        )
        server = grpc.aio.server(options=options, interceptors=(interceptor,))
        self._serve(server)
        await _check_address(host, port)
        try:
            bound = self._add_port(server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, str(error)) from error
        await server.start()
        IN_USE.open.add(server)
        self._server, self.address = server, (host, bound)
        metrics.snapshots.append(connection_readings(bound))
        self._routes.here = "" if host in EVERYWHERE else str(Endpoint(host, bound))

    def _add_port(self, server: grpc.aio.Server, address: str) -> int:
        if self._certificate is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, self._certificate.credentials()))

    async def close(self) -> None:
        """Reject new calls and end the running ones."""
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
            IN_USE.open.discard(self._server)
            self._server = None
        await self._routes.close()

    def _serve(self, server: grpc.aio.Server) -> None:
        hints = MoveHints(self._broker)
        streams = BrokerService(self._broker, self._routes, hints)
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(streams, server)
        if self._broker.answer_timeline_calls is not None:
            add_timeline_peers(server, self._broker.answer_timeline_calls)
        if self._broker.timelines is not None or not self._broker.carries:
            mine = self._broker.timelines
            broker, routes = self._broker, self._routes
            timelines = TimelineRelay(broker, routes) if mine is None else TimelineService(broker, mine, hints)
            timeline_pb2_grpc.add_TimelineServiceServicer_to_server(timelines, server)


async def _check_address(host: str, port: int) -> None:
    """Raise a precise error for an address that cannot be bound; gRPC only reports that binding failed."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
