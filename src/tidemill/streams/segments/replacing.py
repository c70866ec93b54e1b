"""Replaces segments of a log with rewritten ones, as compaction does."""

from collections.abc import AsyncIterator, Sequence
from functools import partial

from tidemill.records.header import Buffer
from tidemill.streams.interface import Rewritten
from tidemill.streams.segments import checkpoint as checkpoints
from tidemill.streams.segments.checkpoint import TEMPORARY
from tidemill.streams.segments.fence import LogFence
from tidemill.streams.segments.flushing import SegmentFlusher
from tidemill.streams.segments.missing import without_segments
from tidemill.streams.segments.opening import remove_files
from tidemill.streams.segments.reading import SegmentReader
from tidemill.streams.segments.rewriting import Rewriting
from tidemill.streams.segments.segment import Segment
from tidemill.streams.segments.segment_list import SegmentList
from tidemill.streams.segments.swapping import put_in_place
from tidemill.streams.segments.tail import Tail


class SegmentRewriter:
    """Writes new files for closed segments of one log, and swaps them in."""

    def __init__(
        self, parts: SegmentList, fence: LogFence, flusher: SegmentFlusher, reader: SegmentReader, tail: Tail
    ) -> None:
        self._list = parts
        self._fence = fence
        self._flusher = flusher
        self._reader = reader
        self._tail = tail
        self._disk = parts.shared.disk

    async def rewrite(self, base_offset: int, end_offset: int, batches: AsyncIterator[Sequence[Buffer]]) -> Rewritten:
        """Write the new batches to a file next to the old ones and flush it. A start deletes a leftover file."""
        self._fence.check()
        old = [segment for segment in self._list.segments[:-1] if base_offset <= segment.base_offset < end_offset]
        path = Segment(self._list.folder, base_offset).path + TEMPORARY
        rewriting = Rewriting(self._disk, path, base_offset, self._list.settings.index_interval_bytes)
        await self._fence.aside(rewriting.open)
        try:
            async for some in batches:
                await self._fence.aside(partial(rewriting.write, some))
            await self._fence.aside(rewriting.finish)
        finally:
            rewriting.close()
        return Rewritten(base_offset, (old, rewriting.index))

    async def swap(self, rewritten: Rewritten) -> None:
        """Replace the old files with the new one, unless one of the old segments was deleted meanwhile."""
        self._fence.check()
        old, index = rewritten.content
        segments = self._list.segments
        place = segments.index(old[0]) if old and old[0] in segments else 0
        if not old or segments[:-1][place : place + len(old)] != old:
            await self.discard(rewritten)
            return
        fresh = Segment(self._list.folder, rewritten.base_offset, index)
        fresh.first_append_ms = old[0].first_append_ms
        async with self._flusher.saving:
            await self._fence.aside(partial(self._announce, fresh.base_offset, old[-1].base_offset))
            async with self._reader.loading:
                await self._put_in_place(fresh, old[-1].base_offset)
                self._list.replace(place, old, fresh)
        self._tail.clear()

    async def discard(self, rewritten: Rewritten) -> None:
        """Delete the new file."""
        path = Segment(self._list.folder, rewritten.base_offset).path + TEMPORARY
        await self._fence.aside(partial(self._disk.remove, path))

    def _announce(self, first_base: int, last_base: int) -> None:
        """Remove the segments that are about to be replaced from the checkpoint."""
        last = checkpoints.read(self._disk, self._list.folder)
        if last is not None:
            checkpoints.write(self._disk, self._list.folder, without_segments(last, first_base, last_base))

    async def _put_in_place(self, fresh: Segment, last_base: int) -> None:
        """Replace the old files. An error ends the log, because only a start can find out how far this got."""
        folder = self._list.folder
        try:
            await self._disk.aside(
                partial(put_in_place, self._disk, folder, fresh.path + TEMPORARY, fresh.base_offset, last_base)
            )
            if not fresh.size_bytes:
                await self._disk.aside(partial(self._remove, fresh))
        except OSError as error:
            self._fence.fail(error)

    def _remove(self, segment: Segment) -> None:
        remove_files(self._disk, segment)
        self._disk.fsync_dir(self._list.folder)
