"""Routes calls: which broker leads a partition or coordinates a group, and how to forward a call to it.

Clients may call any broker. A call that belongs to another broker is forwarded unchanged, once. A forwarded call that
is wrong here, too, is rejected, and the client retries until the brokers agree. A token of this broker goes with the
call and names the client, so that the other broker checks the client's rights.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import grpc.aio
import structlog

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import (
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    NotCoordinator,
    NotLeaderOrFollower,
    TidemillError,
    UnknownServerError,
    UnknownTopicOrPartition,
    by_name,
)
from tidemill.model.topics import GROUP_OFFSETS
from tidemill.security.core.peer_token import PeerCall, PeerClaims
from tidemill.servers.grpc.call import ERROR_KEY, GrpcCall
from tidemill.servers.grpc.login import PEER_KEY
from tidemill.tracing.core.trace_context import TRACEPARENT, format_traceparent
from tidemill.wire.grpc import broker_pb2

FORWARD_TIMEOUT_S = 30.0
SERVICE = broker_pb2.DESCRIPTOR.services_by_name["BrokerService"]

log = structlog.get_logger("tidemill.grpc")


class Peer(NamedTuple):
    """A broker and its gRPC address."""

    node_id: int
    address: str
    rack: str


class Routes:
    """Finds the broker of every partition and group, and forwards calls to it."""

    def __init__(
        self, broker: BrokerNode, options: tuple[Any, ...], credentials: Callable[[], Any] | None = None
    ) -> None:
        """`credentials` makes those of a TLS channel; without it, channels to other brokers are plain."""
        self._broker = broker
        self._options = options
        self._credentials = credentials
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.here = ""
        """The address of this broker's gRPC server; empty if it listens everywhere: clients know an address of it."""

    def brokers(self) -> list[Peer]:
        """Return every broker, sorted by node id."""
        mine = Peer(self._broker.node_id, self.here, self._broker.identity.rack or "")
        others = (one for one in self._broker.view.image.brokers.values() if one.node_id != mine.node_id)
        listed = [Peer(one.node_id, str(one.grpc) if one.grpc else "", one.rack or "") for one in others]
        return sorted([mine, *listed])

    async def coordinator_of(self, group: str, *, forwarded: bool) -> Peer | None:
        """Return the group's coordinator; None when it is this broker."""
        await self._broker.coordinators.ensure(GROUP_OFFSETS)
        node = self._broker.coordinators.of_group(group)
        if node == self._broker.node_id:
            return None
        if forwarded:
            raise NotCoordinator
        return self._peer(
            node, CoordinatorNotAvailable(f"group {group[:60]!r} has no coordinator at the moment; try again")
        )

    def leader_of(self, topic: str, partition: int, *, forwarded: bool) -> Peer | None:
        """Return the partition's leader; None when it is this broker."""
        known = self._broker.view.topic(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            raise UnknownTopicOrPartition(f"partition {topic}-{partition} does not exist")
        leader = known.partitions[partition].leader
        if leader == self._broker.node_id:
            return None
        if forwarded:
            raise NotLeaderOrFollower
        return self._peer(
            leader, LeaderNotAvailable(f"partition {topic}-{partition} has no reachable leader; try again")
        )

    def _peer(self, node_id: int, otherwise: TidemillError) -> Peer:
        known = self._broker.view.image.brokers.get(node_id)
        if known is None or known.grpc is None:
            raise otherwise
        return Peer(node_id, str(known.grpc), known.rack or "")

    async def forward(
        self, peer: Peer, method: str, request: Any, call: GrpcCall, timeout_s: float = FORWARD_TIMEOUT_S
    ) -> Any:
        """Forward a call of BrokerService and return the answer of the other broker."""
        described = SERVICE.methods_by_name[method]
        try:
            return await self.ask(peer, described, getattr(broker_pb2, described.output_type.name), request, call)(
                timeout_s
            )
        except grpc.aio.AioRpcError as error:
            raise _typed(error, peer.address) from None

    def ask(self, peer: Peer, method: Any, reply: Any, request: Any, call: GrpcCall) -> Any:
        """A call to another broker that is not started yet, with the token that names the client."""
        path, body = path_of(method), request.SerializeToString()
        stub = self.channel(peer.address).unary_unary(path, None, reply.FromString)
        return lambda timeout_s: stub(body, timeout=timeout_s, metadata=self.metadata(peer, path, body, call))

    def metadata(self, peer: Peer, path: str, body: bytes, call: GrpcCall) -> tuple[tuple[str, str], ...]:
        """The metadata of a call to another broker on behalf of a client."""
        caller, tokens = call.caller, self._broker.security.peers
        claims = PeerClaims(tokens.node_id, caller.principal, caller.host, caller.expires_ms or 0)
        metadata = ((PEER_KEY, tokens.sign(PeerCall(path, peer.node_id, body), claims)),)
        trace = None if self._broker.tracer is None else call.trace_context()
        return metadata if trace is None else (*metadata, (TRACEPARENT, format_traceparent(trace)))

    def channel(self, address: str) -> grpc.aio.Channel:
        """Return the channel to another broker; it is opened once."""
        if address not in self._channels:
            self._channels[address] = self._open(address)
        return self._channels[address]

    def _open(self, address: str) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=self._options)
        return grpc.aio.secure_channel(address, self._credentials(), options=self._options)

    async def close(self) -> None:
        """Close the channels to other brokers."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()


def path_of(method: Any) -> str:
    """The path of a described method, `/package.Service/Method`."""
    return f"/{method.containing_service.full_name}/{method.name}"


def _typed(error: grpc.aio.AioRpcError, address: str) -> TidemillError:
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        # The client has logged in, here. It is this broker that the other one does not accept.
        log.error("broker_refuses_forwarded_calls", broker=address, reason=error.details())
        return LeaderNotAvailable(f"the broker at {address} does not accept calls of this broker; see their logs")
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_KEY and by_name(str(value)) is not UnknownServerError:
            return by_name(str(value))(error.details() or "")
    return LeaderNotAvailable(f"the broker at {address} does not answer: {error.code().name}; try again")
