"""Where a call belongs: which broker leads a partition or coordinates a group, and how a call is handed to it.

Clients may ask any broker. A call that belongs to another one is sent there as it is, once: one that was handed on
already and is wrong here, too, is refused, and the client asks again when the brokers agree.
"""

from typing import Any, NamedTuple

import grpc.aio

from tidemill.broker.broker import BrokerNode
from tidemill.broker.health import TOPIC
from tidemill.cluster.core.registration import HEALTHY, INACTIVE, Registration
from tidemill.cluster.core.selector import BrokerLoad, choose
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
from tidemill.servers.grpc.error_status import ERROR_KEY
from tidemill.wire.grpc import broker_pb2_grpc as generated

FORWARDED_KEY = "tidemill-forwarded"
FORWARD_TIMEOUT_S = 30.0


class Peer(NamedTuple):
    """A broker as other brokers and clients find it over gRPC."""

    node_id: int
    address: str
    rack: str


class Chosen(NamedTuple):
    """A broker for a client of a topic or timeline."""

    peer: Peer
    weight: int
    consumers: int
    state: str


class Routes:
    """The way to every partition and every group, and to the brokers that clients should use."""

    def __init__(self, broker: BrokerNode, options: tuple[Any, ...]) -> None:
        self._broker = broker
        self._options = options
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._carrier = -1
        self.here = ""
        """Where this broker's own door is; empty where it is everywhere, and clients know an address of it."""

    def brokers(self) -> list[Peer]:
        """Every broker, by its number."""
        mine = Peer(self._broker.node_id, self.here, self._broker.rack or "")
        others = (one for one in self._broker.image.brokers.values() if one.node_id != mine.node_id)
        told = [Peer(one.node_id, str(one.grpc) if one.grpc else "", one.rack or "") for one in others]
        return sorted([mine, *told])

    def choices(self, *, topic: str = "", timeline: str = "") -> list[Chosen]:
        """The brokers that a client of this topic or timeline should talk to, best first."""
        key = timeline or TOPIC + topic
        carriers = self._carriers()
        loads = [BrokerLoad(node, one.consumers, one.state == HEALTHY) for node, one in carriers.items()]
        peers = {peer.node_id: peer for peer in self.brokers()}
        return [
            Chosen(
                peers[choice.node_id],
                choice.weight,
                carriers[choice.node_id].consumers.get(key, 0),
                carriers[choice.node_id].state,
            )
            for choice in choose(key, loads)
        ]

    def carrier(self) -> str | None:
        """The gRPC door of a carrier, the same one while it is there."""
        carriers = self._carriers()
        if self._carrier not in carriers:
            self._carrier = next((one.peer.node_id for one in self.choices()), -1)
        found = carriers.get(self._carrier)
        return None if found is None else str(found.grpc)

    def _carriers(self) -> dict[int, Registration]:
        """The brokers that carry messages and have a gRPC door."""
        return {
            node: one
            for node, one in self._broker.image.brokers.items()
            if one.carries and one.state != INACTIVE and one.grpc is not None
        }

    async def coordinator_of(self, group: str, *, forwarded: bool) -> str | None:
        """The address of the group's coordinator; None when it is this broker."""
        await self._broker.ensure_internal(GROUP_OFFSETS)
        node = self._broker.coordinator_of(group)
        if node == self._broker.node_id:
            return None
        if forwarded:
            raise NotCoordinator
        return self._address_of(node, CoordinatorNotAvailable(f"nobody coordinates {group[:60]!r} at the moment"))

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
        return self._address_of(leader, LeaderNotAvailable(f"{topic}-{partition} has no leader that can be reached"))

    def _address_of(self, node_id: int, otherwise: TidemillError) -> str:
        known = self._broker.image.brokers.get(node_id)
        if known is None or known.grpc is None:
            raise otherwise
        return str(known.grpc)

    async def forward(self, address: str, method: str, request: Any, timeout_s: float = FORWARD_TIMEOUT_S) -> Any:
        """The answer of another broker."""
        stub = generated.BrokerServiceStub(self.channel(address))
        try:
            return await getattr(stub, method)(request, timeout=timeout_s, metadata=((FORWARDED_KEY, "1"),))
        except grpc.aio.AioRpcError as error:
            raise _typed(error, address) from None

    def channel(self, address: str) -> grpc.aio.Channel:
        """A connection to another broker, opened once."""
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=self._options)
        return self._channels[address]

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
        if key == ERROR_KEY and by_name(str(value)) is not UnknownServerError:
            return by_name(str(value))(error.details() or "")
    return LeaderNotAvailable(f"the broker at {address} does not answer: {error.code().name}")
