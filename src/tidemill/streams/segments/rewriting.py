"""A segment being written anew by compaction, in pieces of bounded size, beside the one that readers still use."""

from tidemill.records.header import Buffer, read_header
from tidemill.streams.interface import Disk
from tidemill.streams.segments.index import Index

PIECE_BYTES = 1024 * 1024
NOT_OPEN = -1


class Rewriting:
    """The new file and its index; everything but `add` blocks."""

    def __init__(self, disk: Disk, path: str, base_offset: int, interval_bytes: int) -> None:
        self.index = Index()
        self._disk = disk
        self._path = path
        self._base_offset = base_offset
        self._interval = interval_bytes
        self._file = NOT_OPEN
        self._piece: list[Buffer] = []
        self._written = 0

    def open(self) -> None:
        """Begin with an empty file."""
        self._file = self._disk.open(self._path, create=True)
        self._disk.truncate(self._file, 0)

    def add(self, batch: Buffer) -> bool:
        """Take a batch; whether it is time to write."""
        self.index.add(read_header(batch), self._base_offset, self._interval)
        self._piece.append(batch)
        return self.index.size - self._written >= PIECE_BYTES or len(self._piece) >= 256

    def write(self) -> None:
        """Write what was taken."""
        self._disk.write(self._file, self._piece, self._written)
        self._written = self.index.size
        self._piece = []

    def finish(self) -> None:
        """Write the rest and flush."""
        if self._piece:
            self.write()
        self._disk.fdatasync(self._file)

    def close(self) -> None:
        """Let go of the file."""
        if self._file != NOT_OPEN:
            self._disk.close(self._file)
            self._file = NOT_OPEN
