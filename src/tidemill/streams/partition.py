"""The shell of a partition: what doors and coordinators call.

The walk of a batch: it is checked by itself (`records.validate`), against its topic (`core.admission`), judged and
placed (`core.leader`, by the writer), written (`StreamLog`), and for acks=all flushed together with others
(`Flusher`). The high watermark moves with the write: on one broker there is no other replica to wait for, and
acks=all is answered after the flush.

Everything runs on one event loop; between two awaits nothing changes. A partition has no task of its own while it is
idle. Once the disk has failed a flush, every call raises KafkaStorageError until the broker is started anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import random as uniform
from typing import Any, NamedTuple

import structlog

from tidemill.model.errors import (
    CorruptMessage,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
)
from tidemill.model.topic_settings import TopicSettings
from tidemill.records.build import end_marker
from tidemill.records.header import BatchHeader, Buffer, iter_headers, read_header
from tidemill.records.validate import check_produced
from tidemill.streams.cleaner import Cleaner, CleaningStopped
from tidemill.streams.core.aborted import AbortedTransaction
from tidemill.streams.core.admission import admit
from tidemill.streams.core.compaction import Plan, plan
from tidemill.streams.core.leader import Duplicate, Leader, Marker, Refused
from tidemill.streams.core.producers import ProducerSnapshot
from tidemill.streams.core.retention import retained_start, roll_due
from tidemill.streams.core.waiters import Waiters
from tidemill.streams.flusher import Flusher
from tidemill.streams.interface import LogStore, StreamLog
from tidemill.streams.replay import replay
from tidemill.streams.search import NOT_FOUND, FoundOffset, first_at, first_with_largest
from tidemill.streams.writer import Placed, Writer

ACKS_ALL = -1
HIGH_WATERMARK = -1
VERSION_NEWEST = 99
CHECKPOINT_BYTES = 64 * 1024 * 1024  # a start after a crash scans about this much of a partition

LOGGER = structlog.get_logger(__name__)
__all__ = ["NOT_FOUND", "Appended", "FoundOffset", "OpenPartition", "Partition", "Slice", "open_partition", "opener"]

Clock = Callable[[], int]
Random = Callable[[], float]


class Appended(NamedTuple):
    """Where a batch is; `log_append_time_ms` is -1 where records carry their producer's time."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class Slice(NamedTuple):
    """Whole batches in order, and where the partition stood when they were read."""

    records: list[Buffer]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]


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


