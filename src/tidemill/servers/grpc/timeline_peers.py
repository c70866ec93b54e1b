"""Calls between brokers about replicated timelines: one method, whose requests and answers are frames.

Only brokers of the cluster may call it. Each call has a token that proves it, as forwarded calls have, and that is made
for this method, this body and this receiver.
"""

from typing import Any

import grpc
import grpc.aio

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import ClusterAuthorizationFailed, TidemillError
from tidemill.model.listeners import GRPC, server_security
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.security.core.peer_token import PeerCall, PeerClaims
from tidemill.security.core.principal import ANONYMOUS
from tidemill.servers.grpc.call import GrpcCall
from tidemill.servers.grpc.channel_options import CHANNEL_OPTIONS
from tidemill.servers.grpc.credentials_loading import load_certificate
from tidemill.servers.grpc.error_status import refuse
from tidemill.servers.grpc.login import PEER_KEY
from tidemill.servers.grpc.routing import Routes
from tidemill.timelines.core.errors import PartitionMoved
from tidemill.timelines.replicated.interface import AnswerCalls

SERVICE = "tidemill.timeline.v1.TimelinePeers"
METHOD = "Call"
PATH = f"/{SERVICE}/{METHOD}"
ANSWER_S = 20.0
"""A call that is not answered in this time has an unknown outcome."""
RECONNECT_MS = 500
"""A broker that restarts is reached again soon after."""
NOT_CONNECTED = "failed to connect"
"""gRPC's message when a call was not sent."""


class GrpcTimelinePeers:
    """Calls to the other brokers."""

    def __init__(self, broker: BrokerNode) -> None:
        self._broker = broker
        security = server_security(GRPC, broker.settings, broker.identity.listeners)
        certificate = load_certificate(security.settings) if security.uses_tls else None
        options = (
            *CHANNEL_OPTIONS,
            ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS),
            ("grpc.max_reconnect_backoff_ms", RECONNECT_MS),
        )
        self._routes = Routes(broker, options, None if certificate is None else certificate.channel_credentials)

    async def call(self, node_id: int, request: bytes) -> bytes:
        """Send a request to a broker."""
        known = self._broker.view.image.brokers.get(node_id)
        if known is None or known.grpc is None:
            raise PartitionMoved(f"broker {node_id} is not reachable over gRPC; try again")
        tokens = self._broker.security.peers
        token = tokens.sign(PeerCall(PATH, node_id, request), PeerClaims(tokens.node_id, ANONYMOUS, ""))
        call = self._routes.channel(str(known.grpc)).unary_unary(PATH, None, None)
        try:
            answer: bytes = await call(request, timeout=ANSWER_S, metadata=((PEER_KEY, token),))
        except grpc.aio.AioRpcError as error:
            raise _failure(node_id, error) from None
        return answer

    async def close(self) -> None:
        """Close the connections."""
        await self._routes.close()


def _failure(node_id: int, error: grpc.aio.AioRpcError) -> TidemillError:
    details = error.details() or ""
    if error.code() in {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED} or (
        error.code() is grpc.StatusCode.UNAVAILABLE and NOT_CONNECTED in details
    ):
        return PartitionMoved(f"broker {node_id} did not take a call about timelines: {details[:200]}; try again")
    return StoreUnavailable(f"broker {node_id} did not answer a call about timelines: {error.code().name}; try again")


def add_timeline_peers(server: grpc.aio.Server, answer: AnswerCalls) -> None:
    """Answer the calls of other brokers."""

    async def call_method(request: bytes, call: GrpcCall) -> bytes:
        if not call.is_forwarded:
            await refuse(call, ClusterAuthorizationFailed("only brokers of the cluster may call this method"))
        return await answer(request)

    handler: Any = grpc.unary_unary_rpc_method_handler(call_method, bytes, bytes)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
