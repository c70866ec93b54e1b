"""Recovers a log's files at start.

Everything up to the checkpoint was flushed and is trusted. The data after it is read batch by batch, with CRC and
offsets checked, and indexed. A bad position is one of two things:

- The torn end of a write that a crash interrupted. The broker never acknowledged it. So the file is truncated there,
  everything after it is dropped, and the truncation is flushed. Blocks that never reached the disk are zeros or beyond
  the end of the file.
- Damage in the middle: good batches follow, and the position does not look torn. The segment is copied to `.corrupt`,
  only the damaged batch is left out, and the damage is reported. The good batches stay. Readers see a gap, never wrong
  bytes.

Good batches after a torn end are dropped too, because the log must be a prefix. The segment is copied first, so that no
data is lost permanently.

All functions here block; the log runs them on a thread.
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
    """A whole batch at its position in the file."""

    position: int
    header: BatchHeader


class Bad(NamedTuple):
    """A position without a whole batch."""

    position: int
    reason: str
    torn: bool


class FileWindow:
    """Reads a file in large pieces, from start to end."""

    def __init__(self, disk: Disk, file: int, size: int, end_offset: int = OFFSET_MAX) -> None:
        self._disk = disk
        self._file = file
        self.size = size
        self.end_offset = end_offset  # the base offset of the next file
        self._start = 0
        self._data = b""

    def get(self, position: int, size: int) -> tuple[bytes, int]:
        """Return bytes with [position, position + size), as far as the file has them, and the index of `position`."""
        if position < self._start or position + size > self._start + len(self._data):
            self._start = position
            self._data = self._disk.pread(self._file, max(size, CHUNK_BYTES), position)
        return self._data, position - self._start


def iterate_batches(window: FileWindow, position: int, offset: int) -> Iterator[Good | Bad]:
    """Yield the batches from `position` on, with offsets of at least `offset`. Stop after the first bad position."""
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
    """Return the header of the whole, undamaged batch at `position`, which starts at `offset` or later."""
    data, at = window.get(position, HEADER_SIZE)
    header = read_header(data, at)
    if header.base_offset < offset or header.size > window.size - position:
        raise CorruptMessage(f"the batch at byte {position} does not follow offset {offset} or is incomplete")
    if header.next_offset > window.end_offset:
        raise CorruptMessage(f"the batch at byte {position} has offset {header.base_offset}, beyond its file")
    data, at = window.get(position, header.size)
    check_crc(data, at, header)
    if header.base_offset > offset:
        _check_gap(window, position + header.size, header, offset)
    return header


def _check_gap(window: FileWindow, position: int, header: BatchHeader, offset: int) -> None:
    """Check an offset gap. Compaction leaves gaps; a damaged offset, which no CRC covers, contradicts its successor."""
    data, at = window.get(position, HEADER_SIZE)
    try:
        following = read_header(data, at).base_offset
    except CorruptMessage:
        return
    if offset <= following < header.next_offset:
        raise CorruptMessage(f"a batch has offset {header.base_offset}, the batch after it {following}")


def only_zeros(window: FileWindow, position: int) -> bool:
    """Whether only zeros follow up to the end of the file: space that was reserved, or a write that was lost."""
    while position < window.size:
        data, at = window.get(position, min(CHUNK_BYTES, window.size - position))
        if len(data) == at or data[at:] != bytes(len(data) - at):
            return False
        position += len(data) - at
    return True


def next_good(window: FileWindow, position: int, offset: int) -> int | None:
    """Return the position of the next valid batch after a bad position, or None."""
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
    """Build the index of a file whose batches are known to be valid."""
    index = Index()
    for found in iterate_batches(window, 0, base_offset):
        if isinstance(found, Bad):
            break
        index.add(found.header, base_offset, interval_bytes)
    return index


def _plausible(data: bytes, at: int, offset: int, left: int) -> bool:
    base_offset = int.from_bytes(data[at : at + 8], "big", signed=True)
    size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + 12
    return base_offset >= offset and HEADER_SIZE <= size <= left


def _looks_torn(window: FileWindow, position: int, offset: int) -> bool:
    """Whether a block of the batch at `position` never reached the disk, so that it is zero up to the block's end.

    A batch that the end of the file cuts off needs no such sign, because nothing good can follow it.
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
