"""What a start does with the files it finds.

Everything up to the checkpoint was flushed and is believed; what lies behind is read batch by batch, CRC and offsets
checked, and indexed. A bad place is one of two things:

- The torn end of a write that a crash cut short. Nobody was told that it is stored, so the file is cut there, what
  comes after goes too, and the cut is flushed. Blocks that never reached the disk are zeros or lie beyond the
  end of the file.
- Damage in the middle: good batches follow, and the place does not look torn. The segment is copied aside as
  `.corrupt`, the damaged batch alone is left out, and it is reported; the good batches stay. Readers see a
  hole, never wrong bytes.

When a torn end has good batches behind it they go as well, since the log must be a prefix, but the segment is copied
aside first: nothing that might be wanted is lost for good.

All functions here block; the log runs them aside.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage
from tidemill.records.header import HEADER_SIZE, LENGTH_END, MAGIC, MAGIC_AT, BatchHeader, check_crc, read_header
from tidemill.streams.interface import Disk
from tidemill.streams.segments.index import Index

CHUNK_BYTES = 1024 * 1024
BLOCK_BYTES = 4096
CORRUPT = ".corrupt"
OFFSET_MAX = 2**63 - 1


class Good(NamedTuple):
    """A whole batch at its place in the file."""

    position: int
    header: BatchHeader


class Bad(NamedTuple):
    """A place where no whole batch is."""

    position: int
    reason: str
    torn: bool


class FileWindow:
    """A file read in large pieces, from its beginning to its end."""

    def __init__(self, disk: Disk, file: int, size: int, end_offset: int = OFFSET_MAX) -> None:
        self._disk = disk
        self._file = file
        self.size = size
        self.end_offset = end_offset  # where the next file begins
        self._start = 0
        self._data = b""

    def get(self, position: int, size: int) -> tuple[bytes, int]:
        """Bytes that hold [position, position + size) as far as the file has them, and where in them that begins."""
        if position < self._start or position + size > self._start + len(self._data):
            self._start = position
            self._data = self._disk.pread(self._file, max(size, CHUNK_BYTES), position)
        return self._data, position - self._start


def walk(window: FileWindow, position: int, offset: int) -> Iterator[Good | Bad]:
    """The batches from `position` on, whose offsets are `offset` or above; ends after the first bad place."""
    while position < window.size:
        try:
            header = check_at(window, position, offset)
        except CorruptMessage as error:
            yield Bad(position, str(error), _looks_torn(window, position, offset))
            return
        yield Good(position, header)
        position += header.size
        offset = header.next_offset


def check_at(window: FileWindow, position: int, offset: int) -> BatchHeader:
    """The header of the whole and sound batch at `position`, which begins at `offset` or later."""
    data, at = window.get(position, HEADER_SIZE)
    header = read_header(data, at)
    if header.base_offset < offset or header.size > window.size - position:
        raise CorruptMessage(f"the batch at byte {position} does not follow offset {offset} or is cut")
    if header.next_offset > window.end_offset:
        raise CorruptMessage(f"the batch at byte {position} says offset {header.base_offset}, behind its file")
    data, at = window.get(position, header.size)
    check_crc(data, at, header)
    if header.base_offset > offset:
        _check_gap(window, position + header.size, header, offset)
    return header


def _check_gap(window: FileWindow, position: int, header: BatchHeader, offset: int) -> None:
    """A gap comes from compaction, or from a damaged offset, which no CRC covers; then the next batch denies it."""
    data, at = window.get(position, HEADER_SIZE)
    try:
        following = read_header(data, at).base_offset
    except CorruptMessage:
        return
    if offset <= following < header.next_offset:
        raise CorruptMessage(f"a batch says offset {header.base_offset}, the one behind it {following}")


def only_zeros(window: FileWindow, position: int) -> bool:
    """Whether nothing was ever written from `position` to the end of the file: room that was reserved or lost."""
    while position < window.size:
        data, at = window.get(position, min(CHUNK_BYTES, window.size - position))
        if len(data) == at or data[at:] != bytes(len(data) - at):
            return False
        position += len(data) - at
    return True


def next_good(window: FileWindow, position: int, offset: int) -> int | None:
    """Where the next sound batch begins behind a bad place, or None."""
    position += 1
    while position + HEADER_SIZE <= window.size:
        data, at = window.get(position, HEADER_SIZE)
        found = data.find(MAGIC, at + MAGIC_AT)
        if found < 0 or found - MAGIC_AT + HEADER_SIZE > len(data):
            position += max(len(data) - at - HEADER_SIZE, 0) + 1
            continue
        position += found - MAGIC_AT - at
        if _plausible(data, found - MAGIC_AT, offset, window.size - position):
            try:
                check_at(window, position, offset)
            except CorruptMessage:
                pass
            else:
                return position
        position += 1
    return None


def index_of(window: FileWindow, base_offset: int, interval_bytes: int) -> Index:
    """The index of a file whose batches are known to be sound."""
    index = Index()
    for found in walk(window, 0, base_offset):
        if isinstance(found, Bad):
            break
        index.add(found.header, base_offset, interval_bytes)
    return index


def _plausible(data: bytes, at: int, offset: int, left: int) -> bool:
    base_offset = int.from_bytes(data[at : at + 8], "big", signed=True)
    size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + 12
    return base_offset >= offset and HEADER_SIZE <= size <= left


def _looks_torn(window: FileWindow, position: int, offset: int) -> bool:
    """Whether a block under the batch at `position` never reached the disk: from there to the block's end all is zero.

    A batch that is cut by the end of the file needs no such sign: nothing good can follow it.
    """
    data, at = window.get(position, HEADER_SIZE)
    size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + 12
    left = window.size - position
    end = position + (size if HEADER_SIZE <= size <= left else min(left, 2 * BLOCK_BYTES))
    first_end = min(position - position % BLOCK_BYTES + BLOCK_BYTES, window.size)
    first_size = first_end - position
    data, at = window.get(position, first_size)
    if not any(data[at : at + first_size]) and (
        first_size >= LENGTH_END or any(offset.to_bytes(8, "big")[:first_size])
    ):
        return True
    for block in range(first_end, end, BLOCK_BYTES):
        data, at = window.get(block, BLOCK_BYTES)
        if not any(data[at : at + BLOCK_BYTES]):
            return True
    return False
