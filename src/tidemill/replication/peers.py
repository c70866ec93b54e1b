"""Connections to the other brokers, found by node id and authenticated with the cluster's secret."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence

from tidemill.client.kafka.apis import LIST_OFFSETS
from tidemill.client.kafka.clocks import ReportedClock, clock_request, reported_clock
from tidemill.client.kafka.errors import BrokerUnreachable, ClientError
from tidemill.client.kafka.fetch import FetchedBatches, FetchPosition, fetch_request, fetched
from tidemill.client.kafka.peer_connection import PeerConnection
from tidemill.client.kafka.produce import produce_request, produced
from tidemill.client.kafka.protocol import plain
from tidemill.client.kafka.replica_fetch import PartGiven, PartWanted, ReplicaFetchLimits, given, replica_fetch
from tidemill.model.errors import KafkaError, NotLeaderOrFollower, OffsetOutOfRange, RequestTimedOut, of_code
from tidemill.model.metrics import NetworkTraffic
from tidemill.model.topics import TopicPartition
from tidemill.records.unread import UnreadPosition, unread_in

PRODUCE_MS = 10_000
UNREAD_AT_A_TIME = 32
UNREAD_BATCHES_MAX = 8
CONSUMER = -1
"""The replica id of a request that is not a follower's."""
EARLIEST = -2

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
        traffic: NetworkTraffic | None = None,
    ) -> None:
        self._node_id = node_id
        self._address_of = address_of
        self._secret = secret
        self._limits = limits
        self._tls = tls
        self._traffic = traffic

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
            traffic=self._traffic,
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

    async def next_unread(
        self, node_id: int, wanted: Sequence[tuple[TopicPartition, int]]
    ) -> AsyncIterator[tuple[tuple[TopicPartition, int], tuple[UnreadPosition, int]]]:
        """The first unread record of partitions that another broker leads, and their last stable offsets.

        A partition whose leader responds with an error is left out. The caller may stop at any time.
        """
        connection = await self.connect(node_id)
        try:
            for start in range(0, len(wanted), UNREAD_AT_A_TIME):
                some = wanted[start : start + UNREAD_AT_A_TIME]
                answers = await asyncio.gather(*(_next_unread(connection, *each) for each in some))
                for each, answer in zip(some, answers, strict=True):
                    if answer is not None:
                        yield each, answer
        finally:
            connection.close()

    async def link(self, node_id: int) -> PeerLink:
        """A connection to a leader, for a fetcher."""
        return PeerLink(await self.connect(node_id), self._node_id, self._limits)


async def _next_unread(
    connection: PeerConnection, place: TopicPartition, offset: int
) -> tuple[UnreadPosition, int] | None:
    """The first unread record from `offset` on and the last stable offset; None when the leader reports an error."""
    position, end = UnreadPosition(offset), 0
    for _ in range(UNREAD_BATCHES_MAX):
        found = await _one_batch(connection, place, position.offset)
        if isinstance(found, OffsetOutOfRange):  # deleted by retention, or beyond the end
            first = await _start_offset(connection, place)
            position = UnreadPosition(max(position.offset, first))
            found = await _one_batch(connection, place, first)
        if isinstance(found, KafkaError):
            return None
        end = found.last_stable_offset
        if not found.records:  # nothing, or only a hole, is left
            return UnreadPosition(max(position.offset, end)), end
        if position.offset >= end:
            break
        position = unread_in([found.records], found.aborted, position.offset)
        if position.timestamp_ms is not None:
            break
    return position, end


async def _one_batch(connection: PeerConnection, place: TopicPartition, offset: int) -> FetchedBatches | KafkaError:
    wanted = FetchPosition(offset, max_bytes=1, committed=True, max_wait_ms=0, min_bytes=0)
    return fetched(await connection.call(fetch_request(place, wanted)), wanted)


async def _start_offset(connection: PeerConnection, place: TopicPartition) -> int:
    topics = [{"name": place.topic, "partitions": [{"partition_index": place.partition, "timestamp": EARLIEST}]}]
    request = plain(LIST_OFFSETS, {"replica_id": CONSUMER, "isolation_level": 0, "topics": topics})
    answer = (await connection.call(request)).message()
    return max(0, int(answer.topics[0].partitions[0].offset))
