"""A StreamLog in segment files.

Batches are appended to the active segment. When it is full a new one is started. A failed write is truncated to the
last whole batch, so that a full disk rejects batches and accepts them again once there is space. A failed flush fences
all logs of the disk. A flush covers all segments with unflushed bytes, oldest first, and the folder if it has new
names. The first flush with records in a new segment also records it in the checkpoint, before those records are
acknowledged. So a start notices when the segment is missing.

Reads of recent batches come from the tail cache. Other reads use the index to find a position, read a part of the file
and check the CRC of every batch. A damaged batch is never served.
"""

import asyncio
import errno
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, TypeVar

import structlog

from tidemill.model.errors import CorruptMessage, KafkaStorageError
from tidemill.model.topic_settings import TopicSettings
from tidemill.records.header import BatchHeader, Buffer, read_header
from tidemill.streams.core.retention import SegmentFacts
from tidemill.streams.interface import INLINE_BYTES_MAX, FlushFailed, Rewritten, Saved, StoredBatch
from tidemill.streams.segments import checkpoint as checkpoints
from tidemill.streams.segments.checkpoint import TEMPORARY, Checkpoint, SegmentNote
from tidemill.streams.segments.files import OpenFile
from tidemill.streams.segments.folders import delete_folder
from tidemill.streams.segments.index import NO_TIMESTAMP, Index
from tidemill.streams.segments.missing import without_segments
from tidemill.streams.segments.opening import LogOpening, OpenedSegments, remove_files
from tidemill.streams.segments.reading import SegmentReader, SegmentResources
from tidemill.streams.segments.removed import RemovedFiles, remove_all, set_aside
from tidemill.streams.segments.rewriting import Rewriting
from tidemill.streams.segments.segment import Segment, write_index, write_indexes
from tidemill.streams.segments.swapping import put_in_place
from tidemill.streams.segments.tail import Tail

T = TypeVar("T")

SCAN_BYTES = 1024 * 1024
RELATIVE_OFFSET_MAX = 2**32 - 1
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
LOGGER = structlog.get_logger(__name__)


