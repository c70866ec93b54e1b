"""The journal of replicated timelines: the partitions of an internal topic, which is trimmed and not compacted.

The leader appends behind a position that it names. When the log ends elsewhere, another leader has written meanwhile,
and the append is refused. Followers read what is committed as soon as they have copied it.
"""

import asyncio
from collections.abc import Sequence

from tidemill.coordinator.interface import OpenedPartitions
from tidemill.coordinator.internal_topics import InternalTopics
from tidemill.model.errors import NotLeaderOrFollower, TidemillError
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.model.topics import TIMELINES
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.streams.partition import Appended, Partition
from tidemill.timelines.core.errors import PartitionMoved
from tidemill.timelines.core.journal_entries import JournalBatch, JournalPosition

READ_BYTES = 4 * 1024 * 1024
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Values of one transaction are written in batches of this size."""
COMMIT_S_MAX = 10.0
"""How long an append waits for the replicas; then it is not known whether it will be committed."""


class TimelineJournal:
    """The topic that has the journal."""

    def __init__(
        self,
        internal: InternalTopics,
        partitions: OpenedPartitions,
        *,
        is_committed_by_all: bool,
    ) -> None:
        self._internal = internal
        self._partitions = partitions
        self._is_committed_by_all = is_committed_by_all

    @property
    def partitions(self) -> int:
        """Their number."""
        return self._internal.width(TIMELINES)

    @property
    def exists(self) -> bool:
        """Whether the topic exists, as far as this broker knows."""
        return self._internal.topic_id(TIMELINES) is not None

    async def ensure(self) -> None:
        """Create the topic if it does not exist."""
        try:
            await self._internal.ensure(TIMELINES)
        except TidemillError as error:
            raise StoreUnavailable(f"the journal of timelines cannot be created: {error}") from error

    def leader_of(self, partition: int) -> int:
        """The broker that leads a partition; -1 when there is none at the moment."""
        return self._internal.leader_of(TIMELINES, partition)

    def partition(self, number: int) -> "TimelinePartitionLog":
        """One partition."""
        return TimelinePartitionLog(
            self._internal, self._partitions, number, is_committed_by_all=self._is_committed_by_all
        )


class TimelinePartitionLog:
    """One partition of the journal on this broker."""

    def __init__(
        self, internal: InternalTopics, partitions: OpenedPartitions, number: int, *, is_committed_by_all: bool
    ) -> None:
        self._internal = internal
        self._partitions = partitions
        self._number = number
        self._is_committed_by_all = is_committed_by_all
        self._writes: set[asyncio.Task[Appended]] = set()

    @property
    def log_id(self) -> str | None:
        """The id of the topic; None when this broker has no replica of the partition."""
        return None if self._found() is None else self._internal.topic_id(TIMELINES)

    @property
    def leader_epoch(self) -> int | None:
        """The epoch in which this broker leads the partition; None when it does not."""
        return self._internal.led(TIMELINES).get(self._number)

    @property
    def start_offset(self) -> int:
        """The first offset that is kept."""
        return self._replica().log_start_offset

    @property
    def committed_offset(self) -> int:
        """The end of what is committed, as far as this broker knows."""
        return self._replica().high_watermark

    @property
    def size_bytes(self) -> int:
        """The size of what is kept."""
        return self._replica().size_bytes

    def continues(self, position: JournalPosition) -> bool:
        """Whether the log has what follows the position, and what is before it is what was read there."""
        replica = self._replica()
        if position.next_offset == replica.log_start_offset == 0:
            return True
        return replica.reader.has_history(position.next_offset, position.epoch)

    async def settled(self) -> None:
        """Return when everything that is in the log of this leader is committed."""
        await self._replica().leader.all_settled(COMMIT_S_MAX)

    async def read(self, offset: int) -> Sequence[JournalBatch]:
        """The next committed values."""
        pieces = await self._replica().reader.read_copied(offset, READ_BYTES)
        return await asyncio.to_thread(_batches, pieces, offset) if pieces else ()

    async def append(self, values: Sequence[bytes], at: JournalPosition, epoch: int) -> JournalPosition:
        """Append the values exactly behind `at`; returns when they are durable."""
        if not self._continues(at, epoch):
            raise PartitionMoved(f"{TIMELINES}-{self._number} is led by another broker, or in another epoch; try again")
        for piece in _pieces(values):
            batch = await asyncio.to_thread(build_batch, [NewRecord(None, value) for value in piece])
            at = await self._append(batch, len(piece), at, epoch)
        return at

    async def trim(self, start_offset: int) -> None:
        """Delete everything below an offset."""
        await self._replica().leader.delete_records(min(start_offset, self._replica().high_watermark))

    async def _append(self, batch: bytearray, count: int, at: JournalPosition, epoch: int) -> JournalPosition:
        replica = self._replica()
        if not self._continues(at, epoch):
            raise NotLeaderOrFollower(f"{TIMELINES}-{self._number} is led by another broker")
        writing = asyncio.create_task(replica.leader.append_own(batch, committed=self._is_committed_by_all))
        self._writes.add(writing)
        writing.add_done_callback(self._ended)
        await asyncio.wait([writing], timeout=COMMIT_S_MAX)
        if not writing.done():
            raise StoreUnavailable("the replicas of the journal of timelines do not answer in time; try again")
        appended = writing.result()
        if appended.base_offset != at.next_offset or replica.leader_epoch != epoch:
            raise StoreUnavailable(f"{TIMELINES}-{self._number} was written by another leader; try again")
        return JournalPosition(appended.base_offset + count, epoch)

    def _continues(self, at: JournalPosition, epoch: int) -> bool:
        """Whether this broker still leads in this epoch, and the log ends where the next append begins."""
        return self.leader_epoch == epoch and self._replica().log_end_offset == at.next_offset

    def _ended(self, writing: "asyncio.Task[Appended]") -> None:
        self._writes.discard(writing)
        if not writing.cancelled():
            writing.exception()  # it is reported to the caller, unless that has given up

    def _found(self) -> Partition | None:
        return self._partitions.find(TIMELINES, self._number)

    def _replica(self) -> Partition:
        found = self._found()
        if found is None:
            raise StoreUnavailable(f"{TIMELINES}-{self._number} is not on this broker")
        return found


def _batches(pieces: Sequence[memoryview | bytes | bytearray], offset: int) -> list[JournalBatch]:
    found = []
    for piece in pieces:
        view = memoryview(piece)
        for position, header in iter_headers(view):
            if header.next_offset <= offset or header.control:
                continue
            records = read_records(view[position : position + header.size])
            values = [bytes(one.value) for one in records if one.offset >= offset and one.value is not None]
            found.append(JournalBatch(values, JournalPosition(header.next_offset, header.leader_epoch)))
    return found


def _pieces(values: Sequence[bytes]) -> Sequence[Sequence[bytes]]:
    pieces: list[list[bytes]] = [[]]
    size = 0
    for value in values:
        if pieces[-1] and size + len(value) > BATCH_BYTES_MAX:
            pieces.append([])
            size = 0
        pieces[-1].append(value)
        size += len(value)
    return pieces
