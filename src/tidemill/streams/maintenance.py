"""Runs the periodic work of a partition: retention, segment rolling, compaction, flush.ms and checkpoints.

All work that changes files pauses the writer briefly and runs to completion even when its caller is cancelled. The next
task must never find files in a half-changed state. Only a leader decides what is expired. A follower takes the start
offset of its leader.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import structlog

from tidemill.model.errors import KafkaError, KafkaStorageError
from tidemill.streams.cleaner import Cleaner, CleaningStopped
from tidemill.streams.core.compaction import CompactionPlan, plan
from tidemill.streams.core.leader import Leader
from tidemill.streams.core.retention import retained_start, roll_due
from tidemill.streams.flusher import Flusher
from tidemill.streams.interface import StreamLog
from tidemill.streams.writer import PartitionWriter

CHECKPOINT_BYTES = 64 * 1024 * 1024  # a start after a crash scans about this many bytes of a partition

LOGGER = structlog.get_logger(__name__)

Random = Callable[[], float]


class MaintenanceTasks(NamedTuple):
    """The work that one maintenance round may do."""

    retain: bool = True
    """Whether retention is due."""
    by_time: bool = True
    """Whether the wall clock is trusted, so that records, producers and tombstones may be deleted by age."""


ALL_TASKS = MaintenanceTasks()


class _Jitter:
    """A share of `segment.jitter.ms`, drawn once per segment, so that segments of one age roll at different times."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._base_offset = -1
        self._share = 0.0

    def of(self, base_offset: int) -> float:
        """Return the share for the segment with this base offset."""
        if base_offset != self._base_offset:
            self._base_offset, self._share = base_offset, self._random()
        return self._share


