"""The gRPC door: one server with TimelineService and BrokerService.

Limits have names: the size of a message, the streams of one connection, how long a stop waits for calls under way.
Importing gRPC takes longer than starting everything else, so the node imports this module late (see `app.py`).
"""

import asyncio
import errno
import socket

import grpc.aio

from tidemill.broker.broker import BrokerNode
from tidemill.client.rpc import IN_USE
from tidemill.cluster.core.registration import Endpoint
from tidemill.servers.grpc.broker_service import BrokerService
from tidemill.servers.grpc.decoding import Decoding
from tidemill.servers.grpc.routing import Routes
from tidemill.servers.grpc.timeline_relay import TimelineRelay
from tidemill.servers.grpc.timeline_service import TimelineService
from tidemill.wire.grpc import broker_pb2_grpc, timeline_pb2_grpc

MESSAGE_BYTES_MAX = 65 * 1024 * 1024
"""The largest body that a timeline can allow, and room for what goes with it."""
STREAMS_PER_CONNECTION_MAX = 1_000
KEEPALIVE_MS = 10_000
STOP_GRACE_S = 0.2
EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 -- compared with, not listened on
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),  # for calls that are handed on to other brokers; see `client/http.py`
)


class GrpcServer:
    """A gRPC server on one address."""

    def __init__(self, broker: BrokerNode) -> None:
        self.address: tuple[str, int] = ("", 0)
        self._broker = broker
        self._server: grpc.aio.Server | None = None
        self._routes = Routes(broker, CHANNEL_OPTIONS)

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 means any free one, `address` tells which."""
        options = (
            *CHANNEL_OPTIONS,
            ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
            ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
            ("grpc.so_reuseport", 0),
        )
        server = grpc.aio.server(options=options, interceptors=(Decoding(),))
        self._serve(server)
        await _check_address(host, port)
        try:
            bound = server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, str(error)) from error
        await server.start()
        IN_USE.open.add(server)
        self._server, self.address = server, (host, bound)
        self._routes.here = "" if host in EVERYWHERE else str(Endpoint(host, bound))

    async def close(self) -> None:
        """Refuse new calls, end those under way."""
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
            IN_USE.open.discard(self._server)
            self._server = None
        await self._routes.close()

    def _serve(self, server: grpc.aio.Server) -> None:
        streams = BrokerService(self._broker, self._routes)
        broker_pb2_grpc.add_BrokerServiceServicer_to_server(streams, server)
        if self._broker.timelines is not None or not self._broker.carries:
            mine = self._broker.timelines
            timelines = TimelineRelay(self._routes) if mine is None else TimelineService(mine)
            timeline_pb2_grpc.add_TimelineServiceServicer_to_server(timelines, server)


async def _check_address(host: str, port: int) -> None:
    """Say what is wrong with an address; gRPC itself says of any that it could not be taken, and no more."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
