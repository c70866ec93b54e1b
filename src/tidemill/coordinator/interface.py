"""The protocols between the coordinators and the broker's topics and partitions."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from tidemill.cluster.core.image import Image, Topic
from tidemill.model.topics import UnknownTopic
from tidemill.streams.partition import Partition


class TopicAdmin(Protocol):
    """The topics of the cluster, and how one is created."""

    @property
    def image(self) -> Image:
        """All topics, as this broker knows them."""

    def carriers(self) -> Mapping[int, str | None]:
        """The brokers that partitions may be placed on, with their racks."""

    async def create(
        self,
        name: str,
        *,
        partitions: int = ...,
        replication_factor: int = ...,
        overrides: Mapping[str, str] | None = None,
        topic_id: UUID | None = None,
        internal: bool = False,
    ) -> Topic:
        """Create a topic."""


class OpenedPartitions(Protocol):
    """The partitions that are open on this broker."""

    unknown: list[UnknownTopic]
    """Topics that have a directory here and are missing in coordination."""

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition, if it is open here."""


class Coordinator(Protocol):
    """A coordinator that keeps its state in the partitions of one internal topic."""

    led: Mapping[int, int] | None
    """The partitions that this broker leads, with their epochs; None before the start."""

    @property
    def loaded(self) -> Collection[int]:
        """The partitions that were read."""

    def start(self) -> None:
        """Start the timers."""

    async def let_go(self, partitions: Sequence[int]) -> None:
        """Drop the state of partitions that another broker leads."""

    async def load(self, partition: int, epoch: int) -> None:
        """Read the state of a partition that this broker leads since `epoch`."""
