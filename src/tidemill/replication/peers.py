"""Connections to the other brokers, found by node id and authenticated with the cluster's secret."""

import ssl
from collections.abc import Callable, Sequence

from tidemill.client.kafka.clocks import ReportedClock, clock_request, reported_clock
from tidemill.client.kafka.errors import BrokerUnreachable, ClientError
from tidemill.client.kafka.peer_connection import PeerConnection
from tidemill.client.kafka.produce import produce_request, produced
from tidemill.client.kafka.replica_fetch import PartGiven, PartWanted, ReplicaFetchLimits, given, replica_fetch
from tidemill.model.errors import KafkaError, NotLeaderOrFollower, RequestTimedOut, of_code
from tidemill.model.topics import TopicPartition

PRODUCE_MS = 10_000

AddressOf = Callable[[int], tuple[str, int] | None]


class PeerLink:
    """A fetcher's connection to one leader."""

    def __init__(self, connection: PeerConnection, node_id: int, limits: ReplicaFetchLimits) -> None:
        self._connection = connection
        self._node_id = node_id
        self._limits = limits

    async def fetch(self, wanted: Sequence[PartWanted]) -> Sequence[PartGiven]:
        """Fetch from the leader."""
        request = replica_fetch(self._node_id, wanted, self._limits)
        found = given(await self._connection.call(request, extra_s=self._limits.max_wait_ms / 1000))
        if isinstance(found, int):
            raise of_code(found)
        return found

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Peers:
    """Connects to the other brokers."""

    def __init__(
        self,
        node_id: int,
        address_of: AddressOf,
        secret: Callable[[], bytes],
        limits: ReplicaFetchLimits,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self._node_id = node_id
        self._address_of = address_of
        self._secret = secret
        self._limits = limits
        self._tls = tls

    async def connect(self, node_id: int) -> PeerConnection:
        """An authenticated connection; BrokerUnreachable when the address of the broker is not known."""
        address = self._address_of(node_id)
        if address is None:
            raise BrokerUnreachable(f"broker {node_id} is not registered in the cluster; wait for it to join")
        return await PeerConnection.open(
            *address,
            secret=self._secret(),
            node_id=self._node_id,
            client_id=f"broker-{self._node_id}",
            tls=self._tls(),
        )

    async def produce(self, node_id: int, partition: TopicPartition, batch: bytearray) -> None:
        """Append at another broker, durably.

        NotLeaderOrFollower when the broker cannot be reached. RequestTimedOut when it does not answer; it may have
        appended.
        """
        request = produce_request({partition: batch}, acks=-1, timeout_ms=PRODUCE_MS, transactional_id=None)
        try:
            connection = await self.connect(node_id)
        except ClientError as error:
            raise NotLeaderOrFollower(f"broker {node_id} cannot be reached: {error}") from None
        try:
            answer = await connection.call(request, extra_s=PRODUCE_MS / 1000)
        except ClientError as error:
            raise RequestTimedOut(f"broker {node_id} does not answer: {error}") from None
        finally:
            connection.close()
        refused = [each for each in produced(answer).values() if isinstance(each, KafkaError)]
        if refused:
            raise refused[0]

    async def clock(self, node_id: int) -> ReportedClock | None:
        """The wall clock of another broker; None when the broker does not report it."""
        connection = await self.connect(node_id)
        try:
            return reported_clock(await connection.call(clock_request(node_id)))
        finally:
            connection.close()

    async def link(self, node_id: int) -> PeerLink:
        """A connection to a leader, for a fetcher."""
        return PeerLink(await self.connect(node_id), self._node_id, self._limits)
