"""What groups ask of their surroundings: a journal that is durable and keeps its order."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from tidemill.records.record import Record


class GroupJournal(Protocol):
    """The partitions of `__consumer_offsets`."""

    @property
    def partitions(self) -> int:
        """How many partitions there are."""

    def partition_of(self, key: str) -> int:
        """The partition that keeps this group."""

    def leads(self, partition: int, epoch: int) -> bool:
        """Whether this broker leads the partition since this epoch: what it has read of it may be old otherwise."""

    async def append(self, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Write the records, all or none; returns when they are durable, in the order of the calls."""

    def replay(self, partition: int) -> AsyncIterator[Sequence[Record]]:
        """Every record that is still kept, oldest first."""
