"""Reads batches from segment files.

The index finds a position near an offset. From there a part of the file is read and the CRC of every batch is checked,
so that a damaged batch is never served. Data in the page cache is read on the event loop, other data on a thread.
"""

import asyncio
from functools import partial

import structlog

from tidemill.model.errors import CorruptMessage, KafkaStorageError
from tidemill.records.header import HEADER_SIZE, BatchHeader, Buffer, check_crc, read_header
from tidemill.streams.interface import Disk, FlushFailed
from tidemill.streams.segments.files import OpenFiles
from tidemill.streams.segments.index import Index
from tidemill.streams.segments.recovery import FileWindow, index_of
from tidemill.streams.segments.reserve import Reserve
from tidemill.streams.segments.segment import Indexes, Segment, read_index, write_index
from tidemill.streams.segments.tail import TailBudget

READ_BYTES_MAX = 2 * 1024 * 1024
REMEDY = "check the disk (kernel log, free space), then restart the broker"
LOGGER = structlog.get_logger(__name__)


class SegmentResources:
    """The resources that all logs of a store share. A failed flush ends all of the logs."""

    def __init__(self, disk: Disk, reserve_bytes: int) -> None:
        self.disk = disk
        self.reserve = Reserve(disk, reserve_bytes)
        self.failed: KafkaStorageError | None = None
        self.files = OpenFiles(disk)
        self.indexes = Indexes()
        self.tails = TailBudget()

    def fence(self, error: FlushFailed) -> None:
        """Stop all logs on this disk, because the data that a failed flush lost may belong to any of them."""
        if self.failed is None:
            self.failed = KafkaStorageError(f"a disk flush failed: {error}; {REMEDY}")
            LOGGER.critical("disk_flush_failed", error=str(error), remedy=REMEDY)


class SegmentReader:
    """Reads from the segments of one log."""

    def __init__(self, shared: SegmentResources, interval_bytes: int) -> None:
        self._shared = shared
        self._disk = shared.disk
        self._files = shared.files
        self._interval = interval_bytes
        self.loading = asyncio.Lock()  # held while index files are read or rebuilt, so that the log is not swapped then

    async def index(self, segment: Segment) -> Index:
        """Return the index of a segment from memory, from its files, or rebuilt."""
        index = segment.index
        if index is None:
            try:
                async with self.loading:
                    index = segment.index
                    if index is None:
                        index = await self._disk.aside(partial(self._load_index, segment))
            except OSError as error:
                raise KafkaStorageError(f"{segment.path}: {error}") from error
            segment.index = index
            self._shared.indexes.note(segment)
        return index

    def _load_index(self, segment: Segment) -> Index:
        index = read_index(self._disk, segment, segment.size_bytes)
        if index is None:
            file = self._disk.open(segment.path)
            try:
                window = FileWindow(self._disk, file, segment.size_bytes)
                index = index_of(window, segment.base_offset, self._interval)
            finally:
                self._disk.close(file)
            write_index(self._disk, segment, index)
        return index

    async def read(
        self, segment: Segment, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool
    ) -> tuple[list[Buffer], bool]:
        """Return batches of one segment and, when there are none, whether the next segment may have some."""
        size = segment.size_bytes
        index = await self.index(segment)
        relative_offset, position = index.find(max(offset - segment.base_offset, 0))
        order = _Order(segment.base_offset + relative_offset, exact=not index.gaps)
        limit = min(max_bytes, READ_BYTES_MAX)
        while position < size:
            want = min(size - position, max(limit, HEADER_SIZE) + self._interval)
            data = memoryview(await self._pread(segment, want, position))
            at, header = _find(data, offset, order)
            if header is None:
                if at == 0:
                    raise CorruptMessage(f"{segment.path} ends within the batch at byte {position}")
                position += at
                continue
            if header.size > size - position - at:
                raise CorruptMessage(f"a batch of {segment.path} reaches beyond the end of the file")
            if header.base_offset >= end_offset or (header.size > limit and not at_least_one):
                return [], False
            if header.size > len(data) - at:
                data, at = memoryview(await self._pread(segment, header.size, position + at)), 0
            return [_sound(data[at:], end_offset, max(limit, header.size), order)], False
        if position > size:
            raise CorruptMessage(f"a batch of {segment.path} reaches beyond the end of the file")
        return [], True

    async def _pread(self, segment: Segment, size: int, position: int) -> Buffer:
        try:
            opened = self._files.get(segment.path)
            data = self._disk.pread_cached(opened.file, size, position)
            if data is not None:
                return data
            opened.uses += 1
            try:
                return await self._disk.aside(partial(self._disk.pread, opened.file, size, position))
            finally:
                self._files.release(opened)
        except OSError as error:
            raise KafkaStorageError(f"{segment.path}: {error}") from error


class _Order:
    """The next expected offset. A batch's CRC does not cover its own offset, so it is compared with its neighbours."""

    __slots__ = ("exact", "expected")

    def __init__(self, expected: int, *, exact: bool) -> None:
        self.expected = expected
        self.exact = exact

    def check(self, header: BatchHeader) -> None:
        """Raise CorruptMessage when the batch cannot be the next. With gaps, any later offset is valid."""
        if header.base_offset != self.expected and (self.exact or header.base_offset < self.expected):
            raise CorruptMessage(f"a batch has offset {header.base_offset}, expected {self.expected}")


def _find(data: memoryview, offset: int, order: _Order) -> tuple[int, BatchHeader | None]:
    """Return the position of the first batch that reaches `offset`, and its header unless the data ends before it."""
    at = 0
    while len(data) - at >= HEADER_SIZE:
        header = read_header(data, at)
        order.check(header)
        if header.next_offset > offset:
            return at, header
        order.expected = header.next_offset
        if header.size > len(data) - at:
            return at + header.size, None
        at += header.size
    return at, None


def _sound(data: memoryview, end_offset: int, limit: int, order: _Order) -> memoryview:
    """Return the whole, undamaged batches at the start of `data`. Raise CorruptMessage when the first is damaged."""
    end = 0
    while len(data) - end >= HEADER_SIZE:
        try:
            header = read_header(data, end)
            if end + header.size > min(limit, len(data)) or header.base_offset >= end_offset:
                break
            order.check(header)
            check_crc(data, end, header)
        except CorruptMessage:
            if end == 0:
                raise
            break
        order.expected = header.next_offset
        end += header.size
    return data[:end]
