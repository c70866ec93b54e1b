"""The journal of a coordinator: durable records in partitions, each with one order."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from tidemill.records.record import Record


class Journal(Protocol):
    """The partitions of one internal topic."""

    @property
    def partitions(self) -> int:
        """How many partitions there are."""

    def partition_of(self, key: str) -> int:
        """The partition that keeps this group or transactional id."""

    def leads(self, partition: int, epoch: int) -> bool:
        """Whether this broker has led the partition since this epoch; if not, other brokers may have written to it."""

    async def append(self, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Write the records, all or none; returns when they are durable, in the order of the calls."""

    def replay(self, partition: int) -> AsyncIterator[Sequence[Record]]:
        """Every record that is still kept, oldest first."""
