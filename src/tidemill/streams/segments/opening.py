"""Opens a log's folder: turns files into segments that can be trusted.

The order is: read the checkpoint; finish a recorded truncation; delete segments that are entirely before the log's
start. Each remaining segment is trusted if it was closed before the checkpoint and has the recorded size. Otherwise it
is checked from the last flushed position on. The result is a log without a torn end.

If the checkpoint itself is damaged, nothing is known about what was flushed. Then every bad position with good batches
after it counts as damage, and nothing good is dropped. If a trusted segment turns out to be damaged, the folder is
opened again and nothing is trusted.

If files are missing, the log continues after every offset that may have been assigned (`given_offset`, which is
recorded ahead of the records). If no file is missing, the log continues without a gap, whatever was recorded.

All functions here block; the log runs them on a thread.
"""

from typing import NamedTuple

from tidemill.model.topic_settings import TopicSettings
from tidemill.streams.interface import Disk, Saved
from tidemill.streams.segments import checkpoint as checkpoints
from tidemill.streams.segments.checkpoint import TEMPORARY, Checkpoint, SegmentNote
from tidemill.streams.segments.folders import DELETED
from tidemill.streams.segments.index import Index
from tidemill.streams.segments.missing import Missing, missing_segments
from tidemill.streams.segments.recovery import (
    CORRUPT,
    OFFSET_MAX,
    Bad,
    FileWindow,
    index_of,
    iterate_batches,
    next_good,
    only_zeros,
)
from tidemill.streams.segments.segment import INDEX, LOG, TIMEINDEX, Segment, read_index
from tidemill.streams.segments.swapping import NAME_DIGITS, finish_swaps

ALL_FLUSHED = 2**63 - 1
NEXT_BASE = -1  # a segment lost its end to damage: the log continues at the base of the next segment
COPY_BYTES = 1024 * 1024
CHECKPOINT_MISSING = "its checkpoint is missing, and perhaps segments with it"


class RecoveryReport(NamedTuple):
    """The repairs of a start, for the operator."""

    scanned_bytes: int
    cut_bytes: int
    quarantined: tuple[str, ...]
    missing: tuple[Missing, ...] = ()
    """The segments that the checkpoint lists and the folder does not have."""


class OpenedSegments(NamedTuple):
    """A log as described by its files."""

    segments: list[Segment]
    start_offset: int
    end_offset: int
    saved: Saved | None
    report: RecoveryReport
    recorded_base: int
    """The newest segment that the checkpoint lists with records, or -1."""


class _Range(NamedTuple):
    start: int
    end: int


