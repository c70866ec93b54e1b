"""What scheduling needs from the broker: topics, partitions, and a way to the leaders of partitions."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from tidemill.cluster.core.image import Topic
from tidemill.model.topics import TopicPartition
from tidemill.streams.partition import Partition

Send: TypeAlias = Callable[[int, TopicPartition, bytearray], Awaitable[None]]
"""Sends a batch to the broker that leads its partition; RequestTimedOut when the batch may have arrived."""
EnsureInternal: TypeAlias = Callable[[str], Awaitable[None]]
"""Creates an internal topic, if it does not exist."""


class SchedulingCluster(Protocol):
    """The topics of the cluster and the partitions of this broker."""

    def topic(self, name: str) -> Topic | None:
        """The topic with this name."""

    def partition(self, topic: str, index: int) -> Partition:
        """The partition; an error when it is not here."""

    def leader_of(self, partition: TopicPartition) -> int:
        """The broker that leads a partition."""
