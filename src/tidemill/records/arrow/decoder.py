"""Converts record batches to Arrow record batches.

The batches of a fetch are collected until they hold about the requested number of rows or bytes. Each such group is one
kernel call. Uncompressed records are read directly from the fetch. Compressed ones are decompressed into one buffer
first (`DecompressedRecords`). Only the requested columns are built.

When a group cannot be read, its batches are decoded one by one. The readable ones are still returned, and the error
names the unreadable batch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import crc32c
import pyarrow as pa

from tidemill.model.errors import CorruptMessage, UnreadableBatch, UnsupportedCompressionType
from tidemill.records.arrow.buffers import DecompressedRecords
from tidemill.records.arrow.kernels import Kernels, load_kernels
from tidemill.records.arrow.schema import COLUMNS, SCHEMA, schema_of
from tidemill.records.arrow.selection import OFFSET_MAX
from tidemill.records.arrow.table import ATTRIBUTES, BASE_OFFSET, CRC, LAST_DELTA, POSITION, RECORDS, SIZE, Table
from tidemill.records.compression import codec_of
from tidemill.records.header import CODEC_BITS, CRC_START, HEADER_SIZE, Buffer

ROWS = 10_000
"""The number of rows per Arrow batch that Spark processes fastest."""
GROUP_BYTES_MAX = 256 * 1024 * 1024
"""The size of a group. Even with the largest batch added it is far below the 2 GiB that an Arrow array can address."""
OnUnreadable: TypeAlias = Callable[[UnreadableBatch], None]
_UNREADABLE = (CorruptMessage, UnsupportedCompressionType)


def fail(error: UnreadableBatch) -> None:
    """Raise the error, so that the reader stops at an unreadable batch."""
    raise error


class Decoder:
    """Converts one partition's batches to Arrow record batches.

    An Arrow batch has at most `rows` rows, plus those of one more record batch when it reaches `group_bytes`. `room` is
    the memory of a finished decoder. Reusing it costs nothing, while new memory grows step by step. `on_unreadable` is
    called with each unreadable batch. If it returns, the batch is skipped.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        columns: Sequence[str] = COLUMNS,
        rows: int = ROWS,
        group_bytes: int = GROUP_BYTES_MAX,
        verify: bool = True,
        kernels: Kernels | None = None,
        room: DecompressedRecords | None = None,
        on_unreadable: OnUnreadable = fail,
    ) -> None:
        self.schema = schema_of(tuple(columns))
        self._wanted = frozenset(columns)
        self._rows = rows
        self._group_bytes = group_bytes
        self._verify = verify
        self._kernels = load_kernels() if kernels is None else kernels
        self._place = (topic, partition)
        self._on_unreadable = on_unreadable
        self._constants = {"topic": pa.scalar(topic), "partition": pa.scalar(partition, pa.int32())}
        self._repeated: dict[str, pa.Array] = {}
        self._memory = DecompressedRecords() if room is None else room

    def decode(
        self, buffer: Buffer, start: int = 0, end: int = OFFSET_MAX, aborted: Iterable[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records with offsets from `start` to before `end`. A truncated last batch is skipped.

        `aborted` comes from a read_committed fetch. A damaged batch is an UnreadableBatch. If the batch boundaries are
        unknown, CorruptMessage is raised.
        """
        view = memoryview(buffer)
        table = self._kernels.scan(view, start, end, tuple(aborted))
        done = 0
        try:
            for lines, batch in self._decoded(view, table, start, end):
                done += lines
                yield from self._sliced(batch)
        except _UNREADABLE:
            for line in range(done, len(table)):
                yield from self._alone(view, table[line : line + 1], start, end)

    def _decoded(self, view: memoryview, table: Table, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield each group: its number of batches, and their rows."""
        if self._verify:
            _check_crcs(view, table)
        for data, group in self._groups(view, table):
            found = self._kernels.read(data, group, start, end, self._wanted)
            yield len(group), self._assemble(found, len(found["offset"]))

    def _alone(self, view: memoryview, line: Table, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one batch, unless it cannot be read."""
        try:
            decoded = list(self._decoded(view, line, start, end))
        except _UNREADABLE as error:
            base, last_delta = line[0, [BASE_OFFSET, LAST_DELTA]].tolist()
            self._on_unreadable(UnreadableBatch.at(*self._place, base, base + last_delta, error))
            return
        for _, batch in decoded:
            yield from self._sliced(batch)

    def _groups(self, view: memoryview, table: Table) -> Iterator[tuple[memoryview, Table]]:
        """Yield groups of adjacent batches with about the wanted number of rows. A group never mixes compression."""
        first = rows = size = 0
        memory = self._memory
        memory.clear()
        lines = table[:, [POSITION, SIZE, ATTRIBUTES, RECORDS]].tolist()
        for index, (position, batch_size, attributes, count) in enumerate(lines):
            codec = attributes & CODEC_BITS
            full = rows + count > self._rows or max(size, memory.used) >= self._group_bytes
            if index > first and (full or bool(memory) != bool(codec)):
                yield _laid(view, table[first:index], memory)
                first, rows, size = index, 0, 0
                memory.clear()
            if codec:
                memory.add(codec_of(codec), view[position + HEADER_SIZE : position + batch_size])
            rows += count
            size += batch_size
        if len(lines) > first:
            yield _laid(view, table[first:], memory)

    def _assemble(self, found: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        arrays = [self._constant(name, rows) if name in self._constants else found[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _constant(self, name: str, rows: int) -> pa.Array:
        known = self._repeated.get(name)
        if known is None or len(known) < rows:
            known = self._repeated[name] = pa.repeat(self._constants[name], max(rows, self._rows)).cast(
                SCHEMA.field(name).type
            )
        return known[:rows]

    def _sliced(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for first in range(0, batch.num_rows, self._rows):
            yield batch.slice(first, self._rows)


def _check_crcs(view: memoryview, table: Table) -> None:
    for position, size, crc in table[:, [POSITION, SIZE, CRC]].tolist():
        if crc32c.crc32c(view[position + CRC_START : position + size]) != crc:
            raise CorruptMessage(f"the CRC of the record batch at byte {position} does not match")


def _laid(view: memoryview, table: Table, memory: DecompressedRecords) -> tuple[memoryview, Table]:
    """Return the memory and table of these batches: the buffer if they were compressed, else the fetch."""
    return memory.laid(table) if memory else (view, table)
