"""One partition of the journal on one broker: keeps the index up to date, and serves calls while this broker leads.

One task follows the journal. On a follower it applies what was committed. When the broker becomes the leader, it waits
until everything that earlier leaders wrote is committed, applies the rest, and then serves calls in that epoch. While
it serves, the index is written by calls only. When the broker loses the partition, or a write has an unknown outcome,
it stops serving and follows the journal again.

An index that does not continue the journal (the log was cut back, or its start has moved on) is removed and built again
from the start of the journal, which has everything: see `_restate`.
"""

import asyncio
from collections.abc import Sequence

import structlog

from tidemill.model.errors import TidemillError
from tidemill.timelines.core.errors import PartitionMoved, StoreCorrupt, StoreUnavailable
from tidemill.timelines.core.journal_codec import decode_entry
from tidemill.timelines.core.journal_entries import JournalGroup, JournalPosition, follows
from tidemill.timelines.replicated.core.snapshots import (
    RESTATE_MESSAGES,
    RESTATE_PAUSE_S,
    should_restate,
)
from tidemill.timelines.replicated.interface import (
    OpenIndex,
    PartitionJournal,
    RemoveIndex,
    TimelineIndex,
)
from tidemill.timelines.replicated.partition_counts import (
    DAMAGED,
    DIVERGED,
    TimelinePartitionCounts,
    TimelineReplica,
)

POLL_S = 0.05
RETRY_S = 0.5

log = structlog.get_logger(__name__)