class PartitionMaintenance:
    """Maintains one log. `name` identifies the partition in log events; `state` returns the state to checkpoint."""

    def __init__(
        self,
        log: StreamLog,
        leader: Leader,
        writer: PartitionWriter,
        flusher: Flusher,
        *,
        name: str,
        state: Callable[[], dict[str, Any]],
        one_cleaning: asyncio.Lock,
        random: Random,
    ) -> None:
        self._log = log
        self._leader = leader
        self._writer = writer
        self._flusher = flusher
        self._name = name
        self._state = state
        self._one_cleaning = one_cleaning
        self._jitter = _Jitter(random)
        self._saved_at = log.saved.offset if log.saved is not None else 0
        self._saved_bytes = 0
        self._unflushed_since_ms = -1
        self._cleaner = Cleaner(log, leader, writer)
        self._cleaning: asyncio.Task[None] | None = None
        self._cleaning_error: Exception | None = None
        self._waits_for_cleaning = False
        self._paused = 0
        self._work: set[asyncio.Task[None]] = set()

    async def tend(
        self,
        now_ms: int,
        high_watermark: int,
        stable_offset: int,
        expiry_ms: int,
        tasks: MaintenanceTasks = ALL_TASKS,
    ) -> None:
        """Do the work that is due. Uncommitted records are never deleted or compacted."""
        if tasks.by_time:
            self._leader.producers.expire(now_ms, expiry_ms)
        if self._cleaning is None and not self._paused:
            await self._roll(now_ms)
            if tasks.retain and self._leader.leads:
                await self._retain(now_ms, high_watermark, by_time=tasks.by_time)
            await self._log.sweep(now_ms, by_time=tasks.by_time)
            if tasks.by_time:  # a pass drops tombstones by age and keeps recent records by age
                self._start_cleaning(now_ms, stable_offset)
        await self._flush_by_time(now_ms)
        if self._writer.written_bytes - self._saved_bytes >= CHECKPOINT_BYTES:
            await self.save()
        failed, self._cleaning_error = self._cleaning_error, None
        if failed is not None:
            raise failed

    async def move_start(self, start_offset: int) -> None:
        """Move the log's start offset forward."""
        await self.to_the_end(self._trim(start_offset))

    async def save(self) -> None:
        """Write a checkpoint."""
        await self.to_the_end(self._checkpoint())

    async def save_held(self) -> None:
        """Write a checkpoint while the caller holds the writer."""
        await self._log.save(self._state())
        self._note_saved()

    def forget_saved(self) -> None:
        """Mark the last checkpoint as invalid, because the log was truncated."""
        self._saved_at = -1

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Pause compaction and retention, because the log is being truncated."""
        self._paused += 1
        try:
            await self._stop_cleaning()
            yield
        finally:
            self._paused -= 1
            if not self._paused:
                self._cleaner.resume()

    async def stop(self) -> None:
        """Finish the running work and start nothing new."""
        self._paused += 1
        await self._stop_cleaning()
        if self._work:
            await asyncio.wait(self._work)

    async def cleaned(self) -> None:
        """Return when no compaction of this partition is running."""
        if self._cleaning is not None:
            await asyncio.wait([self._cleaning])

    async def to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Run file work to completion even when the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        await asyncio.shield(task)

    async def _stop_cleaning(self) -> None:
        self._cleaner.stop()
        if self._waits_for_cleaning and self._cleaning is not None:
            self._cleaning.cancel()
        await self.cleaned()

    async def _roll(self, now_ms: int) -> None:
        facts = self._log.segments()
        if roll_due(facts[-1], self._log.settings, now_ms, self._jitter.of(facts[-1].base_offset)):
            async with self._writer.exclusive():
                await self._log.roll(now_ms)

    async def _retain(self, now_ms: int, high_watermark: int, *, by_time: bool) -> None:
        facts = self._log.segments()
        start_offset = retained_start(facts, self._log.settings, self._log.start_offset, now_ms, by_time=by_time)
        if min(start_offset, high_watermark) > self._log.start_offset:
            await self.move_start(min(start_offset, high_watermark))

    def _start_cleaning(self, now_ms: int, stable_offset: int) -> None:
        facts = self._log.segments() if self._log.settings.compacted and not self._paused else []
        due = plan(facts, self._log.settings, self._leader.clean_until, stable_offset, now_ms) if facts else None
        if due is not None:
            self._waits_for_cleaning = True
            self._cleaning = asyncio.get_running_loop().create_task(self._clean(due, now_ms))

    async def _clean(self, due: CompactionPlan, now_ms: int) -> None:
        try:
            async with self._one_cleaning:
                self._waits_for_cleaning = False
                await self.save()
                await self._cleaner.run(due, now_ms)
                await self.save()
        except CleaningStopped:
            LOGGER.debug("compaction_cancelled", partition=self._name)
        except KafkaError as error:
            LOGGER.error("compaction_failed", partition=self._name, error=str(error))
        except Exception as error:  # noqa: BLE001 - raised by the next `tend`, which is supervised
            self._cleaning_error = error
        finally:
            self._cleaning = None

    async def _trim(self, start_offset: int) -> None:
        async with self._writer.exclusive():
            self._leader.trim(start_offset)
            await self._log.trim(start_offset, self._state())
            self._note_saved()

    async def _checkpoint(self) -> None:
        async with self._writer.exclusive():
            await self.save_held()

    def _note_saved(self) -> None:
        self._saved_at = self._log.end_offset
        self._saved_bytes = self._writer.written_bytes
        self._flusher.note_flushed()

    async def _flush_by_time(self, now_ms: int) -> None:
        if self._log.end_offset == self._flusher.flushed_offset:
            self._unflushed_since_ms = -1
        elif self._unflushed_since_ms < 0:
            self._unflushed_since_ms = now_ms
        elif now_ms - self._unflushed_since_ms >= self._log.settings.flush_ms:
            await self._flusher.reach(self._log.end_offset)
            self._unflushed_since_ms = -1

    async def close(self) -> None:
        """Write a checkpoint so that the next start does not scan."""
        try:
            if self._log.failed is None and self._saved_at != self._log.end_offset:
                await self.save()
        except KafkaStorageError as error:
            LOGGER.error("checkpoint_on_close_failed", partition=self._name, error=str(error))
