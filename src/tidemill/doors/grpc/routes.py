"""Where a call belongs: which broker leads a partition or coordinates a group, and how a call is handed to it.

Clients may ask any broker. A call that belongs to another one is sent there as it is, once: one that was handed on
already and is wrong here, too, is refused, and the client asks again when the brokers agree.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import grpc.aio

from tidemill.broker.broker import Broker
from tidemill.doors.grpc.refusals import ERROR_KEY
from tidemill.model.errors import (
    LeaderNotAvailable,
    NotLeaderOrFollower,
    TidemillError,
    UnknownTopicOrPartition,
    by_name,
)
from tidemill.wire.grpc import broker_pb2_grpc as generated

FORWARDED_KEY = "tidemill-forwarded"
FORWARD_TIMEOUT_S = 30.0


class Peer(NamedTuple):
    """A broker as other brokers and clients find it over gRPC."""

    node_id: int
    address: str
    rack: str


class Routes:
    """The way to every partition."""

    def __init__(self, broker: Broker, peers: Callable[[], Mapping[int, Peer]], options: tuple[Any, ...]) -> None:
        self._broker = broker
        self._peers = peers
        self._options = options
        self._channels: dict[str, grpc.aio.Channel] = {}

    def brokers(self) -> list[Peer]:
        """Every broker, by its number."""
        return [peer for _, peer in sorted(self._peers().items())]

    def leader_of(self, topic: str, partition: int, *, forwarded: bool) -> str | None:
        """The address of the partition's leader; None when it is this broker."""
        known = self._broker.topic(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{partition}")
        leader = known.partitions[partition].leader
        if leader == self._broker.node_id:
            return None
        if forwarded:
            raise NotLeaderOrFollower
        peer = self._peers().get(leader)
        if peer is None or not peer.address:
            raise LeaderNotAvailable(f"{topic}-{partition} has no leader that can be reached")
        return peer.address

    async def forward(self, address: str, method: str, request: Any, timeout_s: float = FORWARD_TIMEOUT_S) -> Any:
        """The answer of another broker."""
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=self._options)
        stub = generated.BrokerServiceStub(self._channels[address])  # type: ignore[no-untyped-call] # generated
        try:
            return await getattr(stub, method)(request, timeout=timeout_s, metadata=((FORWARDED_KEY, "1"),))
        except grpc.aio.AioRpcError as error:
            raise _typed(error, address) from None

    async def close(self) -> None:
        """Let go of the connections to other brokers."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()


def was_forwarded(context: Any) -> bool:
    """Whether another broker has handed the call on."""
    return any(key == FORWARDED_KEY for key, _ in context.invocation_metadata() or ())


def _typed(error: grpc.aio.AioRpcError, address: str) -> TidemillError:
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_KEY:
            return by_name(str(value))(error.details() or "")
    return LeaderNotAvailable(f"the broker at {address} does not answer: {error.code().name}")
