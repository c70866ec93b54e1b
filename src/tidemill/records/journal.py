"""The journal interface of a coordinator: durable records in ordered partitions."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from tidemill.records.record import Record


class Journal(Protocol):
    """The partitions of one internal topic."""

    @property
    def partitions(self) -> int:
        """The number of partitions."""

    def partition_of(self, key: str) -> int:
        """Return the partition of this group or transactional id."""

    def leads(self, partition: int, epoch: int) -> bool:
        """Whether this broker has led the partition since this epoch. If not, other brokers may have written to it."""

    async def append(self, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Write all records or none. Return when they are durable. Calls complete in order."""

    def replay(self, partition: int) -> AsyncIterator[Sequence[Record]]:
        """Yield every retained record, oldest first."""
