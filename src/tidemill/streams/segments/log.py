"""A StreamLog in segment files: one class for each role, and the log that puts them together.

`appending` writes batches to the active segment, `flushing` makes them durable and writes checkpoints, `truncating`
removes the newest ones, and `replacing` swaps rewritten segments in. They share a `segment_list` and a `fence`: a
failed flush fences all logs of the disk.

Reads of recent batches come from the tail cache. Other reads use the index to find a position, read a part of the file
and check the CRC of every batch. A damaged batch is never served.
"""

from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog

from tidemill.model.errors import CorruptMessage, KafkaStorageError
from tidemill.model.topic_settings import TopicSettings
from tidemill.records.header import Buffer, read_header
from tidemill.streams.core.retention import SegmentFacts
from tidemill.streams.interface import INLINE_BYTES_MAX, FlushFailed, Rewritten, Saved, StoredBatch
from tidemill.streams.segments.appending import SegmentAppender
from tidemill.streams.segments.fence import LogFence
from tidemill.streams.segments.flushing import SegmentFlusher
from tidemill.streams.segments.folders import delete_folder
from tidemill.streams.segments.opening import OpenedSegments, remove_files
from tidemill.streams.segments.reading import SegmentReader, SegmentResources
from tidemill.streams.segments.removed import RemovedFiles, remove_all, set_aside
from tidemill.streams.segments.replacing import SegmentRewriter
from tidemill.streams.segments.segment import Segment
from tidemill.streams.segments.segment_list import SegmentList
from tidemill.streams.segments.tail import Tail
from tidemill.streams.segments.truncating import LogTruncation

T = TypeVar("T")

SCAN_BYTES = 1024 * 1024
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
        self.report = opened.report
        self._shared = shared
        self._disk = shared.disk
        self._folder = folder
        self._removed = RemovedFiles()
        self._list = parts = SegmentList(shared, folder, settings, opened)
        self._fence = fence = LogFence(shared, folder)
        self._tail = tail = Tail(shared.tails)
        self._reader = reader = SegmentReader(shared, settings.index_interval_bytes)
        self._flusher = flusher = SegmentFlusher(parts, fence, reader)
        self._appender = appender = SegmentAppender(parts, fence, tail, vital=vital)
        self._rewriter = SegmentRewriter(parts, fence, flusher, reader, tail)
        self._truncation = LogTruncation(parts, fence, flusher, tail)
        self.append = appender.append
        self.append_aside = appender.append_aside
        self.flush = flusher.flush

    @property
    def settings(self) -> TopicSettings:
        """The settings of the topic."""
        return self._list.settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        self._list.settings = settings

    @property
    def start_offset(self) -> int:
        """The first readable offset."""
        return self._list.start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next batch."""
        return self._list.end_offset

    @property
    def size_bytes(self) -> int:
        """The size of all segments in bytes."""
        return self._list.size_bytes

    @property
    def failed(self) -> BaseException | None:
        """The disk error that ended this log, or all logs of the disk."""
        return self._fence.failed

    @property
    def saved(self) -> Saved | None:
        """The state from the checkpoint that was read at start."""
        return self._list.saved

    async def read(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> list[Buffer]:
        """Read from the tail cache, or from the segment that has the offset."""
        self._fence.check()
        kept = self._tail.read(offset, end_offset, max_bytes, at_least_one=at_least_one)
        if kept is not None:
            return kept
        while True:
            changes = self._list.changes
            try:
                found = await self._read_files(offset, end_offset, max_bytes, at_least_one=at_least_one)
            except (CorruptMessage, KafkaStorageError) as error:
                if changes == self._list.changes:
                    LOGGER.error("batch_unreadable", folder=self._folder, offset=offset, error=str(error))
                    raise
            else:
                # An outdated index points to a wrong position in a new file, and the bytes there may even look valid.
                if changes == self._list.changes:
                    return found

    async def _read_files(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> list[Buffer]:
        place = max(bisect_right(self._list.bases, offset) - 1, 0)
        for segment in self._list.segments[place:]:
            if segment.base_offset >= end_offset:
                break
            found, more = await self._reader.read(segment, offset, end_offset, max_bytes, at_least_one=at_least_one)
            if found or not more:
                return found
        return []

    async def scan(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """Yield every batch from the one with `offset` on, up to the current end."""
        end_offset = self._list.end_offset
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
        self._fence.check()
        for segment in self._list.segments:
            if segment.largest_timestamp >= timestamp:
                index = await self._reader.index(segment)
                found = segment.base_offset + index.relative_offset_before_time(timestamp)
                return max(found, self._list.start_offset)
        return self._list.end_offset

    def segments(self) -> list[SegmentFacts]:
        """Return the segments, oldest first."""
        return self._list.facts()

    async def roll(self, now_ms: int) -> None:
        """Close the active segment and start another, unless it is empty."""
        self._fence.check()
        if self._list.segments[-1].size_bytes:
            self._appender.begin(self._list.end_offset).first_append_ms = now_ms

    async def trim(self, start_offset: int, state: dict[str, Any]) -> None:
        """Save the new start, then delete the files before it. After a crash the next start deletes them."""
        self._fence.check()
        start_offset = max(self._list.start_offset, start_offset)
        if start_offset == self._list.end_offset:
            await self.roll(0)
        removed = self._list.closed_before(start_offset)
        await self._flusher.save(self._flusher.checkpoint(start_offset, state))
        self._list.start_offset = start_offset
        if removed:
            self._list.drop(removed)
            async with self._reader.loading:
                await self._remove_later(removed)

    async def truncate(self, end_offset: int) -> None:
        """Remove the batches from an offset on."""
        await self._truncation.truncate(end_offset)

    async def reset(self, offset: int) -> None:
        """Remove all batches, and continue at an offset."""
        await self._truncation.reset(offset)

    async def rewrite(self, base_offset: int, end_offset: int, batches: AsyncIterator[Sequence[Buffer]]) -> Rewritten:
        """Write new batches for closed segments."""
        return await self._rewriter.rewrite(base_offset, end_offset, batches)

    async def swap(self, rewritten: Rewritten) -> None:
        """Replace the segments that were rewritten, unless one of them was deleted meanwhile."""
        await self._rewriter.swap(rewritten)

    async def discard(self, rewritten: Rewritten) -> None:
        """Delete what was rewritten."""
        await self._rewriter.discard(rewritten)

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
        await self._flusher.save(self._flusher.checkpoint(self._list.start_offset, state))

    async def close(self) -> None:
        """Close the files."""
        self._tail.clear()
        if self._list.segments[-1].preallocated and self.failed is None:
            self._list.give_back(self._list.segments[-1])
        for segment in self._list.segments:
            self._shared.files.forget(segment.path)
            self._shared.indexes.forget(segment)

    async def delete(self) -> None:
        """Delete the log. The folder is renamed first, so that a crash leaves nothing that looks like a log."""
        await self.close()
        try:
            await self._disk.aside(partial(delete_folder, self._disk, self._folder))
        except FlushFailed as error:
            self._fence.fail(error)
        except OSError as error:
            raise KafkaStorageError(f"{self._folder}: {error}") from error

    async def _remove_later(self, removed: list[Segment]) -> None:
        if self.settings.file_delete_delay_ms:
            self._removed.add(await self._fence.aside(partial(set_aside, self._disk, self._folder, removed)))
        else:
            await self._fence.aside(partial(self._remove, removed))

    def _remove(self, removed: list[Segment]) -> None:
        for segment in removed:
            remove_files(self._disk, segment)
        self._disk.fsync_dir(self._folder)