class TimelinePartition:
    """A replica of one partition of the timelines."""

    def __init__(
        self,
        number: int,
        journal: PartitionJournal,
        open_index: OpenIndex,
        remove_index: RemoveIndex,
        *,
        journal_bytes: int,
    ) -> None:
        self._number = number
        self._journal = journal
        self._open_index = open_index
        self._remove_index = remove_index
        self._journal_bytes = journal_bytes
        self._index: TimelineIndex | None = None
        self._log_id = ""
        self._epoch: int | None = None
        """The epoch in which the index was opened for calls."""
        self._restated_bytes = 0
        self._reached: JournalPosition | None = None
        """The position of the index, while only this task writes to it."""
        self._has_read = False
        """Whether the index had everything that was committed, at some time."""
        self._position = 0
        """The offset up to which the index has everything, as far as this task knows."""
        self._counts = TimelinePartitionCounts()

    @property
    def state(self) -> TimelineReplica | None:
        """Where the replica is, and what it has done; None when this broker has none."""
        journal = self._journal
        if journal.log_id is None:
            return None
        is_serving = self._epoch is not None and self._index is not None and self._index.is_serving
        # What the leader has appended but not committed is in its index already.
        lag = max(0, journal.committed_offset - self._position)
        return TimelineReplica(self._number, is_serving, journal.size_bytes, self._position, lag, self._counts)

    @property
    def index(self) -> TimelineIndex:
        """The index, to serve a call; PartitionMoved unless this broker leads and the index has everything."""
        index, epoch = self._index, self._epoch
        if index is None or epoch is None or not index.is_serving or self._journal.leader_epoch != epoch:
            raise PartitionMoved(f"partition {self._number} of the timelines is moving to another broker; try again")
        return index

    @property
    def replica(self) -> TimelineIndex | None:
        """The index of a follower or leader, which may lack the newest entries; None before it has read any."""
        return self._index if self._has_read else None

    async def run(self) -> None:
        """Follow the journal, without end."""
        failing = False
        while True:
            try:
                await self._follow()
                failing = False
            except (TidemillError, OSError) as error:
                if not failing:
                    log.warning("timeline_index_failed", partition=self._number, error=str(error))
                failing = True
                self._counts.follow_failures += 1
                self._stop_serving()
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        """Close the index."""
        self._stop_serving()
        self._has_read = False
        index, self._index = self._index, None
        if index is not None:
            await index.close()

    async def _follow(self) -> None:
        """Do what is to do now."""
        epoch = self._journal.leader_epoch
        if self._epoch is not None:
            index = self._index
            if epoch == self._epoch and index is not None and index.is_serving:
                await self._tend(index)
                return
            self._stop_serving()
        if self._journal.log_id is None:
            await self.close()
            return
        index = await self._opened()
        if epoch is not None:
            await self._journal.settled()
        index = await self._read_on(index)
        self._has_read = True
        if epoch is not None and self._journal.leader_epoch == epoch:
            self._epoch = epoch
            index.serve(as_leader=True)
            log.info("timeline_partition_led", partition=self._number, epoch=epoch)

    def _stop_serving(self) -> None:
        self._epoch = None
        self._reached = None
        if self._index is not None:
            self._index.serve(as_leader=False)

    async def _opened(self) -> TimelineIndex:
        """The index of the log that this broker has now."""
        log_id = self._journal.log_id or ""
        if self._index is not None and self._log_id != log_id:
            await self.close()
        if self._index is None:
            self._index = await self._open_or_make(log_id)
            self._log_id = log_id
        return self._index

    async def _open_or_make(self, log_id: str) -> TimelineIndex:
        """The index in its file; a damaged file is replaced, because the journal has everything."""
        try:
            return await self._open_index(log_id, self._number, self._append)
        except StoreCorrupt as error:
            log.warning("timeline_index_damaged", partition=self._number, error=str(error))
            self._counts.rebuilt(DAMAGED)
            await self._remove_index(log_id, self._number)
            return await self._open_index(log_id, self._number, self._append)

    async def _read_on(self, index: TimelineIndex) -> TimelineIndex:
        """Apply what is committed; builds the index again if it does not continue the journal."""
        position = self._reached or await index.position()
        is_empty = position == JournalPosition(self._journal.start_offset, -1)
        if not is_empty and not self._journal.continues(position):
            log.warning("timeline_index_rebuilt", partition=self._number, position=position.next_offset)
            self._counts.rebuilt(DIVERGED)
            await self.close()
            await self._remove_index(self._log_id, self._number)
            index = await self._opened()
            position = JournalPosition(self._journal.start_offset, -1)
        self._reached = None
        self._position = position.next_offset
        while batches := await self._journal.read(position.next_offset):
            if not follows(position.next_offset, batches):
                # The leader has trimmed the journal meanwhile. What was completed there would stay in the index.
                raise StoreUnavailable("the journal of timelines was trimmed while it was read; it is read again")
            groups = [JournalGroup([decode_entry(value) for value in one.values], one.until) for one in batches]
            await index.apply(groups)
            position = batches[-1].until
            self._position = position.next_offset
        self._reached = position
        return index

    async def _append(self, values: Sequence[bytes], at: JournalPosition) -> JournalPosition:
        """Append for a call; only in the epoch in which the index was opened."""
        if self._epoch is None:
            raise PartitionMoved(f"partition {self._number} of the timelines is moving to another broker; try again")
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            until = await self._journal.append(values, at, self._epoch)
        except (TidemillError, OSError) as error:
            self._counts.append_failed(type(error).__name__)
            raise
        self._counts.appends.add(loop.time() - began_s)
        self._position = until.next_offset
        return until

    async def _tend(self, index: TimelineIndex) -> None:
        if should_restate(self._journal.size_bytes, self._restated_bytes, self._journal_bytes):
            await self._restate(index)

    async def _restate(self, index: TimelineIndex) -> None:
        """Write all timelines and messages to the end of the journal, then delete what is before them.

        If the broker loses the partition meanwhile, nothing is deleted, and the next leader begins again.
        """
        loop = asyncio.get_running_loop()
        began_s, before = loop.time(), self._journal.size_bytes
        start, last_seq = await index.restate_catalogue()
        seq = 0
        while seq < last_seq:
            seq = await index.restate(seq, last_seq, RESTATE_MESSAGES)
            await asyncio.sleep(RESTATE_PAUSE_S)
        self._restated_bytes = max(0, self._journal.size_bytes - before)
        await self._journal.trim(start.next_offset)
        self._counts.snapshots.add(loop.time() - began_s)
        log.info("timeline_journal_trimmed", partition=self._number, start_offset=start.next_offset)