class Partition:
    """One partition, led by this broker."""

    def __init__(
        self,
        log: StreamLog,
        topic: str,
        index: int,
        leader: Leader,
        clock: Clock,
        one_cleaning: asyncio.Lock,
        random: Random,
    ) -> None:
        self.topic = topic
        self.index = index
        self.settings = log.settings
        self._log = log
        self._leader = leader
        self._clock = clock
        self._closed = False
        self._waiters = Waiters()
        self._writer = Writer(log, leader, clock, self._on_written)
        self._flusher = Flusher(log, log.end_offset)
        self._high_watermark = log.end_offset
        self._stable_offset = leader.stable_offset(log.end_offset)
        self._saved_at = log.saved.offset if log.saved is not None else 0
        self._saved_bytes = 0
        self._unflushed_since_ms = -1
        self._cleaner = Cleaner(log, leader, self._writer)
        self._cleaning: asyncio.Task[None] | None = None
        self._one_cleaning = one_cleaning
        self._jitter = _Jitter(random)
        self._waits_for_cleaning = False
        self._work: set[asyncio.Task[None]] = set()

    @property
    def leader_epoch(self) -> int:
        """The epoch that new batches get."""
        return self._leader.epoch

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._log.start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next batch gets."""
        return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        """Readers see what is below."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records see what is below."""
        return self._stable_offset

    @property
    def size_bytes(self) -> int:
        """Bytes in the log."""
        return self._log.size_bytes

    @property
    def failed(self) -> BaseException | None:
        """Why the partition is fenced, if it is."""
        return self._log.failed

    @property
    def away(self) -> bool:
        """Whether what keeps the records is out of reach for now."""
        return self._log.away

    async def append(
        self,
        batch: bytearray | memoryview,
        *,
        acks: int,
        request_version: int = VERSION_NEWEST,
        timeout_s: float | None = None,
    ) -> Appended:
        """Store what a producer sent; acks=-1 returns when it is flushed, 0 and 1 when it is written.

        A flush that takes longer than `timeout_s` is a RequestTimedOut for the producer; the records stay.
        """
        self._check_open()
        header = check_produced(batch, version=request_version)
        batch, header = admit(batch, header, self.settings, self._clock())
        placed = await self._writer.write(batch, header, timeout_s=timeout_s or None)
        settings = self.settings
        durable = acks == ACKS_ALL and settings.tidemill_flush == "fsync"
        if durable or self._log.end_offset - self._flusher.flushed_offset >= settings.flush_messages:
            await self._flusher.reach(placed.next_offset, timeout_s=timeout_s if durable else None)
        return Appended(placed.base_offset, placed.append_time_ms, self._log.start_offset)

    async def append_own(self, batch: bytearray) -> Appended:
        """Store a batch of the broker itself; it is durable when this returns, and calls return in their order."""
        self._check_open()
        return await self._append_durably(batch, None)

    async def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> Appended:
        """End a transaction in this partition; durable when this returns."""
        self._check_open()
        batch = end_marker(producer_id, producer_epoch, commit, self._clock(), coordinator_epoch)
        return await self._append_durably(batch, Marker(commit, coordinator_epoch))

    async def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        committed: bool = False,
        at_least_one: bool = True,
        leader_epoch: int = -1,
    ) -> Slice:
        """Batches from the one with `offset` on, up to the high watermark or, `committed`, the last stable offset."""
        self._check_open()
        self._leader.check_epoch(leader_epoch)
        log = self._log
        if not log.start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not within {log.start_offset} and {log.end_offset}")
        high_watermark, stable_offset = self._high_watermark, self._stable_offset
        end_offset = stable_offset if committed else high_watermark
        records: list[Buffer] = []
        if offset < end_offset and (max_bytes > 0 or at_least_one):
            records = await log.read(offset, end_offset, max_bytes, at_least_one=at_least_one)
        aborted = self._aborted(offset, records) if committed and records else []
        return Slice(records, sum(map(len, records)), high_watermark, stable_offset, log.start_offset, aborted)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever readers may see more and when the partition closes; the answer ends that."""
        return self._waiters.add(wake)

    async def offset_at(self, timestamp: int) -> FoundOffset:
        """The first record whose time is `timestamp` or later."""
        self._check_open()
        return await first_at(self._log, self._high_watermark, timestamp)

    async def offset_of_max_timestamp(self) -> FoundOffset:
        """The first record with the largest time of all."""
        self._check_open()
        return await first_with_largest(self._log, self._high_watermark)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch not above `epoch` and its end offset, or (-1, -1)."""
        self._check_open()
        if epoch == self._leader.epoch:
            return epoch, self._log.end_offset
        return self._leader.epochs.end_of(epoch, self._log.end_offset)

    async def delete_records(self, before_offset: int) -> int:
        """Let the log begin at `before_offset` (-1: at the high watermark); the new start."""
        self._check_open()
        target = self._high_watermark if before_offset == HIGH_WATERMARK else before_offset
        if target < 0 or target > self._high_watermark:
            raise OffsetOutOfRange(f"offset {target} is above the high watermark {self._high_watermark}")
        if target > self._log.start_offset:
            await self._move_start(target)
        return self._log.start_offset

    async def truncate(self, end_offset: int) -> None:
        """Drop everything from the batch with `end_offset` on, as a follower does whose leader has other records."""
        self._check_open()
        await self._to_the_end(self._truncate(end_offset))

    async def _truncate(self, end_offset: int) -> None:
        async with self._writer.exclusive():
            if end_offset >= self._log.end_offset:
                return
            await self._flusher.settled()
            await self._log.truncate(end_offset)
            fresh = Leader(self._leader.epoch)
            await replay(self._log, fresh, self._clock())
            self._leader.take_over(fresh)
            self._flusher.flushed_offset = self._log.end_offset
            self._saved_at = -1
        self._on_written()

    def apply_settings(self, settings: TopicSettings) -> None:
        """Follow the topic's new settings from now on."""
        self.settings = settings
        self._log.settings = settings

    async def tend(self, now_ms: int) -> None:
        """Do what time asks for: retention, closing of old segments, flush.ms, producers that went away, checkpoint."""
        if self._closed or self._log.failed is not None:
            return
        self._leader.producers.expire(now_ms)
        if self._cleaning is None:
            await self._retain(now_ms)
            await self._log.sweep(now_ms)
            self._start_cleaning(now_ms)
        await self._flush_by_time(now_ms)
        if self._writer.written_bytes - self._saved_bytes >= CHECKPOINT_BYTES:
            await self._save()

    def producers(self) -> list[ProducerSnapshot]:
        """Every producer that the partition remembers."""
        return self._leader.producers.snapshots()

    def has(self, header: BatchHeader) -> bool:
        """Whether the producer's batch is in the log already; raises what an append of it would be refused with."""
        verdict = self._leader.judge(header)
        if isinstance(verdict, Refused):
            raise verdict.error
        return isinstance(verdict, Duplicate)

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction."""
        return self._leader.producers.open_offset(producer_id)

    async def close(self) -> None:
        """Write what is queued, flush, leave a checkpoint so that the next start need not scan."""
        if self._closed:
            return
        await self._stop()
        try:
            if self._log.failed is None and self._saved_at != self._log.end_offset:
                await self._save()
        except KafkaStorageError as error:
            LOGGER.error(
                "partition closed without checkpoint", topic=self.topic, partition=self.index, error=str(error)
            )
        await self._log.close()

    async def delete(self) -> None:
        """Close without a trace."""
        await self._stop()
        await self._log.delete()

    async def cleaned(self) -> None:
        """Return when no compaction of this partition runs."""
        if self._cleaning is not None:
            await asyncio.wait([self._cleaning])

    async def _stop(self) -> None:
        """Take nothing more, finish what was begun."""
        self._closed = True
        self._waiters.wake()
        self._cleaner.stop()
        if self._waits_for_cleaning and self._cleaning is not None:
            self._cleaning.cancel()
        await self.cleaned()
        if self._work:
            await asyncio.wait(self._work)
        await self._writer.settled()
        await self._flusher.settled()

    async def _append_durably(self, batch: bytearray, marker: Marker | None) -> Appended:
        placed: Placed = await self._writer.write(batch, read_header(batch), marker)
        await self._flusher.reach(placed.next_offset)
        return Appended(placed.base_offset, placed.append_time_ms, self._log.start_offset)

    def _on_written(self) -> None:
        log = self._log
        self._high_watermark = log.end_offset
        self._stable_offset = self._leader.stable_offset(log.end_offset)
        self._waiters.wake()

    def _check_open(self) -> None:
        if self._closed:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is closed")
        if self._log.failed is not None:
            raise KafkaStorageError(f"{self.topic}-{self.index} is fenced: {self._log.failed}")

    def _aborted(self, offset: int, records: list[Buffer]) -> list[AbortedTransaction]:
        if not len(self._leader.aborted):
            return []
        last = offset
        for _, header in iter_headers(records[-1]):
            last = header.next_offset
        return self._leader.aborted.overlapping(offset, last)

    async def _retain(self, now_ms: int) -> None:
        facts = self._log.segments()
        start_offset = retained_start(facts, self.settings, self._log.start_offset, now_ms)
        if roll_due(facts[-1], self.settings, now_ms, self._jitter.of(facts[-1].base_offset)):
            async with self._writer.exclusive():
                await self._log.roll(now_ms)
        if start_offset > self._log.start_offset:
            await self._move_start(start_offset)

    def _start_cleaning(self, now_ms: int) -> None:
        facts = self._log.segments() if self.settings.compacted else []
        due = plan(facts, self.settings, self._leader.clean_until, self._stable_offset, now_ms) if facts else None
        if due is not None:
            self._waits_for_cleaning = True
            self._cleaning = asyncio.get_running_loop().create_task(self._clean(due, now_ms))

    async def _clean(self, due: Plan, now_ms: int) -> None:
        try:
            async with self._one_cleaning:
                self._waits_for_cleaning = False
                await self._save()
                await self._cleaner.run(due, now_ms)
                await self._save()
        except CleaningStopped:
            LOGGER.debug("compaction ended by close", topic=self.topic, partition=self.index)
        except KafkaError as error:
            LOGGER.error("compaction stopped", topic=self.topic, partition=self.index, error=str(error))
        finally:
            self._cleaning = None

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work on files to its end even when the caller is cancelled: the next one must not meet it half done."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        await asyncio.shield(task)

    async def _move_start(self, start_offset: int) -> None:
        await self._to_the_end(self._trim(start_offset))

    async def _trim(self, start_offset: int) -> None:
        async with self._writer.exclusive():
            self._leader.trim(start_offset)
            await self._log.trim(start_offset, self._leader.save())
            self._note_saved()

    async def _save(self) -> None:
        await self._to_the_end(self._checkpoint())

    async def _checkpoint(self) -> None:
        async with self._writer.exclusive():
            await self._log.save(self._leader.save())
            self._note_saved()

    def _note_saved(self) -> None:
        self._saved_at = self._flusher.flushed_offset = self._log.end_offset
        self._saved_bytes = self._writer.written_bytes

    async def _flush_by_time(self, now_ms: int) -> None:
        if self._log.end_offset == self._flusher.flushed_offset:
            self._unflushed_since_ms = -1
        elif self._unflushed_since_ms < 0:
            self._unflushed_since_ms = now_ms
        elif now_ms - self._unflushed_since_ms >= self.settings.flush_ms:
            await self._flusher.reach(self._log.end_offset)
            self._unflushed_since_ms = -1


async def open_partition(
    log: StreamLog,
    topic: str,
    index: int,
    *,
    clock: Clock,
    leader_epoch: int,
    one_cleaning: asyncio.Lock,
    random: Random,
) -> Partition:
    """A partition over a log that has been opened; producers and transactions are as the log says."""
    leader = Leader(leader_epoch)
    await replay(log, leader, clock())
    leader.epoch = max(leader_epoch, leader.epochs.last)
    return Partition(log, topic, index, leader, clock, one_cleaning, random)


OpenPartition = Callable[[str, int, TopicSettings, int], Awaitable[Partition]]


def opener(store: LogStore, clock: Clock, random: Random = uniform) -> OpenPartition:
    """What a broker opens partitions with: (topic, index, settings, leader epoch) -> Partition.

    `random` gives numbers from 0 to 1.
    """

    one_cleaning = asyncio.Lock()

    async def open_log(
        topic: str, index: int, settings: TopicSettings, leader_epoch: int, *, believe: bool
    ) -> Partition:
        log = await store.open(topic, index, settings, believe=believe)
        try:
            return await open_partition(
                log, topic, index, clock=clock, leader_epoch=leader_epoch, one_cleaning=one_cleaning, random=random
            )
        except BaseException:
            await log.close()
            raise

    async def open_one(topic: str, index: int, settings: TopicSettings, leader_epoch: int) -> Partition:
        try:
            return await open_log(topic, index, settings, leader_epoch, believe=True)
        except CorruptMessage as error:
            LOGGER.error("damage found; the whole log is checked", topic=topic, partition=index, error=str(error))
            return await open_log(topic, index, settings, leader_epoch, believe=False)

    return open_one
