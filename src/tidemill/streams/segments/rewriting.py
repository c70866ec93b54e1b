"""A segment being written anew by compaction, piece by piece, beside the ones that readers still use."""

from collections.abc import Sequence

from tidemill.records.header import Buffer, read_header
from tidemill.streams.interface import Disk
from tidemill.streams.segments.index import Index

NOT_OPEN = -1
FLUSH_BYTES = 1024 * 1024  # producers wait for the same disk: many short flushes instead of one long one


class Rewriting:
    """The new file and its index; everything here blocks."""

    def __init__(self, disk: Disk, path: str, base_offset: int, interval_bytes: int) -> None:
        self.index = Index()
        self._disk = disk
        self._path = path
        self._base_offset = base_offset
        self._interval = interval_bytes
        self._file = NOT_OPEN
        self._flushed = 0

    def open(self) -> None:
        """Begin with an empty file."""
        self._file = self._disk.open(self._path, create=True)
        self._disk.truncate(self._file, 0)

    def write(self, batches: Sequence[Buffer]) -> None:
        """Add batches at the end."""
        position = self.index.size
        for batch in batches:
            self.index.add(read_header(batch), self._base_offset, self._interval)
        self._disk.write(self._file, [b"".join(batches)], position)
        if self.index.size - self._flushed >= FLUSH_BYTES:
            self.finish()
            self._flushed = self.index.size

    def finish(self) -> None:
        """Make it safe."""
        self._disk.fdatasync(self._file)

    def close(self) -> None:
        """Let go of the file."""
        if self._file != NOT_OPEN:
            self._disk.close(self._file)
            self._file = NOT_OPEN
