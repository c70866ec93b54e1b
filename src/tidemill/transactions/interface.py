"""What the coordinator asks of the world: a journal, someone who writes markers, and its limits."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from tidemill.model.topics import TopicPartition
from tidemill.records.record import Record


class TransactionJournal(Protocol):
    """Ordered, durable records in partitions."""

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        ...

    def partition_of(self, key: str) -> int:
        """The partition that keeps this transactional id."""
        ...

    def leads(self, partition: int, epoch: int) -> bool:
        """Whether this broker leads the partition since this epoch: what it has read of it may be old otherwise."""
        ...

    async def append(self, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Write all or none; returns when they are durable, in the order of the calls."""
        ...

    def replay(self, partition: int) -> AsyncIterator[Sequence[Record]]:
        """Every record that is kept, oldest first."""
        ...


class Marker(NamedTuple):
    """The end of a transaction on one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int = 0
    """The epoch under which the coordinator leads its part of the journal."""


WriteMarker: TypeAlias = Callable[[Marker], Awaitable[None]]
"""Durable when it returns. The same marker may come again after a crash; writing it twice does no harm."""


class TransactionLimits(NamedTuple):
    """Kafka's `transaction.max.timeout.ms` and `transactional.id.expiration.ms`."""

    timeout_ms_max: int = 900_000
    id_expiry_ms: int = 604_800_000
