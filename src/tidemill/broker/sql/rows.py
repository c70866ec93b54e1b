"""Rows on their way into the engine: Arrow streams that are made while they are read, a block at a time.

The engine pulls from a thread of its own. What it pulls comes from the broker's event loop (`call`), so that
partitions are only ever touched there; the loop goes on while a block is decoded. A stream can be opened more than once
and holds one block, whatever a topic has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tidemill.broker.sql.errors import SqlRefused
from tidemill.records.arrow import Decoder, Kernels, kernels
from tidemill.records.arrow.selection import OFFSET_MAX
from tidemill.records.header import iter_headers
from tidemill.streams.partition import Partition, Slice

READ_BYTES = 4 * 1024 * 1024
"""What is read of a partition at once."""
BLOCK_ROWS = 65_536
SMALL_RECORDS_MAX = 20_000
"""Up to here the compiled kernels, which take a second to load, are not worth it."""
ANSWER_S = 60.0

T = TypeVar("T")
_DECODED = {"timestamp_type": "timestampType"}
_TYPES = {"timestamp_type": pa.int32(), "timestamp": pa.timestamp("us", tz="UTC")}


class ArrowRows(Protocol):
    """Rows as the engine takes them."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """A new stream over all of them."""


class Loop:
    """The broker's event loop, asked from another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def call(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the loop makes of it; an error when the broker stops."""
        if self._closed:
            raise SqlRefused("the broker stops")

        async def run() -> T:
            return await ask()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(ANSWER_S)

    def close(self) -> None:
        """Answer nobody any more."""
        self._closed = True


class TableRows:
    """A table that is there already."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.to_reader(BLOCK_ROWS).__arrow_c_stream__(requested_schema)


class StreamedRows:
    """Rows that are made by a function while they are read."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterable[pa.RecordBatch]]) -> None:
        self._schema = schema
        self._batches = batches

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)


class PartitionRows:
    """The committed records of some partitions, as they are now; only the named columns are made."""

    def __init__(self, loop: Loop, partitions: Sequence[Partition], columns: Sequence[str], since_ms: int) -> None:
        self._loop = loop
        self._partitions = partitions
        self._columns = tuple(columns) or ("offset",)
        self._since_ms = since_ms
        self._decoded = [_DECODED.get(each, each) for each in self._columns]
        schema = Decoder("", 0, columns=self._decoded, twin=kernels("python")).schema
        self.rows = StreamedRows(
            pa.schema([(n, f.type) for n, f in zip(self._columns, schema, strict=True)]), self._all
        )

    def _all(self) -> Iterator[pa.RecordBatch]:
        records = sum(each.high_watermark - each.log_start_offset for each in self._partitions)
        twin = kernels("python" if records <= SMALL_RECORDS_MAX else None)
        for partition in self._partitions:
            yield from self._of(partition, twin)

    def _of(self, partition: Partition, twin: Kernels) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(
            partition.topic, partition.index, columns=self._decoded, rows=BLOCK_ROWS, verify=False, twin=twin
        )
        end = partition.last_stable_offset
        offset = self._loop.call(lambda: self._first(partition))
        while offset < end:
            found = self._loop.call(lambda at=offset: _read(partition, at))  # type: ignore[misc]
            if not found.records:
                return
            aborted = [(each.producer_id, each.first_offset) for each in found.aborted]
            pieces = found.records
            buffer = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            for batch in decoder.decode(buffer, offset, min(end, OFFSET_MAX), aborted):
                yield batch.rename_columns(list(self._columns))
            offset = max(header.next_offset for _, header in iter_headers(buffer))

    async def _first(self, partition: Partition) -> int:
        start = partition.log_start_offset
        if self._since_ms <= 0:
            return start
        found = await partition.offset_at(self._since_ms)
        return partition.log_end_offset if found.offset < 0 else max(start, found.offset)


async def _read(partition: Partition, offset: int) -> Slice:
    """From the offset on, or from the start where retention has overtaken the reader."""
    return await partition.read(max(offset, partition.log_start_offset), READ_BYTES, committed=True)
