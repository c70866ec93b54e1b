"""The reader side of a partition: batches and offsets for consumers."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidemill.model.errors import OffsetOutOfRange
from tidemill.records.header import Buffer, iter_headers, read_header
from tidemill.records.unread import UnreadPosition, unread_in
from tidemill.streams.admission import opened_in_place, run_aside
from tidemill.streams.core.aborted import AbortedRange, AbortedTransaction
from tidemill.streams.core.epochs import UNKNOWN as UNKNOWN_EPOCH
from tidemill.streams.partition.replica import ReplicaState
from tidemill.streams.search import FoundOffset, first_at, first_with_largest

UNREAD_BATCHES_MAX = 100
"""The most batches that one search for an unread record reads."""


class ReadResult(NamedTuple):
    """Whole batches in order, and the offsets of the partition at the time of the read."""

    records: list[Buffer]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]


class PartitionReader:
    """Reads the records that consumers may see; only on the leader."""

    def __init__(self, replica: ReplicaState) -> None:
        self._replica = replica

    async def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        committed: bool = False,
        at_least_one: bool = True,
        leader_epoch: int = -1,
    ) -> ReadResult:
        """Batches from `offset` on, up to the high watermark or, with `committed`, to the last stable offset."""
        replica = self._replica
        replica.check_leads()
        replica.leader.check_epoch(leader_epoch)
        log = replica.log
        if not log.start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not between {log.start_offset} and {log.end_offset}")
        high_watermark, stable_offset = replica.high_watermark, replica.last_stable_offset
        end_offset = replica.visible_end(committed=committed)
        records: list[Buffer] = []
        if offset < end_offset and (max_bytes > 0 or at_least_one):
            records = await log.read(offset, end_offset, max_bytes, at_least_one=at_least_one)
        aborted = self._aborted(offset, records) if committed and records else []
        return ReadResult(records, sum(map(len, records)), high_watermark, stable_offset, log.start_offset, aborted)

    async def read_copied(self, offset: int, max_bytes: int) -> list[Buffer]:
        """Committed batches from `offset` on, as far as this replica has them; also on a follower."""
        replica = self._replica
        replica.check_open()
        log, end_offset = replica.log, replica.high_watermark
        if not log.start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not between {log.start_offset} and {log.end_offset}")
        return await log.read(offset, end_offset, max_bytes, at_least_one=True) if offset < end_offset else []

    def has_history(self, offset: int, epoch: int) -> bool:
        """Whether the log reaches to `offset`, and what is before it was written in this epoch, also on a follower."""
        log = self._replica.log
        if not log.start_offset <= offset <= log.end_offset:
            return False
        known, end_offset = self._replica.leader.epochs.end_of(epoch, log.end_offset)
        return known == epoch and offset <= end_offset

    async def next_unread(self, offset: int) -> UnreadPosition:
        """The first record from `offset` on that a read_committed consumer can read, or the end.

        It may stop earlier, after many batches without such a record; the caller continues from there.
        """
        replica = self._replica
        position = UnreadPosition(max(offset, replica.log.start_offset))
        for _ in range(UNREAD_BATCHES_MAX):
            if position.offset >= replica.visible_end(committed=True):
                break
            found = await self.read(position.offset, 1, committed=True)
            if not found.records:  # only a hole is left
                return UnreadPosition(max(position.offset, found.last_stable_offset))
            look = partial(unread_in, found.records, found.aborted, position.offset)
            position = look() if opened_in_place(read_header(found.records[0])) else await run_aside(look)
            if position.timestamp_ms is not None:
                break
        return position

    def watch(self, wake: Callable[[], None], *, replica: bool = False) -> Callable[[], None]:
        """Call `wake` when readers (or followers) may see more, or the partition stops; the result stops the watch."""
        return (self._replica.replica_waiters if replica else self._replica.waiters).add(wake)

    def aborted_ranges(self) -> list[AbortedRange]:
        """The aborted transactions that are in the log, for queries that read its rows in ClickHouse."""
        return self._replica.leader.aborted.ranges()

    async def offset_at(self, timestamp: int, *, committed: bool = False) -> FoundOffset:
        """The first visible record whose time is `timestamp` or later."""
        self._replica.check_leads()
        return await first_at(self._replica.log, self._replica.visible_end(committed=committed), timestamp)

    async def offset_of_max_timestamp(self, *, committed: bool = False) -> FoundOffset:
        """The first visible record with the largest time."""
        self._replica.check_leads()
        return await first_with_largest(self._replica.log, self._replica.visible_end(committed=committed))

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch not above `epoch` and its end offset, or (-1, -1)."""
        replica = self._replica
        replica.check_leads()
        if epoch == replica.leader.epoch:
            return epoch, replica.log.end_offset
        if epoch > replica.leader.epoch:
            return UNKNOWN_EPOCH
        return replica.leader.epochs.end_of(epoch, replica.log.end_offset)

    def _aborted(self, offset: int, records: list[Buffer]) -> list[AbortedTransaction]:
        aborted = self._replica.leader.aborted
        if not len(aborted):
            return []
        last = offset
        for _, header in iter_headers(records[-1]):
            last = header.next_offset
        return aborted.overlapping(offset, last)
