"""One segment: a file of batches, and its index.

The index of the active segment is in memory. The index of a closed segment is read on demand, and dropped when other
indexes need the memory (`Indexes`).
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tidemill.records.header import BatchHeader, Buffer
from tidemill.streams.core.retention import SegmentFacts
from tidemill.streams.interface import Disk
from tidemill.streams.segments.checkpoint import SegmentNote
from tidemill.streams.segments.index import NO_TIMESTAMP, Index, IndexFiles, decode, encode

LOG, INDEX, TIMEINDEX = ".log", ".index", ".timeindex"
INDEXES_MAX = 32


def segment_name(base_offset: int) -> str:
    """Return the name of a segment's files, without the extension."""
    return f"{base_offset:020d}"


class Segment:
    """The facts of one segment."""

    __slots__ = (
        "base_offset",
        "first_append_ms",
        "folder",
        "index",
        "largest_timestamp",
        "path",
        "preallocated",
        "size_bytes",
    )

    def __init__(self, folder: str, base_offset: int, index: Index | None = None) -> None:
        self.folder = folder
        self.base_offset = base_offset
        self.path = f"{folder}/{segment_name(base_offset)}{LOG}"
        self.index = index
        self.size_bytes = index.size if index is not None else 0
        self.largest_timestamp = index.largest_timestamp if index is not None else NO_TIMESTAMP
        self.first_append_ms = 0
        self.preallocated = False  # the file is longer than the data written to it

    def preallocate(self, disk: Disk, file: int, size: int) -> None:
        """Reserve disk space for the whole segment. Without it the segment is written all the same."""
        try:
            disk.allocate(file, size)
            self.preallocated = True
        except OSError:
            disk.truncate(file, self.size_bytes)

    def give_back(self, disk: Disk, file: int) -> None:
        """Truncate the unused space. If that fails, the next start does it."""
        if self.preallocated:
            self.preallocated = False
            with suppress(OSError):
                disk.truncate(file, self.size_bytes)

    def add(self, headers: Sequence[BatchHeader], interval_bytes: int, now_ms: int) -> None:
        """Add batches that were appended to the file."""
        index = self.index
        if index is None:
            raise RuntimeError("a closed segment cannot be written to")
        if self.size_bytes == 0:
            self.first_append_ms = now_ms
        for header in headers:
            index.add(header, self.base_offset, interval_bytes)
        self.size_bytes = index.size
        self.largest_timestamp = index.largest_timestamp

    def facts(self, next_offset: int) -> SegmentFacts:
        """Return the facts that retention needs."""
        return SegmentFacts(
            self.base_offset, next_offset, self.size_bytes, self.largest_timestamp, self.first_append_ms
        )

    def note(self) -> SegmentNote:
        """Return the facts that the checkpoint stores."""
        return SegmentNote(self.base_offset, self.size_bytes, self.largest_timestamp, self.first_append_ms)


class Indexes:
    """The in-memory indexes of closed segments, least recently used first."""

    def __init__(self, limit: int = INDEXES_MAX) -> None:
        self._limit = limit
        self._loaded: OrderedDict[Segment, None] = OrderedDict()

    def note(self, segment: Segment) -> None:
        """Record a use of a closed segment's index, and drop the least recently used one."""
        self._loaded[segment] = None
        self._loaded.move_to_end(segment)
        if len(self._loaded) > self._limit:
            oldest, _ = self._loaded.popitem(last=False)
            oldest.index = None

    def forget(self, segment: Segment) -> None:
        """Stop tracking a deleted segment."""
        self._loaded.pop(segment, None)


def write_index(disk: Disk, segment: Segment, index: Index) -> None:
    """Write the index files. They are not flushed, because they can be rebuilt."""
    files = encode(index)
    stem = segment.path.removesuffix(LOG)
    for ending, data in ((INDEX, files.offsets), (TIMEINDEX, files.times)):
        file = disk.open(stem + ending, create=True)
        try:
            disk.truncate(file, 0)
            disk.write(file, [data], 0)
        finally:
            disk.close(file)


def read_index(disk: Disk, segment: Segment, log_size: int) -> Index | None:
    """Return the index from the files of a log of this size, or None when they cannot be trusted."""
    stem = segment.path.removesuffix(LOG)
    try:
        files: list[Any] = [_read_all(disk, stem + ending) for ending in (INDEX, TIMEINDEX)]
    except FileNotFoundError:
        return None
    return decode(IndexFiles(*files), log_size)


def _read_all(disk: Disk, path: str) -> Buffer:
    size = disk.size(path)
    file = disk.open(path)
    try:
        return disk.pread(file, size, 0)
    finally:
        disk.close(file)


def write_indexes(disk: Disk, segments: Sequence[Segment]) -> None:
    """Write the indexes of closed segments. An index that cannot be written is rebuilt on demand."""
    for segment in segments:
        if segment.index is not None:
            with suppress(OSError):
                write_index(disk, segment, segment.index)
