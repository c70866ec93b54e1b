"""A coordinator with an in-memory journal, markers that can be made to fail, and a manual clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from tidemill.coordinator.placement import take_over
from tidemill.model.errors import KafkaStorageError, TidemillError
from tidemill.model.topics import TopicPartition
from tidemill.records.record import Record
from tidemill.transactions.coordinator import TransactionCoordinator
from tidemill.transactions.interface import TransactionLimits, TransactionMarker


class MemoryJournal:
    """Records that survive the coordinator. `fail_next` makes one append fail, like a full disk."""

    partitions = 2

    def __init__(self) -> None:
        self.records: list[list[tuple[bytes | None, bytes | None]]] = [[] for _ in range(self.partitions)]
        self.fail_next = False
        self.between: Callable[[], Awaitable[None]] = partial(asyncio.sleep, 0)
        """Called between two records that are read."""

    def partition_of(self, key: str) -> int:
        return sum(key.encode()) % self.partitions

    def leads(self, partition: int, epoch: int) -> bool:
        return True

    async def append(self, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        await asyncio.sleep(0)
        if self.fail_next:
            self.fail_next = False
            raise KafkaStorageError
        self.records[partition].extend(records)

    async def replay(self, partition: int) -> AsyncIterator[Sequence[Record]]:
        for offset, (key, value) in enumerate(self.records[partition]):
            yield [Record(offset, 0, key, value)]
            await self.between()


async def lead_all(coordinator: TransactionCoordinator) -> None:
    """Make a coordinator lead every partition of its journal."""
    await take_over(coordinator, dict.fromkeys(range(MemoryJournal.partitions), 0))


class World:
    """The state that survives a restart of the coordinator."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.markers: list[TransactionMarker] = []
        self.refuse: Callable[[TransactionMarker], TidemillError | None] = lambda _: None
        self.now_ms = 1_000_000
        self.set_by_ms = 0
        self.is_clock_trusted = True
        self.next_producer_id = 0

    def coordinator(self, limits: TransactionLimits | None = None) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.journal,
            write_marker=self._write_marker,
            new_producer_id=self._new_producer_id,
            clock=lambda: self.now_ms + self.set_by_ms,
            steady=lambda: self.now_ms,
            limits=limits,
            may_expire=lambda: self.is_clock_trusted,
        )

    def marked(self) -> list[tuple[str, int, int, str]]:
        return [
            (str(marker.partition), marker.producer_id, marker.producer_epoch, "commit" if marker.commit else "abort")
            for marker in self.markers
        ]

    async def _write_marker(self, marker: TransactionMarker) -> None:
        await asyncio.sleep(0)
        error = self.refuse(marker)
        if error is not None:
            raise error
        self.markers.append(marker)

    async def _new_producer_id(self) -> int:
        await asyncio.sleep(0)
        self.next_producer_id += 1
        return self.next_producer_id - 1


def partitions(*names: str) -> set[TopicPartition]:
    """Partitions by name: `partitions("a-0", "b-1")`."""
    return {TopicPartition(topic, int(index)) for topic, _, index in (name.rpartition("-") for name in names)}
