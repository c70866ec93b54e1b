"""The segments of one log, and what is known of them in memory: offsets, unflushed bytes, unwritten indexes."""

from collections.abc import Sequence
from contextlib import suppress

from tidemill.model.topic_settings import TopicSettings
from tidemill.streams.core.retention import SegmentFacts
from tidemill.streams.segments.opening import OpenedSegments
from tidemill.streams.segments.reading import SegmentResources
from tidemill.streams.segments.segment import Segment


class SegmentList:
    """Segments by offset; the last one is active. Every part of the log shares this list."""

    def __init__(self, shared: SegmentResources, folder: str, settings: TopicSettings, opened: OpenedSegments) -> None:
        self.shared = shared
        self.folder = folder
        self.settings = settings
        self.unflushed: dict[Segment, None] = {}
        self.unindexed: list[Segment] = []
        self.new_names = True  # the first segment may be new
        self.changes = 0  # how often compaction or retention has replaced files under a reader
        self.take(opened)

    def take(self, opened: OpenedSegments) -> None:
        """Use the segments that were found in the files."""
        self.segments = opened.segments
        self.bases = [segment.base_offset for segment in opened.segments]
        self.start_offset = opened.start_offset
        self.end_offset = opened.end_offset
        self.saved = opened.saved
        self.recorded_base = opened.recorded_base  # the newest segment that the checkpoint lists with records
        self.closed_bytes = sum(segment.size_bytes for segment in opened.segments[:-1])
        for segment in opened.segments[:-1]:
            if segment.index is not None:
                self._close(segment)

    @property
    def size_bytes(self) -> int:
        """The size of all segments in bytes."""
        return self.closed_bytes + self.segments[-1].size_bytes

    def facts(self) -> list[SegmentFacts]:
        """Return the segments, oldest first."""
        ends = [*self.bases[1:], self.end_offset]
        return [segment.facts(end) for segment, end in zip(self.segments, ends, strict=True)]

    def closed_before(self, offset: int) -> list[Segment]:
        """Return the closed segments that end at or before an offset."""
        return [segment for segment, end in zip(self.segments, self.bases[1:], strict=False) if end <= offset]

    def add(self, segment: Segment) -> None:
        """Add a new active segment, and close the one before it."""
        old = self.segments[-1]
        if old.preallocated:
            self.give_back(old)
            self.unflushed[old] = None
        self.closed_bytes += old.size_bytes
        self._close(old)
        self.segments.append(segment)
        self.bases.append(segment.base_offset)
        self.unflushed[segment] = None
        self.new_names = True

    def replace(self, place: int, old: Sequence[Segment], fresh: Segment) -> None:
        """Put a rewritten segment in the place of several. Without batches it takes none."""
        self.segments[place : place + len(old)] = [fresh] if fresh.size_bytes else []
        self._forget(old)
        if fresh.size_bytes:
            self._close(fresh)

    def drop(self, removed: Sequence[Segment]) -> None:
        """Remove segments from the log. The caller deletes their files."""
        self.segments[:] = [segment for segment in self.segments if segment not in removed]
        self._forget(removed)

    def give_back(self, segment: Segment) -> None:
        """Return preallocated space that the segment does not use."""
        with suppress(OSError):
            segment.give_back(self.shared.disk, self.shared.files.get(segment.path).file)

    def _close(self, segment: Segment) -> None:
        self.shared.indexes.note(segment)
        self.unindexed.append(segment)

    def _forget(self, removed: Sequence[Segment]) -> None:
        """Drop all cached data of segments that are no longer part of the log."""
        for segment in removed:
            self.shared.files.forget(segment.path)
            self.shared.indexes.forget(segment)
            self.unflushed.pop(segment, None)
        self.unindexed = [segment for segment in self.unindexed if segment not in removed]
        self.bases[:] = [segment.base_offset for segment in self.segments]
        self.closed_bytes = sum(segment.size_bytes for segment in self.segments[:-1])
        self.changes += 1
