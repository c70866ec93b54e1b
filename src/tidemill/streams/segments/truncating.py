"""Truncates a log at its end. The checkpoint announces the truncation, so that a start after a crash finishes it.

A truncation on a full disk is rejected before anything has changed, and can be repeated. All the space that it needs is
written before or with the announcement.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from tidemill.model.errors import KafkaStorageError
from tidemill.streams.interface import FlushFailed
from tidemill.streams.segments import checkpoint as checkpoints
from tidemill.streams.segments.checkpoint import Checkpoint, SegmentNote
from tidemill.streams.segments.fence import NO_SPACE, LogFence
from tidemill.streams.segments.flushing import SegmentFlusher
from tidemill.streams.segments.index import NO_TIMESTAMP
from tidemill.streams.segments.opening import LogOpening, OpenedSegments
from tidemill.streams.segments.segment_list import SegmentList
from tidemill.streams.segments.tail import Tail

T = TypeVar("T")


class LogTruncation:
    """Removes the newest batches of one log."""

    def __init__(self, parts: SegmentList, fence: LogFence, flusher: SegmentFlusher, tail: Tail) -> None:
        self._list = parts
        self._fence = fence
        self._flusher = flusher
        self._tail = tail
        self._disk = parts.shared.disk

    async def truncate(self, end_offset: int) -> None:
        """Record the truncation, make it, and confirm it. After a crash in between, the next start finishes it.

        An error in between ends the log, because it is unknown whether the next start will truncate. A disk that is
        full before the truncation is recorded changes nothing.
        """
        self._fence.check()
        await self._flusher.flush()
        # Segments that are entirely before the new end stay unchanged and need no read.
        closed = tuple(segment.note() for segment in self._list.closed_before(end_offset))
        bases = self._list.bases
        place = bisect_left(bases, end_offset) - 1
        note = SegmentNote(bases[place] if place >= 0 else -1, 0, NO_TIMESTAMP, 0)
        await self._reopen(Checkpoint(self._list.start_offset, 0, note, closed, None, cut_to=end_offset), end_offset)

    async def reset(self, offset: int) -> None:
        """Truncate to nothing. The checkpoint records the offset where the log continues."""
        self._fence.check()
        note = SegmentNote(offset, 0, NO_TIMESTAMP, 0)
        await self._reopen(Checkpoint(offset, offset, note, (), None, cut_to=0), 0)

    async def _reopen(self, announced: Checkpoint, end_offset: int) -> None:
        """Make the recorded truncation and confirm it. It affects segments that reach `end_offset`."""
        self._tail.clear()
        place = max(bisect_right(self._list.bases, end_offset - 1) - 1, 0)
        for segment in self._list.segments[place:]:
            self._list.shared.files.forget(segment.path)
        async with self._flusher.saving:
            await self._flusher.write_or_free_reserve(partial(self._announce, announced))
            try:
                opened = await self._twice(partial(self._disk.aside, self._cut))
            except OSError as error:
                self._fence.fail(error)
            self._list.drop(list(self._list.segments))
            self._list.take(opened)
        done = self._flusher.checkpoint(self._list.start_offset, None)
        try:
            await self._twice(partial(self._flusher.save, done, opened.saved, checkpoints.write_reserved))
        except (OSError, KafkaStorageError) as error:
            self._fence.fail(error)

    async def _twice(self, step: Callable[[], Awaitable[T]]) -> T:
        """Take a step of a recorded truncation, and once again after an error, for which it frees the reserve."""
        try:
            return await step()
        except (OSError, KafkaStorageError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in NO_SPACE or isinstance(cause, FlushFailed):
                raise
            self._list.shared.reserve.give_up(cause)
        return await step()

    def _announce(self, announced: Checkpoint) -> None:
        folder, start_offset = self._list.folder, self._list.start_offset
        last = checkpoints.read(self._disk, folder)
        if last is not None and last.state is not None and start_offset <= last.known_until <= announced.cut_to:
            announced = announced._replace(state=last.state, state_offset=last.known_until)
        checkpoints.reserve(self._disk, folder, announced)
        checkpoints.write(self._disk, folder, announced)

    def _cut(self) -> OpenedSegments:
        return LogOpening(self._disk, self._list.folder, self._list.settings).run()