class LogOpening:
    """Opens one folder once."""

    def __init__(
        self, disk: Disk, folder: str, settings: TopicSettings, *, believe: bool = True, given_offset: int = 0
    ) -> None:
        self._believe = believe
        self._given_offset = given_offset
        self._disk = disk
        self._folder = folder
        self._settings = settings
        self._interval = settings.index_interval_bytes
        self._scanned = 0
        self._cut = 0
        self._quarantined: list[str] = []
        self._checkpoint: Checkpoint | None = None
        self._unsure = False
        self._missing: list[Missing] = []

    def run(self) -> OpenedSegments:
        """Repair the folder and return its contents."""
        self._disk.make_dir(self._folder)
        finish_swaps(self._disk, self._folder)
        self._checkpoint = checkpoints.read(self._disk, self._folder)
        names = self._disk.list(self._folder)
        self._unsure = self._checkpoint is None and checkpoints.NAME in names
        for name in names:
            if name.endswith((TEMPORARY, DELETED)):
                self._disk.remove(f"{self._folder}/{name}")
        bases = [
            int(name[:NAME_DIGITS]) for name in names if name[NAME_DIGITS:] == LOG and name[:NAME_DIGITS].isdigit()
        ]
        start_offset = self._checkpoint.start_offset if self._checkpoint else (bases[0] if bases else 0)
        segments = [Segment(self._folder, base) for base in bases]
        if self._checkpoint is not None:
            sizes = {segment.base_offset: self._disk.size(segment.path) for segment in segments}
            self._missing = missing_segments(self._checkpoint, sizes)
        elif self._given_offset:
            self._missing = [Missing(start_offset, "its checkpoint is damaged" if self._unsure else CHECKPOINT_MISSING)]
        self._finish_cut(segments)
        while len(segments) > 1 and segments[1].base_offset <= start_offset:
            self._remove(segments.pop(0))
        end_offset = self._check_all(segments, start_offset)
        if end_offset < start_offset or not segments:
            end_offset = self._begin_at(segments, max(start_offset, end_offset))
        found = self._checkpoint
        believable = found is not None and found.active.size_bytes and not self._missing
        recorded = found.active.base_offset if found is not None and believable else -1
        return OpenedSegments(segments, start_offset, end_offset, self._saved(end_offset), self._report(), recorded)

    def _report(self) -> RecoveryReport:
        return RecoveryReport(self._scanned, self._cut, tuple(self._quarantined), tuple(self._missing))

    def _saved(self, end_offset: int) -> Saved | None:
        found = self._checkpoint
        if found is None or found.state is None or found.known_until > end_offset:
            return None
        return Saved(found.known_until, found.state)

    def _check_all(self, segments: list[Segment], start_offset: int) -> int:
        """Check the segments in order and drop those after a torn end. Return the end offset of the log."""
        found = self._checkpoint
        believed = {closed.base_offset: closed for closed in found.closed} if found and self._believe else {}
        end_offset = found.end_offset if found and not segments else start_offset
        for place, segment in enumerate(segments):
            if end_offset == NEXT_BASE:
                end_offset = segment.base_offset
            if place and segment.base_offset != end_offset and self._flushed_until(segments[place - 1]) < ALL_FLUSHED:
                self._drop_from(segments, place)
                break
            size = self._disk.size(segment.path)
            closed = believed.get(segment.base_offset)
            last = place == len(segments) - 1
            if closed is not None and closed.size_bytes == size and not last:
                _believe(segment, closed)
                end_offset = segments[place + 1].base_offset
                continue
            whole, end_offset = self._check(segment, size, segments[place + 1 :])
            if not whole:
                self._drop_from(segments, place + 1)
                break
        return self._never_backwards(end_offset)

    def _never_backwards(self, end_offset: int) -> int:
        """Return an end offset that never reuses flushed offsets, even when their batch is damaged."""
        flushed = self._checkpoint.end_offset if self._checkpoint else 0
        return max(end_offset, flushed, self._given_offset if self._missing else 0)

    def _flushed_until(self, segment: Segment) -> int:
        """Return the position up to which the segment's bytes are known to be flushed."""
        found = self._checkpoint
        if self._unsure or (found is not None and found.cut_to >= 0):  # a truncation flushes first
            return ALL_FLUSHED
        if found is None or segment.base_offset > found.active.base_offset:
            return 0
        return ALL_FLUSHED if segment.base_offset < found.active.base_offset else found.active.size_bytes

    def _check(self, segment: Segment, size: int, later: list[Segment]) -> tuple[bool, int]:
        """Check and repair a segment. Return whether the following segments may stay, and its end offset."""
        file = self._disk.open(segment.path)
        window = FileWindow(self._disk, file, size, later[0].base_offset if later else OFFSET_MAX)
        try:
            return self._check_open(segment, window, file, later=self._any_bytes(later))
        finally:
            self._disk.close(file)

    def _check_open(self, segment: Segment, window: FileWindow, file: int, *, later: bool) -> tuple[bool, int]:
        index, offset = self._known_index(segment, window.size)
        flushed = self._flushed_until(segment)
        good = [_Range(0, index.size)]
        position: int | None = index.size
        while position is not None:
            bad = None
            for found in iterate_batches(window, position, offset):
                if isinstance(found, Bad):
                    bad = found
                    break
                index.add(found.header, segment.base_offset, self._interval)
                offset = found.header.next_offset
                good[-1] = _Range(good[-1].start, found.position + found.header.size)
            self._scanned += good[-1].end - position
            if bad is None:
                break
            if self._is_unused(window, bad.position, offset, flushed):
                self._truncate(file, bad.position)
                break
            position = next_good(window, bad.position, offset)
            if (position is None and not later) or (bad.torn and bad.position >= flushed):
                self._cut_tail(segment, file, bad, window.size, keep=position is not None or bad.position < flushed)
                self._settle(segment, index, good)
                return False, offset
            self._quarantine(segment, bad)
            if position is None:
                self._truncate(file, bad.position)
                offset = NEXT_BASE
            else:
                good.append(_Range(position, position))
        self._settle(segment, index, good)
        return True, offset

    def _is_unused(self, window: FileWindow, position: int, offset: int, flushed: int) -> bool:
        """Whether the rest of the file is reserved, unused space, so that no written data is missing."""
        if window.end_offset == OFFSET_MAX:
            believable = position >= flushed or (self._unsure and self._settings.preallocate)
        else:
            believable = window.end_offset == offset
        return believable and only_zeros(window, position)

    def _known_index(self, segment: Segment, size: int) -> tuple[Index, int]:
        """Return the index up to the checkpoint and the offset there, if all of it can be trusted."""
        found = self._checkpoint if self._believe else None
        if found is not None and segment.base_offset == found.active.base_offset and size >= found.active.size_bytes:
            segment.first_append_ms = found.active.first_append_ms
            index = read_index(self._disk, segment, found.active.size_bytes)
            if index is not None:
                return index, max(found.end_offset, segment.base_offset)
        return Index(), segment.base_offset

    def _settle(self, segment: Segment, index: Index, good: list[_Range]) -> None:
        """Set the segment's index. If batches were left out, rewrite the segment without them."""
        if len(good) > 1:
            self._rewrite(segment, good)
            file = self._disk.open(segment.path)
            try:
                window = FileWindow(self._disk, file, self._disk.size(segment.path))
                index = index_of(window, segment.base_offset, self._interval)
            finally:
                self._disk.close(file)
        segment.index = index
        segment.size_bytes = index.size
        segment.largest_timestamp = index.largest_timestamp
        if segment.first_append_ms == 0:
            segment.first_append_ms = max(index.largest_timestamp, 0)  # the file has no better estimate

    def _cut_tail(self, segment: Segment, file: int, bad: Bad, size: int, *, keep: bool) -> None:
        if keep:
            self._quarantine(segment, bad)
        self._cut += size - bad.position
        self._truncate(file, bad.position)

    def _truncate(self, file: int, size: int) -> None:
        self._disk.truncate(file, size)
        self._disk.fdatasync(file)

    def _quarantine(self, segment: Segment, bad: Bad) -> None:
        """Copy the segment to a `.corrupt` file, once."""
        name = segment.path + CORRUPT
        note = f"{name}: byte {bad.position}: {bad.reason}"
        if not any(line.startswith(f"{name}:") for line in self._quarantined):
            self._copy(segment.path, name, [_Range(0, self._disk.size(segment.path))])
        self._quarantined.append(note)

    def _rewrite(self, segment: Segment, good: list[_Range]) -> None:
        fresh = segment.path + TEMPORARY
        self._copy(segment.path, fresh, good)
        self._disk.rename(fresh, segment.path)
        self._disk.fsync_dir(self._folder)

    def _copy(self, source: str, target: str, ranges: list[_Range]) -> None:
        reading, writing = self._disk.open(source), self._disk.open(target, create=True)
        try:
            self._disk.truncate(writing, 0)
            size = 0
            for start, end in ranges:
                for position in range(start, end, COPY_BYTES):
                    data = self._disk.pread(reading, min(COPY_BYTES, end - position), position)
                    self._disk.write(writing, [data], size)
                    size += len(data)
            self._disk.fdatasync(writing)
        finally:
            self._disk.close(reading)
            self._disk.close(writing)
        self._disk.fsync_dir(self._folder)

    def _drop_from(self, segments: list[Segment], place: int) -> None:
        """Drop the segments after a torn end. Segments with bytes are kept as `.corrupt` copies."""
        for segment in segments[place:]:
            if self._any_bytes([segment]):
                self._cut += self._disk.size(segment.path)
                self._disk.rename(segment.path, segment.path + CORRUPT)
                self._quarantined.append(f"{segment.path}{CORRUPT}: after a torn end")
            self._remove(segment)
        del segments[place:]

    def _finish_cut(self, segments: list[Segment]) -> None:
        """Finish a recorded truncation."""
        if self._checkpoint is None or self._checkpoint.cut_to < 0:
            return
        cut_to = self._checkpoint.cut_to
        while segments and segments[-1].base_offset >= cut_to:
            self._remove(segments.pop())
        if segments:
            cut_segment(self._disk, segments[-1], cut_to)
            self._disk.fsync_dir(self._folder)

    def _begin_at(self, segments: list[Segment], offset: int) -> int:
        old, segments[:] = list(segments), [Segment(self._folder, offset, Index())]
        file = self._disk.open(segments[0].path, create=True)
        try:
            if self._settings.preallocate:
                segments[0].preallocate(self._disk, file, self._settings.segment_bytes)
        finally:
            self._disk.close(file)
        if old:
            self._disk.fsync_dir(self._folder)  # a crash never leaves a log without a segment
        for segment in old:
            self._remove(segment)
        return offset

    def _remove(self, segment: Segment) -> None:
        remove_files(self._disk, segment)

    def _any_bytes(self, segments: list[Segment]) -> bool:
        return any(not self._is_blank(segment) for segment in segments)

    def _is_blank(self, segment: Segment) -> bool:
        size = self._disk.size(segment.path)
        if not size:
            return True
        file = self._disk.open(segment.path)
        try:
            return only_zeros(FileWindow(self._disk, file, size), 0)
        finally:
            self._disk.close(file)


def remove_files(disk: Disk, segment: Segment) -> None:
    """Delete the files of a segment, as far as they exist."""
    stem = segment.path.removesuffix(LOG)
    for ending in (INDEX, TIMEINDEX, LOG):
        try:
            disk.remove(stem + ending)
        except FileNotFoundError:
            continue


def cut_segment(disk: Disk, segment: Segment, end_offset: int) -> None:
    """Truncate every batch that reaches `end_offset`. The truncation is flushed when this returns."""
    file = disk.open(segment.path)
    try:
        window = FileWindow(disk, file, disk.size(segment.path))
        position = 0
        for found in iterate_batches(window, 0, segment.base_offset):
            if isinstance(found, Bad) or found.header.next_offset > end_offset:
                break
            position = found.position + found.header.size
        disk.truncate(file, position)
        disk.fdatasync(file)
    finally:
        disk.close(file)


def _believe(segment: Segment, closed: SegmentNote) -> None:
    segment.size_bytes = closed.size_bytes
    segment.largest_timestamp = closed.largest_timestamp
    segment.first_append_ms = closed.first_append_ms
