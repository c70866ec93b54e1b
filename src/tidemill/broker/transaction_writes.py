"""Transactional writes on this broker: batches that must belong to an open transaction, and markers that end one."""

import asyncio
from functools import partial

from tidemill.broker.cluster_view import ClusterView
from tidemill.client.kafka.transaction_markers import TransactionalProducer
from tidemill.coordinator.lookup import CoordinatorLookup
from tidemill.coordinator.transaction_router import TransactionRouter
from tidemill.groups.coordinator import GroupCoordinator
from tidemill.model.topics import GROUP_OFFSETS, TopicPartition
from tidemill.streams.partition import Partition
from tidemill.transactions.coordinator import TransactionCoordinator
from tidemill.transactions.interface import TransactionMarker


async def append_marker(view: ClusterView, marker: TransactionMarker) -> None:
    """Append a marker to its partition on this broker."""
    append = view.partition(*marker.partition).leader.append_marker
    epoch = marker.coordinator_epoch
    await append(marker.producer_id, marker.producer_epoch, commit=marker.commit, coordinator_epoch=epoch)


async def write_marker(
    view: ClusterView, groups: GroupCoordinator, marker: TransactionMarker, *, is_cluster: bool
) -> None:
    """End a transaction on one partition of this broker.

    The group coordinator ends transactions on offsets, because it staged them. In a cluster their partition gets the
    marker as well: every broker that leads it, now or later, then rejects a coordinator that was replaced.
    """
    if marker.partition.topic != GROUP_OFFSETS:
        await append_marker(view, marker)
        return
    index, producer_id = marker.partition.partition, marker.producer_id
    end = partial(groups.end_transaction, partition=index, producer_id=producer_id, commit=marker.commit)
    if not is_cluster:
        await end()
        return
    check = view.partition(*marker.partition).leader.check_marker
    known = marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
    await asyncio.gather(end(check=partial(check, *known)), append_marker(view, marker))


class TransactionVerifier:
    """Rejects transactional writes that do not belong to the open transaction of their producer."""

    def __init__(
        self,
        node_id: int,
        coordinators: CoordinatorLookup,
        transactions: TransactionCoordinator,
        router: TransactionRouter,
    ) -> None:
        self._node_id = node_id
        self._coordinators = coordinators
        self._transactions = transactions
        self._router = router

    async def verify(
        self, partition: Partition, transactional_id: str | None, producer_id: int, epoch: int, *, implicit: bool
    ) -> None:
        """Raise an error unless the write belongs to the open transaction.

        Where the coordinator is on another broker, the first write of a transaction verified it for the partition. A
        producer that was fenced since then has an old epoch. A new epoch is a new transaction: the previous one may
        still wait for its marker, which would end both.
        """
        producer = TransactionalProducer(transactional_id or "", producer_id, epoch)
        is_remote = self._coordinators.of_transaction(producer.transactional_id) != self._node_id
        if is_remote and transactional_id and partition.leader.open_transaction(producer_id, epoch) is not None:
            return
        where = TopicPartition(partition.topic, partition.index)
        check = await self._router.verify(self._transactions, producer, where, implicit=implicit)
        check()
