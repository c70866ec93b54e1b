"""Flushes the segments of a log, and writes its checkpoint.

A flush covers all segments with unflushed bytes, oldest first, and the folder if it has new names. The first flush with
records in a new segment also records it in the checkpoint, before those records are acknowledged. So a start notices
when the segment is missing.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import structlog

from tidemill.model.errors import KafkaStorageError
from tidemill.streams.interface import Disk, FlushFailed, Saved
from tidemill.streams.segments import checkpoint as checkpoints
from tidemill.streams.segments.checkpoint import Checkpoint
from tidemill.streams.segments.fence import NO_SPACE, LogFence
from tidemill.streams.segments.index import Index
from tidemill.streams.segments.reading import SegmentReader
from tidemill.streams.segments.segment import Segment, write_index, write_indexes
from tidemill.streams.segments.segment_list import SegmentList

WriteCheckpoint: TypeAlias = Callable[[Disk, str, Checkpoint], None]
"""Replaces the checkpoint of a folder."""
LOGGER = structlog.get_logger(__name__)


class SegmentFlusher:
    """Makes the segments of one log durable."""

    def __init__(self, parts: SegmentList, fence: LogFence, reader: SegmentReader) -> None:
        self._list = parts
        self._fence = fence
        self._reader = reader
        self._disk = parts.shared.disk
        self._files = parts.shared.files
        self.saving = asyncio.Lock()  # serialises flushes and checkpoints, which record what was flushed

    async def flush(self) -> None:
        """Run one fdatasync for each segment with unflushed bytes, and one fsync for new names."""
        async with self.saving:
            active = self._list.segments[-1]
            new = active.size_bytes > 0 and active.base_offset != self._list.recorded_base
            present = self.checkpoint(self._list.start_offset, None) if new else None
            await self._flush()
            if present is not None:
                await self._record_segment(present)

    def checkpoint(self, start_offset: int, state: dict[str, Any] | None) -> Checkpoint:
        """Return the checkpoint of the log as it is, with another start."""
        active = self._list.segments[-1]
        closed = tuple(segment.note() for segment in self._list.segments[:-1])
        return Checkpoint(start_offset, self._list.end_offset, active.note(), closed, state)

    async def save(
        self, checkpoint: Checkpoint, before: Saved | None = None, write: WriteCheckpoint = checkpoints.write
    ) -> None:
        """Flush, then write the checkpoint. `before` is the last known state if the current state is unknown."""
        if before is not None:
            checkpoint = checkpoint._replace(state=before.state, state_offset=before.offset)
        active = self._list.segments[-1]
        index = await self._reader.index(active)
        async with self.saving:
            await self._flush()
            await self.write_or_free_reserve(partial(self._write_checkpoint, active, index, checkpoint, write))
            self._list.recorded_base = active.base_offset if active.size_bytes else -1

    async def _flush(self) -> None:
        self._fence.check()
        segments, self._list.unflushed = self._list.unflushed, {}
        new_names, self._list.new_names = self._list.new_names, False
        if not segments and not new_names:
            return
        unindexed, self._list.unindexed = self._list.unindexed, []
        opened = [self._files.get(segment.path) for segment in segments]
        for one in opened:
            one.uses += 1
            one.dirty = False
        try:
            await self._disk.aside(partial(self._sync, [one.file for one in opened], new_names=new_names))
            if unindexed:
                await self._disk.aside(partial(write_indexes, self._disk, unindexed))
        except OSError as error:
            self._fence.fail(error)
        finally:
            for one in opened:
                self._files.release(one)
        self._fence.check()  # another log may have found the disk failing meanwhile

    def _sync(self, files: list[int], *, new_names: bool) -> None:
        for file in files:
            self._disk.fdatasync(file)
        if new_names:
            self._disk.fsync_dir(self._list.folder)

    async def write_or_free_reserve(self, write: Callable[[], None]) -> None:
        """Run a call that writes; again, with the space of the reserve, if the disk is full."""
        reserve = self._list.shared.reserve
        held = not reserve.given_up
        try:
            await self._fence.aside(write)
        except KafkaStorageError as error:
            freed_meanwhile = held and reserve.given_up  # by another log that found the disk full
            if not freed_meanwhile and not reserve.give_up(error.__cause__):
                raise
            await self._fence.aside(write)

    def _write_checkpoint(self, active: Segment, index: Index, checkpoint: Checkpoint, write: WriteCheckpoint) -> None:
        try:
            write_index(self._disk, active, index)
        except OSError as error:
            if error.errno not in NO_SPACE:  # without space the index is rebuilt on demand
                raise
        write(self._disk, self._list.folder, checkpoint)

    async def _record_segment(self, flushed: Checkpoint) -> None:
        """Record the active segment, which has records, in the checkpoint."""
        try:
            await self._disk.aside(partial(self._name_segments, flushed))
            self._list.recorded_base = flushed.active.base_offset
        except OSError as error:
            if error.errno not in NO_SPACE or isinstance(error, FlushFailed):
                self._fence.fail(error)
            LOGGER.warning("segment_record_failed_disk_full", folder=self._list.folder)  # the next flush retries

    def _name_segments(self, flushed: Checkpoint) -> None:
        last = checkpoints.read(self._disk, self._list.folder)
        if last is not None:
            flushed = flushed._replace(state=last.state, state_offset=last.known_until)
        checkpoints.write(self._disk, self._list.folder, flushed)
