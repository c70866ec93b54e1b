"""The sparse index of a segment, by offset and by time.

Every `index.interval.bytes` one batch gets an entry. The entry has the batch's relative offset and its file position,
packed into one 64-bit number so that one bisection finds both. It also has the largest timestamp of all earlier
batches. Invariant: the first record at or after a time is never before the last entry whose largest earlier timestamp
is smaller.

The index of the active segment is in memory. When the segment is closed, the index is written to `.index` and
`.timeindex`, each after a header with its CRC. Both files are disposable. Missing, truncated or damaged files are
rebuilt from the log.
"""

from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import NamedTuple

import crc32c

from tidemill.records.header import BatchHeader

POSITION_BITS = 32
POSITION_MASK = (1 << POSITION_BITS) - 1
NO_TIMESTAMP = -1
_MAGIC = b"tmix"
# magic, CRC of the bytes after it, size of the log, largest timestamp, next offset, gaps, entries
_HEADER = Struct("<4sIqqqqq")
_CRC_END = 8


class Index:
    """The entries of one segment, in memory."""

    __slots__ = ("_last_indexed", "entries", "gaps", "largest_timestamp", "next_offset", "size", "times")

    def __init__(self) -> None:
        self.entries = array("Q")
        self.times = array("q")
        self.largest_timestamp = NO_TIMESTAMP
        self.size = 0
        self.next_offset = -1
        self.gaps = False
        self._last_indexed = 0

    @property
    def bytes(self) -> int:
        """The size of the offset entries in their file."""
        return len(self.entries) * self.entries.itemsize

    def add(self, header: BatchHeader, base_offset: int, interval_bytes: int) -> None:
        """Add the next batch of the file."""
        position = self.size
        if position - self._last_indexed >= interval_bytes or not self.entries:
            self.entries.append((header.base_offset - base_offset) << POSITION_BITS | position)
            self.times.append(self.largest_timestamp)
            self._last_indexed = position
        if header.base_offset != (self.next_offset if position else base_offset):
            self.gaps = True
        self.next_offset = header.next_offset
        self.largest_timestamp = max(self.largest_timestamp, header.max_timestamp)
        self.size = position + header.size

    def find(self, relative_offset: int) -> tuple[int, int]:
        """Return offset and position of the last indexed batch at or before an offset, where a search starts."""
        place = bisect_right(self.entries, relative_offset << POSITION_BITS | POSITION_MASK)
        if not place:
            return 0, 0
        entry = self.entries[place - 1]
        return entry >> POSITION_BITS, entry & POSITION_MASK

    def relative_offset_before_time(self, timestamp: int) -> int:
        """Return the relative offset of the last indexed batch before which every record is older than `timestamp`."""
        place = bisect_left(self.times, timestamp)
        return self.entries[place - 1] >> POSITION_BITS if place else 0


class IndexFiles(NamedTuple):
    """An index encoded as two files."""

    offsets: bytes
    times: bytes


def encode(index: Index) -> IndexFiles:
    """Return the bytes of `.index` and `.timeindex`."""
    return IndexFiles(
        _sealed(index, index.entries.tobytes()),
        _sealed(index, index.times.tobytes()),
    )


def decode(files: IndexFiles, log_size: int) -> Index | None:
    """Return the index, or None when a file is damaged or belongs to a log of another size."""
    offsets, times = _opened(files.offsets, log_size), _opened(files.times, log_size)
    if offsets is None or times is None or offsets.head != times.head:
        return None
    index = Index()
    index.size = log_size
    index.largest_timestamp, index.next_offset, gaps, _ = offsets.head
    index.gaps = bool(gaps)
    index.entries.frombytes(offsets.body)
    index.times.frombytes(times.body)
    return index


class _IndexPart(NamedTuple):
    head: tuple[int, ...]
    body: bytes


def _sealed(index: Index, body: bytes) -> bytes:
    facts = (index.size, index.largest_timestamp, index.next_offset, index.gaps, len(index.entries))
    head = _HEADER.pack(_MAGIC, 0, *facts)
    return _HEADER.pack(_MAGIC, crc32c.crc32c(body, crc32c.crc32c(head[_CRC_END:])), *facts) + body


def _opened(data: bytes, log_size: int) -> _IndexPart | None:
    if len(data) < _HEADER.size:
        return None
    magic, crc, size, *head = _HEADER.unpack_from(data)
    if magic != _MAGIC or size != log_size or len(data) != _HEADER.size + 8 * head[-1]:
        return None
    if crc32c.crc32c(data[_CRC_END:]) != crc:
        return None
    return _IndexPart(tuple(head), data[_HEADER.size :])
