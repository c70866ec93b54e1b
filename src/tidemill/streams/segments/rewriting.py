"""Writes the compacted replacement of segments, piece by piece, while readers still use the old files."""

from collections.abc import Sequence

from tidemill.records.header import Buffer, read_header
from tidemill.streams.interface import Disk
from tidemill.streams.segments.index import Index

NOT_OPEN = -1
FLUSH_BYTES = 1024 * 1024  # producers use the same disk, so many short flushes are better than one long one


class Rewriting:
    """The new file and its index. All methods block."""

    def __init__(self, disk: Disk, path: str, base_offset: int, interval_bytes: int) -> None:
        self.index = Index()
        self._disk = disk
        self._path = path
        self._base_offset = base_offset
        self._interval = interval_bytes
        self._file = NOT_OPEN
        self._flushed = 0

    def open(self) -> None:
        """Create an empty file."""
        self._file = self._disk.open(self._path, create=True)
        self._disk.truncate(self._file, 0)

    def write(self, batches: Sequence[Buffer]) -> None:
        """Append batches."""
        position = self.index.size
        for batch in batches:
            self.index.add(read_header(batch), self._base_offset, self._interval)
        self._disk.write(self._file, [b"".join(batches)], position)
        if self.index.size - self._flushed >= FLUSH_BYTES:
            self.finish()
            self._flushed = self.index.size

    def finish(self) -> None:
        """Flush the file."""
        self._disk.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        if self._file != NOT_OPEN:
            self._disk.close(self._file)
            self._file = NOT_OPEN
