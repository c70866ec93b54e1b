"""Appends by the broker itself to partitions that any broker of the cluster may lead."""

from collections.abc import Callable

from tidemill.model.topics import TopicPartition
from tidemill.replication.peers import Peers
from tidemill.streams.partition import Partition


class LeaderAppends:
    """Appends a batch on the leader of its partition."""

    def __init__(
        self,
        node_id: int,
        peers: Peers,
        leader_of: Callable[[TopicPartition], int],
        partition: Callable[[str, int], Partition],
    ) -> None:
        self._node_id = node_id
        self._peers = peers
        self._leader_of = leader_of
        self._partition = partition

    async def append(self, partition: TopicPartition, batch: bytearray) -> None:
        """Append durably on the leader, here or on another broker."""
        leader = self._leader_of(partition)
        if leader == self._node_id:
            await self._partition(*partition).leader.append(batch, acks=-1)
        else:
            await self.send(leader, partition, batch)

    async def send(self, node_id: int, partition: TopicPartition, batch: bytearray) -> None:
        """Send a batch to another broker, which leads its partition."""
        await self._peers.produce(node_id, partition, batch)
