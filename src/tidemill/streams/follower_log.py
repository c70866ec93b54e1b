"""Applies a leader's batches to a follower's log, and removes what the leader does not have.

The caller holds the writer (`PartitionWriter.exclusive`) and has checked that the leader's response is still valid.
"""

from collections.abc import Callable
from typing import NamedTuple

import structlog

from tidemill.records.header import Buffer, check_crc, iter_headers
from tidemill.streams.core.follower import BeginAt, Diverged, OutOfRange, Question, check_copied, next_step
from tidemill.streams.core.leader import Leader
from tidemill.streams.flusher import Flusher
from tidemill.streams.interface import MaintainedLog, StoredBatch
from tidemill.streams.maintenance import PartitionMaintenance
from tidemill.streams.replay import replay
from tidemill.streams.writer import PartitionWriter

LOGGER = structlog.get_logger(__name__)


class Copied(NamedTuple):
    """A leader's response: consecutive whole batches, and the offset up to which its log is committed."""

    records: Buffer
    high_watermark: int


class FollowerLog:
    """Brings one follower log to the state of its leader's log."""

    def __init__(
        self,
        log: MaintainedLog,
        leader: Leader,
        writer: PartitionWriter,
        flusher: Flusher,
        upkeep: PartitionMaintenance,
        clock: Callable[[], int],
    ) -> None:
        self._log = log
        self._leader = leader
        self._writer = writer
        self._flusher = flusher
        self._upkeep = upkeep
        self._clock = clock

    async def copy(self, asked: Question, records: Buffer) -> None:
        """Append the leader's batches byte for byte. One damaged batch rejects all of them."""
        view = memoryview(records)
        batches = []
        for position, header in iter_headers(view):
            check_crc(view, position, header)
            batches.append(StoredBatch(header, view[position : position + header.size]))
        if not batches:
            return
        first = batches[0].header
        if asked.last_epoch < 0 and first.base_offset < asked.offset < first.next_offset:
            # The leader's log starts within a batch. An empty follower starts with the whole batch.
            await self._begin(first.base_offset)
            asked = asked._replace(offset=first.base_offset)
        check_copied([stored.header for stored in batches], asked, self._leader.epochs)
        await self._writer.copy(batches)

    async def cut_to_leader(self, found: Diverged | OutOfRange, leader_start_offset: int) -> None:
        """Truncate what the leader does not have."""
        log = self._log
        step = next_step(found, self._leader.epochs, log.start_offset, log.end_offset, leader_start_offset)
        LOGGER.info("replica_truncated_to_leader", found=found, step=step, end_offset=log.end_offset)
        if isinstance(step, BeginAt):
            await self._begin(step.offset)
        else:
            await self.cut(step.end_offset)

    async def cut(self, end_offset: int) -> None:
        """Truncate the log from the batch with `end_offset` on, and rebuild the producer state from the rest.

        The start offsets of epochs are kept, because compaction may have removed the batches that started them. Keeping
        them requires a checkpoint. If the truncation did not leave one, a new one is saved.
        """
        if end_offset >= self._log.end_offset:
            return
        await self._flusher.settled()
        await self._log.truncate(end_offset)
        fresh = Leader(self._leader.epoch)
        await replay(self._log, fresh, self._clock())
        fresh.epochs = self._leader.epochs
        fresh.epochs.truncate(self._log.end_offset)
        self._settle(fresh)
        if self._log.saved is None:
            await self._upkeep.save_held()

    async def _begin(self, offset: int) -> None:
        await self._flusher.settled()
        await self._log.reset(offset)
        self._settle(Leader(self._leader.epoch, offset))

    def _settle(self, fresh: Leader) -> None:
        self._leader.take_over(fresh)
        self._flusher.note_flushed()
        self._upkeep.forget_saved()