class SegmentLog:
    """The batches of one partition, in the files of one folder."""

    inline_bytes_max = INLINE_BYTES_MAX
    away = False

    def __init__(
        self,
        shared: SegmentResources,
        folder: str,
        settings: TopicSettings,
        opened: OpenedSegments,
        *,
        vital: bool = False,
    ) -> None:
        self.settings = settings
        self._vital = vital  # the broker needs this log even when the disk is full
        self.report = opened.report
        self._shared = shared
        self._disk = shared.disk
        self._files = shared.files
        self._folder = folder
        self._failed: BaseException | None = None
        self._tail = Tail(shared.tails)
        self._reader = SegmentReader(shared, settings.index_interval_bytes)
        self._unflushed: dict[Segment, None] = {}
        self._unindexed: list[Segment] = []
        self._removed = RemovedFiles()
        self._new_names = True  # the first segment may be new
        self._saving = asyncio.Lock()  # serialises flushes and checkpoints, which record what was flushed
        self._recorded_base = -1  # the newest segment that the checkpoint lists with records
        self._changes = 0  # how often compaction or retention has replaced files under a reader
        self._start_offset = self._end_offset = 0
        self._take(opened)

    @property
    def start_offset(self) -> int:
        """The first readable offset."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next batch."""
        return self._end_offset

    @property
    def size_bytes(self) -> int:
        """The size of all segments in bytes."""
        return self._closed_bytes + self._segments[-1].size_bytes

    @property
    def failed(self) -> BaseException | None:
        """The disk error that ended this log, or all logs of the disk."""
        return self._shared.failed or self._failed

    @property
    def saved(self) -> Saved | None:
        """The state from the checkpoint that was read at start."""
        return self._saved

    def append(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Write on the event loop, for batches that the page cache takes at once."""
        segment, opened = self._prepare(batches, headers)
        try:
            self._disk.write(opened.file, batches, segment.size_bytes)
        except OSError as error:
            self._cut_back(segment, opened, error, headers)
            self.append(batches, headers, now_ms)
            return
        self._commit(segment, batches, headers, now_ms)

    async def append_aside(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Write on a thread while the event loop continues."""
        segment, opened = self._prepare(batches, headers)
        opened.uses += 1
        try:
            await self._disk.aside(partial(self._disk.write, opened.file, batches, segment.size_bytes))
        except OSError as error:
            self._cut_back(segment, opened, error, headers)
            self.append(batches, headers, now_ms)
            return
        finally:
            self._files.release(opened)
        self._commit(segment, batches, headers, now_ms)

    async def flush(self) -> None:
        """Run one fdatasync for each segment with unflushed bytes, and one fsync for new names."""
        async with self._saving:
            active = self._segments[-1]
            new = active.size_bytes > 0 and active.base_offset != self._recorded_base
            present = self._checkpoint(self._start_offset, None) if new else None
            await self._flush()
            if present is not None:
                await self._record_segment(present)

    async def _flush(self) -> None:
        self._check()
        segments, self._unflushed = self._unflushed, {}
        new_names, self._new_names = self._new_names, False
        if not segments and not new_names:
            return
        unindexed, self._unindexed = self._unindexed, []
        opened = [self._files.get(segment.path) for segment in segments]
        for one in opened:
            one.uses += 1
            one.dirty = False
        try:
            await self._disk.aside(partial(self._sync, [one.file for one in opened], new_names=new_names))
            if unindexed:
                await self._disk.aside(partial(write_indexes, self._disk, unindexed))
        except OSError as error:
            self._fail(error)
        finally:
            for one in opened:
                self._files.release(one)
        self._check()  # another log may have found the disk failing meanwhile

    async def read(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> list[Buffer]:
        """Read from the tail cache, or from the segment that has the offset."""
        self._check()
        kept = self._tail.read(offset, end_offset, max_bytes, at_least_one=at_least_one)
        if kept is not None:
            return kept
        while True:
            changes = self._changes
            try:
                found = await self._read_files(offset, end_offset, max_bytes, at_least_one=at_least_one)
            except (CorruptMessage, KafkaStorageError) as error:
                if changes == self._changes:
                    LOGGER.error("batch_unreadable", folder=self._folder, offset=offset, error=str(error))
                    raise
            else:
                # An outdated index points to a wrong position in a new file, and the bytes there may even look valid.
                if changes == self._changes:
                    return found

    async def _read_files(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> list[Buffer]:
        place = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._segments[place:]:
            if segment.base_offset >= end_offset:
                break
            found, more = await self._reader.read(segment, offset, end_offset, max_bytes, at_least_one=at_least_one)
            if found or not more:
                return found
        return []

    async def scan(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """Yield every batch from the one with `offset` on, up to the current end."""
        end_offset = self._end_offset
        while offset < end_offset:
            pieces = await self.read(offset, end_offset, SCAN_BYTES, at_least_one=True)
            if not pieces:
                return
            for piece in pieces:
                view, position = memoryview(piece), 0
                while position < len(view):
                    header = read_header(view, position)
                    yield StoredBatch(header, view[position : position + header.size])
                    position += header.size
                    offset = header.next_offset

    def outline(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """Yield every batch from `offset` on. Leaving out the records would save nothing here."""
        return self.scan(offset)

    async def before_time(self, timestamp: int) -> int:
        """Return the offset that the time index has in the first segment that reaches the timestamp."""
        self._check()
        for segment in self._segments:
            if segment.largest_timestamp >= timestamp:
                index = await self._reader.index(segment)
                found = segment.base_offset + index.relative_offset_before_time(timestamp)
                return max(found, self._start_offset)
        return self._end_offset

    def segments(self) -> list[SegmentFacts]:
        """Return the segments, oldest first."""
        ends = [*self._bases[1:], self._end_offset]
        return [segment.facts(end) for segment, end in zip(self._segments, ends, strict=True)]

    async def roll(self, now_ms: int) -> None:
        """Close the active segment and start another, unless it is empty."""
        self._check()
        if self._segments[-1].size_bytes:
            self._begin(self._end_offset).first_append_ms = now_ms

    async def trim(self, start_offset: int, state: dict[str, Any]) -> None:
        """Save the new start, then delete the files before it. After a crash the next start deletes them."""
        self._check()
        start_offset = max(self._start_offset, start_offset)
        if start_offset == self._end_offset:
            await self.roll(0)
        removed = [
            segment for segment, end in zip(self._segments, self._bases[1:], strict=False) if end <= start_offset
        ]
        await self._save(self._checkpoint(start_offset, state))
        self._start_offset = start_offset
        if removed:
            self._drop(removed)
            async with self._reader.loading:
                await self._remove_later(removed)

    async def truncate(self, end_offset: int) -> None:
        """Record the truncation, make it, and confirm it. After a crash in between, the next start finishes it.

        An error in between ends the log, because it is unknown whether the next start will truncate.
        """
        self._check()
        await self.flush()
        # Segments that are entirely before the new end stay unchanged and need no read.
        ends = self._bases[1:]
        closed = tuple(segment.note() for segment, end in zip(self._segments, ends, strict=False) if end <= end_offset)
        place = bisect_left(self._bases, end_offset) - 1
        note = SegmentNote(self._bases[place] if place >= 0 else -1, 0, NO_TIMESTAMP, 0)
        await self._reopen(Checkpoint(self._start_offset, 0, note, closed, None, cut_to=end_offset), end_offset)

    async def reset(self, offset: int) -> None:
        """Truncate to nothing. The checkpoint records the offset where the log continues."""
        self._check()
        note = SegmentNote(offset, 0, NO_TIMESTAMP, 0)
        await self._reopen(Checkpoint(offset, offset, note, (), None, cut_to=0), 0)

    async def rewrite(self, base_offset: int, end_offset: int, batches: AsyncIterator[Sequence[Buffer]]) -> Rewritten:
        """Write the new batches to a file next to the old ones and flush it. A start deletes a leftover file."""
        self._check()
        old = [segment for segment in self._segments[:-1] if base_offset <= segment.base_offset < end_offset]
        path = Segment(self._folder, base_offset).path + TEMPORARY
        rewriting = Rewriting(self._disk, path, base_offset, self.settings.index_interval_bytes)
        await self._aside(rewriting.open)
        try:
            async for some in batches:
                await self._aside(partial(rewriting.write, some))
            await self._aside(rewriting.finish)
        finally:
            rewriting.close()
        return Rewritten(base_offset, (old, rewriting.index))

    async def swap(self, rewritten: Rewritten) -> None:
        """Replace the old files with the new one, unless one of the old segments was deleted meanwhile."""
        self._check()
        old, index = rewritten.content
        place = self._segments.index(old[0]) if old and old[0] in self._segments else 0
        if not old or self._segments[:-1][place : place + len(old)] != old:
            await self.discard(rewritten)
            return
        fresh = Segment(self._folder, rewritten.base_offset, index)
        fresh.first_append_ms = old[0].first_append_ms
        async with self._saving:
            await self._aside(partial(self._announce_swap, fresh.base_offset, old[-1].base_offset))
            async with self._reader.loading:
                await self._put_in_place(fresh, old[-1].base_offset)
                self._segments[place : place + len(old)] = [fresh] if index.size else []
                self._forget(old)
        self._tail.clear()
        if index.size:
            self._shared.indexes.note(fresh)
            self._unindexed.append(fresh)

    async def discard(self, rewritten: Rewritten) -> None:
        """Delete the new file."""
        path = Segment(self._folder, rewritten.base_offset).path + TEMPORARY
        await self._aside(partial(self._disk.remove, path))

    async def aside(self, call: Callable[[], T]) -> T:
        """Run the call on a thread of the disk."""
        return await self._disk.aside(call)

    async def sweep(self, now_ms: int, *, by_time: bool = True) -> None:
        """Delete files whose delay is over (on a full disk: all), and check whether there is space again."""
        full = self._shared.reserve.given_up
        delay_ms = 0 if full else self.settings.file_delete_delay_ms
        paths = self._removed.due(now_ms, delay_ms) if full or by_time else []
        if paths:
            await self._disk.aside(partial(remove_all, self._disk, paths))
        if self._shared.reserve.retake_due(now_ms):
            await self._disk.aside(self._shared.reserve.take)

    async def save(self, state: dict[str, Any]) -> None:
        """Flush, then write the index of the active segment and the checkpoint."""
        await self._save(self._checkpoint(self._start_offset, state))

    async def close(self) -> None:
        """Close the files."""
        self._tail.clear()
        if self._segments[-1].preallocated and self.failed is None:
            self._give_back(self._segments[-1])
        for segment in self._segments:
            self._files.forget(segment.path)
            self._shared.indexes.forget(segment)

    async def delete(self) -> None:
        """Delete the log. The folder is renamed first, so that a crash leaves nothing that looks like a log."""
        await self.close()
        try:
            await self._disk.aside(partial(delete_folder, self._disk, self._folder))
        except FlushFailed as error:
            self._fail(error)
        except OSError as error:
            raise KafkaStorageError(f"{self._folder}: {error}") from error

    def _take(self, opened: OpenedSegments) -> None:
        self._segments = opened.segments
        self._bases = [segment.base_offset for segment in opened.segments]
        self._start_offset = opened.start_offset
        self._end_offset = opened.end_offset
        self._saved = opened.saved
        self._recorded_base = opened.recorded_base
        self._closed_bytes = sum(segment.size_bytes for segment in opened.segments[:-1])
        for segment in opened.segments[:-1]:
            if segment.index is not None:
                self._shared.indexes.note(segment)
                self._unindexed.append(segment)

    def _check(self) -> None:
        if self.failed is not None:
            raise KafkaStorageError(f"log {self._folder} is fenced after a disk error: {self.failed}")

    def _fail(self, error: BaseException) -> NoReturn:
        if isinstance(error, FlushFailed):
            self._shared.fence(error)
        elif self._failed is None:
            self._failed = error
            LOGGER.error("log_fenced", folder=self._folder, error=str(error))
        raise KafkaStorageError(f"log {self._folder} is fenced after a disk error: {error}") from error

    async def _aside(self, call: Callable[[], T]) -> T:
        try:
            return await self._disk.aside(call)
        except OSError as error:
            if error.errno in NO_SPACE and not isinstance(error, FlushFailed):
                raise KafkaStorageError(f"{self._folder}: {error}") from error
            self._fail(error)

    def _prepare(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader]) -> tuple[Segment, OpenFile]:
        """Return the segment for the batches, and its file."""
        self._check()
        if self._shared.reserve.given_up and not self._must_write(headers):
            raise KafkaStorageError(f"{self._folder}: the disk is full; free disk space or lower retention")
        segment = self._segments[-1]
        if segment.size_bytes and self._is_full(segment, batches, headers[-1]):
            segment = self._begin(headers[0].base_offset)
        try:
            opened = self._files.get(segment.path)
        except OSError as error:
            raise KafkaStorageError(f"{self._folder}: {error}") from error
        opened.dirty = True
        return segment, opened

    def _is_full(self, segment: Segment, batches: Sequence[Buffer], last: BatchHeader) -> bool:
        size = segment.size_bytes + sum(map(len, batches))
        index_full = segment.index is not None and segment.index.bytes >= self.settings.segment_index_bytes
        too_far = last.base_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        return size > self.settings.segment_bytes or too_far or index_full

    def _begin(self, base_offset: int) -> Segment:
        segment = Segment(self._folder, base_offset, Index())
        try:
            opened = self._files.get(segment.path, create=True)
            opened.dirty = True
            if self.settings.preallocate:
                segment.preallocate(self._disk, opened.file, self.settings.segment_bytes)
        except OSError as error:
            raise KafkaStorageError(f"{self._folder}: {error}") from error
        old = self._segments[-1]
        if old.preallocated:
            self._give_back(old)
            self._unflushed[old] = None
        self._closed_bytes += old.size_bytes
        self._shared.indexes.note(old)
        self._unindexed.append(old)
        self._segments.append(segment)
        self._bases.append(base_offset)
        self._unflushed[segment] = None
        self._new_names = True
        return segment

    def _give_back(self, segment: Segment) -> None:
        with suppress(OSError):
            segment.give_back(self._disk, self._files.get(segment.path).file)

    def _commit(self, segment: Segment, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        segment.add(headers, self.settings.index_interval_bytes, now_ms)
        self._unflushed[segment] = None
        self._end_offset = headers[-1].next_offset
        self._tail.extend(headers, batches)

    def _must_write(self, headers: Sequence[BatchHeader]) -> bool:
        """Whether the broker must write this on a full disk: vital topics, and end markers, which readers wait for."""
        return self._vital or all(header.control for header in headers)

    def _cut_back(self, segment: Segment, opened: OpenFile, error: OSError, headers: Sequence[BatchHeader]) -> None:
        """Undo a failed write. No partial batch stays, and the log continues if only disk space was missing.

        Return when a retry may succeed, because the reserve was freed for it. Raise otherwise.
        """
        self._unflushed[segment] = None
        try:
            self._disk.truncate(opened.file, segment.size_bytes)
        except OSError as second:
            self._fail(second)
        if error.errno not in NO_SPACE:
            self._fail(error)
        if self._shared.reserve.give_up(error) and self._must_write(headers):
            return
        LOGGER.warning("batch_rejected_disk_full", folder=self._folder)
        raise KafkaStorageError(f"{self._folder}: {error}") from error

    def _sync(self, files: list[int], *, new_names: bool) -> None:
        for file in files:
            self._disk.fdatasync(file)
        if new_names:
            self._disk.fsync_dir(self._folder)

    def _checkpoint(self, start_offset: int, state: dict[str, Any] | None) -> Checkpoint:
        active = self._segments[-1]
        closed = tuple(segment.note() for segment in self._segments[:-1])
        return Checkpoint(start_offset, self._end_offset, active.note(), closed, state)

    async def _save(self, checkpoint: Checkpoint, before: Saved | None = None) -> None:
        """Flush, then write the checkpoint. `before` is the last known state if the current state is unknown."""
        if before is not None:
            checkpoint = checkpoint._replace(state=before.state, state_offset=before.offset)
        active = self._segments[-1]
        index = await self._reader.index(active)
        async with self._saving:
            await self._flush()
            await self._write_or_free_reserve(partial(self._write_checkpoint, active, index, checkpoint))
            self._recorded_base = active.base_offset if active.size_bytes else -1

    async def _write_or_free_reserve(self, write: Callable[[], None]) -> None:
        reserve = self._shared.reserve
        held = not reserve.given_up
        try:
            await self._aside(write)
        except KafkaStorageError as error:
            freed_meanwhile = held and reserve.given_up  # by another log that found the disk full
            if not freed_meanwhile and not reserve.give_up(error.__cause__):
                raise
            await self._aside(write)

    def _write_checkpoint(self, active: Segment, index: Index, checkpoint: Checkpoint) -> None:
        write_index(self._disk, active, index)
        checkpoints.write(self._disk, self._folder, checkpoint)

    async def _record_segment(self, flushed: Checkpoint) -> None:
        """Record the active segment, which has records, in the checkpoint."""
        try:
            await self._disk.aside(partial(self._name_segments, flushed))
            self._recorded_base = flushed.active.base_offset
        except OSError as error:
            if error.errno not in NO_SPACE or isinstance(error, FlushFailed):
                self._fail(error)
            LOGGER.warning("segment_record_failed_disk_full", folder=self._folder)  # the next flush retries

    def _name_segments(self, flushed: Checkpoint) -> None:
        last = checkpoints.read(self._disk, self._folder)
        if last is not None:
            flushed = flushed._replace(state=last.state, state_offset=last.known_until)
        checkpoints.write(self._disk, self._folder, flushed)

    def _announce_swap(self, first_base: int, last_base: int) -> None:
        """Remove the segments that are about to be replaced from the checkpoint."""
        last = checkpoints.read(self._disk, self._folder)
        if last is not None:
            checkpoints.write(self._disk, self._folder, without_segments(last, first_base, last_base))

    async def _put_in_place(self, fresh: Segment, last_base: int) -> None:
        """Replace the old files. An error ends the log, because only a start can find out how far this got."""
        try:
            await self._disk.aside(
                partial(put_in_place, self._disk, self._folder, fresh.path + TEMPORARY, fresh.base_offset, last_base)
            )
            if not fresh.size_bytes:
                await self._disk.aside(partial(self._remove, [fresh]))
        except OSError as error:
            self._fail(error)

    async def _reopen(self, announced: Checkpoint, end_offset: int) -> None:
        """Make the recorded truncation and confirm it. It affects segments that reach `end_offset`."""
        self._tail.clear()
        place = max(bisect_right(self._bases, end_offset - 1) - 1, 0)
        for segment in self._segments[place:]:
            self._files.forget(segment.path)
        try:
            async with self._saving:
                opened = await self._disk.aside(partial(self._cut, announced))
                self._drop(list(self._segments))
                self._take(opened)
            await self._save(self._checkpoint(self._start_offset, None), opened.saved)
        except (OSError, KafkaStorageError) as error:
            self._fail(error)

    def _cut(self, announced: Checkpoint) -> OpenedSegments:
        last = checkpoints.read(self._disk, self._folder)
        if last is not None and last.state is not None and self._start_offset <= last.known_until <= announced.cut_to:
            announced = announced._replace(state=last.state, state_offset=last.known_until)
        checkpoints.write(self._disk, self._folder, announced)
        return LogOpening(self._disk, self._folder, self.settings).run()

    def _drop(self, removed: list[Segment]) -> None:
        """Remove segments from the log. The caller deletes their files."""
        self._segments[:] = [segment for segment in self._segments if segment not in removed]
        self._forget(removed)

    def _forget(self, removed: list[Segment]) -> None:
        """Drop all cached data of segments that are no longer part of the log."""
        for segment in removed:
            self._files.forget(segment.path)
            self._shared.indexes.forget(segment)
            self._unflushed.pop(segment, None)
        self._unindexed = [segment for segment in self._unindexed if segment not in removed]
        self._bases[:] = [segment.base_offset for segment in self._segments]
        self._closed_bytes = sum(segment.size_bytes for segment in self._segments[:-1])
        self._changes += 1

    async def _remove_later(self, removed: list[Segment]) -> None:
        if self.settings.file_delete_delay_ms:
            self._removed.add(await self._aside(partial(set_aside, self._disk, self._folder, removed)))
        else:
            await self._aside(partial(self._remove, removed))

    def _remove(self, removed: list[Segment]) -> None:
        for segment in removed:
            remove_files(self._disk, segment)
        self._disk.fsync_dir(self._folder)
