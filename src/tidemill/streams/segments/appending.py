"""Appends batches to the active segment, and starts another one when it is full.

A failed write is truncated to the last whole batch, so that a full disk rejects batches and accepts them again once
there is space.
"""

from collections.abc import Sequence
from functools import partial

import structlog

from tidemill.model.errors import KafkaStorageError
from tidemill.records.header import BatchHeader, Buffer
from tidemill.streams.segments.fence import NO_SPACE, LogFence
from tidemill.streams.segments.files import OpenFile
from tidemill.streams.segments.index import Index
from tidemill.streams.segments.segment import Segment
from tidemill.streams.segments.segment_list import SegmentList
from tidemill.streams.segments.tail import Tail

RELATIVE_OFFSET_MAX = 2**32 - 1
LOGGER = structlog.get_logger(__name__)


class SegmentAppender:
    """Writes to the segments of one log. `vital`: the broker needs this log even when the disk is full."""

    def __init__(self, parts: SegmentList, fence: LogFence, tail: Tail, *, vital: bool) -> None:
        self._list = parts
        self._fence = fence
        self._tail = tail
        self._vital = vital
        self._disk = parts.shared.disk
        self._files = parts.shared.files
        self._reserve = parts.shared.reserve

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

    def begin(self, base_offset: int) -> Segment:
        """Close the active segment and start another."""
        settings = self._list.settings
        segment = Segment(self._list.folder, base_offset, Index())
        try:
            opened = self._files.get(segment.path, create=True)
            opened.dirty = True
            if settings.preallocate:
                segment.preallocate(self._disk, opened.file, settings.segment_bytes)
        except OSError as error:
            raise KafkaStorageError(f"{self._list.folder}: {error}") from error
        self._list.add(segment)
        return segment

    def _prepare(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader]) -> tuple[Segment, OpenFile]:
        """Return the segment for the batches, and its file."""
        self._fence.check()
        if self._reserve.given_up and not self._must_write(headers):
            raise KafkaStorageError(f"{self._list.folder}: the disk is full; free disk space or lower retention")
        segment = self._list.segments[-1]
        if segment.size_bytes and self._is_full(segment, batches, headers[-1]):
            segment = self.begin(headers[0].base_offset)
        try:
            opened = self._files.get(segment.path)
        except OSError as error:
            raise KafkaStorageError(f"{self._list.folder}: {error}") from error
        opened.dirty = True
        return segment, opened

    def _is_full(self, segment: Segment, batches: Sequence[Buffer], last: BatchHeader) -> bool:
        settings = self._list.settings
        size = segment.size_bytes + sum(map(len, batches))
        index_full = segment.index is not None and segment.index.bytes >= settings.segment_index_bytes
        too_far = last.base_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        return size > settings.segment_bytes or too_far or index_full

    def _commit(self, segment: Segment, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        segment.add(headers, self._list.settings.index_interval_bytes, now_ms)
        self._list.unflushed[segment] = None
        self._list.end_offset = headers[-1].next_offset
        self._tail.extend(headers, batches)

    def _must_write(self, headers: Sequence[BatchHeader]) -> bool:
        """Whether the broker must write this on a full disk: vital topics, and end markers, which readers wait for."""
        return self._vital or all(header.control for header in headers)

    def _cut_back(self, segment: Segment, opened: OpenFile, error: OSError, headers: Sequence[BatchHeader]) -> None:
        """Undo a failed write. No partial batch stays, and the log continues if only disk space was missing.

        Return when a retry may succeed, because the reserve was freed for it. Raise otherwise.
        """
        self._list.unflushed[segment] = None
        try:
            self._disk.truncate(opened.file, segment.size_bytes)
        except OSError as second:
            self._fence.fail(second)
        if error.errno not in NO_SPACE:
            self._fence.fail(error)
        if self._reserve.give_up(error) and self._must_write(headers):
            return
        LOGGER.warning("batch_rejected_disk_full", folder=self._list.folder)
        raise KafkaStorageError(f"{self._list.folder}: {error}") from error
