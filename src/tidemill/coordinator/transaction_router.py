"""Routes transaction checks and markers between the coordinator of an id, the partition leaders and the groups.

A leader asks the coordinator before the first write of a transaction to a partition. A transaction that is already open
there needs no second check.

Between the coordinator's answer and the write, a marker may arrive and end the transaction that the write belongs to.
So the router counts the markers of each partition. A write whose count has changed is checked again. Each marker
carries the coordinator's epoch, so a coordinator that was replaced cannot write markers.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial

from tidemill.client.kafka.errors import ClientError
from tidemill.client.kafka.peer_connection import PeerConnection
from tidemill.client.kafka.transaction_markers import (
    TransactionalProducer,
    marker_request,
    marker_written,
    verified,
    verify_request,
)
from tidemill.model.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidTxnState,
    NotCoordinator,
    NotLeaderOrFollower,
)
from tidemill.model.topics import TopicPartition
from tidemill.transactions.coordinator import TransactionCoordinator
from tidemill.transactions.core.state import ProducerIdAndEpoch
from tidemill.transactions.interface import TransactionMarker, WriteMarker

TRIES_MAX = 5

Check = Callable[[], None]


class TransactionRouter:
    """Checks transactions and writes markers, on this broker or on another one."""

    def __init__(
        self,
        node_id: int,
        *,
        connect: Callable[[int], Awaitable[PeerConnection]],
        coordinator_of: Callable[[str], int],
        leader_of: Callable[[TopicPartition], int],
        write_here: WriteMarker,
    ) -> None:
        self._node_id = node_id
        self._connect = connect
        self._coordinator_of = coordinator_of
        self._leader_of = leader_of
        self._write_here = write_here
        self._connections: dict[int, PeerConnection] = {}
        self._connecting: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._markers: Counter[TopicPartition] = Counter()

    async def verify(
        self, here: TransactionCoordinator, writer: TransactionalProducer, where: TopicPartition, *, implicit: bool
    ) -> Check:
        """Reject a write outside of its transaction; the returned check tests, without waiting, if that still holds."""
        if not writer.transactional_id:
            raise InvalidTxnState("a transactional batch has no transactional id; set one in the produce request")
        identity = ProducerIdAndEpoch(writer.producer_id, writer.producer_epoch)
        coordinator = self._coordinator_of(writer.transactional_id)
        if coordinator == self._node_id:
            await here.verify(writer.transactional_id, *identity, where, implicit=implicit)
            return partial(here.check, writer.transactional_id, identity, where)
        for _ in range(TRIES_MAX):
            before = self._markers[where]
            await self._ask(coordinator, writer, where, verify_only=not implicit)
            if self._markers[where] == before:
                return partial(self._check_unmarked, where, before)
        raise ConcurrentTransactions(f"transactions on {where} ended during {TRIES_MAX} checks in a row; try again")

    async def write_marker(self, marker: TransactionMarker) -> None:
        """End a transaction on one partition, whichever broker leads it."""
        leader = self._leader_of(marker.partition)
        if leader == self._node_id:
            await self.mark_here(marker)
            return
        request = marker_request(
            marker.partition,
            marker.producer_id,
            marker.producer_epoch,
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
        )
        try:
            connection = await self._connection(leader)
            marker_written(await connection.call(request))
        except ClientError as error:
            raise NotLeaderOrFollower(f"broker {leader} did not write a transaction marker: {error}") from None

    async def mark_here(self, marker: TransactionMarker) -> None:
        """End a transaction on a partition that this broker leads."""
        self._markers[marker.partition] += 1
        await self._write_here(marker)
        self._markers[marker.partition] += 1

    def close(self) -> None:
        """Close the connections to the other brokers."""
        for connection in self._connections.values():
            connection.close()

    async def _ask(
        self, coordinator: int, writer: TransactionalProducer, where: TopicPartition, *, verify_only: bool
    ) -> None:
        try:
            connection = await self._connection(coordinator)
            verified(await connection.call(verify_request(writer, where, verify_only=verify_only)))
        except (ClientError, NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable) as error:
            raise ConcurrentTransactions(
                f"the coordinator of transactional id {writer.transactional_id!r} did not answer: {error}"
            ) from None

    def _check_unmarked(self, where: TopicPartition, before: int) -> None:
        if self._markers[where] != before:
            raise ConcurrentTransactions(f"a transaction on {where} has just ended; try again")

    async def _connection(self, node_id: int) -> PeerConnection:
        """The only connection to a broker: with two, a request and its write could overtake an earlier one."""
        async with self._connecting[node_id]:
            known = self._connections.get(node_id)
            if known is None or known.closed:
                known = self._connections[node_id] = await self._connect(node_id)
        return known
