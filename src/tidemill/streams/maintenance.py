"""What time asks of a partition: retention, closing of old segments, compaction, flush.ms, checkpoints.

Everything that changes files holds back the writer for a moment, and runs to its end even when its caller is
cancelled: the next one must not meet it half done. Only a leader decides what is old; a follower's log begins where
its leader's does.
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

CHECKPOINT_BYTES = 64 * 1024 * 1024  # a start after a crash scans about this much of a partition

LOGGER = structlog.get_logger(__name__)

Random = Callable[[], float]


class MaintenanceTasks(NamedTuple):
    """What one round of upkeep may do."""

    retain: bool = True
    """Retention is due."""
    by_time: bool = True
    """The wall clock is trusted: records, producers and tombstones may be deleted because they are old."""


ALL_CHORES = MaintenanceTasks()


class _Jitter:
    """A share of `segment.jitter.ms`, drawn once for each segment, so that segments begun together end apart."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._base_offset = -1
        self._share = 0.0

    def of(self, base_offset: int) -> float:
        """The share of the segment that begins at this offset."""
        if base_offset != self._base_offset:
            self._base_offset, self._share = base_offset, self._random()
        return self._share


class PartitionMaintenance:
    """Looks after one log. `name` is for the operator, `state` gives what a checkpoint keeps of the partition."""

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
        self, now_ms: int, high_watermark: int, stable_offset: int, expiry_ms: int, chores: Chores = ALL_CHORES
    ) -> None:
        """Do what is due; nothing that is not committed is deleted or compacted."""
        if chores.by_time:
            self._leader.producers.expire(now_ms, expiry_ms)
        if self._cleaning is None and not self._paused:
            await self._roll(now_ms)
            if chores.retain and self._leader.leads:
                await self._retain(now_ms, high_watermark, by_time=chores.by_time)
            await self._log.sweep(now_ms, by_time=chores.by_time)
            if chores.by_time:  # a pass drops tombstones by their age, and spares records by theirs
                self._start_cleaning(now_ms, stable_offset)
        await self._flush_by_time(now_ms)
        if self._writer.written_bytes - self._saved_bytes >= CHECKPOINT_BYTES:
            await self.save()
        failed, self._cleaning_error = self._cleaning_error, None
        if failed is not None:
            raise failed

    async def move_start(self, start_offset: int) -> None:
        """Let the log begin later."""
        await self.to_the_end(self._trim(start_offset))

    async def save(self) -> None:
        """Leave a checkpoint."""
        await self.to_the_end(self._checkpoint())

    async def save_held(self) -> None:
        """The same for who holds back the writer already."""
        await self._log.save(self._state())
        self._note_saved()

    def forget_saved(self) -> None:
        """The log was cut: the last checkpoint says nothing about it."""
        self._saved_at = -1

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No compaction, no retention meanwhile: the log is cut, which they must not meet."""
        self._paused += 1
        try:
            await self._stop_cleaning()
            yield
        finally:
            self._paused -= 1
            if not self._paused:
                self._cleaner.go_on()

    async def stop(self) -> None:
        """Finish what was begun, begin nothing more."""
        self._paused += 1
        await self._stop_cleaning()
        if self._work:
            await asyncio.wait(self._work)

    async def cleaned(self) -> None:
        """Return when no compaction of this partition runs."""
        if self._cleaning is not None:
            await asyncio.wait([self._cleaning])

    async def to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work on files to its end even when the caller is cancelled."""
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
            LOGGER.debug("compaction ended early", partition=self._name)
        except KafkaError as error:
            LOGGER.error("compaction stopped", partition=self._name, error=str(error))
        except Exception as error:  # noqa: BLE001 - raised by the next `tend`, which is watched
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
        """Leave a checkpoint so that the next start need not scan."""
        try:
            if self._log.failed is None and self._saved_at != self._log.end_offset:
                await self.save()
        except KafkaStorageError as error:
            LOGGER.error("partition closed without checkpoint", partition=self._name, error=str(error))
