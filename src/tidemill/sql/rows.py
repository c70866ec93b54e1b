"""The rows that the engine reads: Arrow streams that are built while they are read, one block at a time.

The engine pulls rows in its own thread. They come from the broker's event loop (`call`), so that partitions are used
only there. The loop keeps running while a block is decoded. A stream can be opened more than once and holds one block,
however large the topic is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import structlog

from tidemill.model.errors import UnreadableBatch
from tidemill.records.arrow import Decoder, Kernels, OnUnreadable, load_kernels
from tidemill.records.arrow.selection import OFFSET_MAX
from tidemill.records.header import iter_headers
from tidemill.sql.core.errors import SqlRefused
from tidemill.streams.partition import Partition, ReadResult

READ_BYTES = 4 * 1024 * 1024
"""Bytes to read from a partition at once."""
BLOCK_ROWS = 65_536
SMALL_RECORDS_MAX = 20_000
"""Below this count, the compiled kernels are not worth loading, which takes a second."""
ANSWER_S = 60.0
SKIP_HINT = "skip such batches with: tidemill sql --skip-unreadable"

T = TypeVar("T")
log = structlog.get_logger(__name__)
_DECODED = {"timestamp_type": "timestampType"}


class ArrowRows(Protocol):
    """Rows in the form that the engine reads."""

    failed: Exception | None
    """Why the rows could not be read to the end."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Open a new stream over all rows."""


class Loop:
    """Calls into the broker's event loop from another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._pending: set[Future[Any]] = set()

    def call(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Run a call in the loop and return its result; raises when the broker is stopping."""
        if self._closed:
            raise SqlRefused("the broker is stopping")

        async def run() -> T:
            return await ask()

        pending = asyncio.run_coroutine_threadsafe(run(), self._loop)
        self._pending.add(pending)
        try:
            return pending.result(ANSWER_S)
        finally:
            self._pending.discard(pending)

    def close(self) -> None:
        """Reject new calls, and cancel those that wait."""
        self._closed = True
        for each in list(self._pending):
            each.cancel()


class TableRows:
    """A table that is already complete."""

    def __init__(self, table: pa.Table) -> None:
        self.failed: Exception | None = None
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.to_reader(BLOCK_ROWS).__arrow_c_stream__(requested_schema)


class StreamedRows:
    """Rows that a function builds while they are read."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterable[pa.RecordBatch]]) -> None:
        self.failed: Exception | None = None
        self._schema = schema
        self._batches = batches

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches_or_failure())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches_or_failure(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches. An error is kept, because the engine would report it in a text of its own."""
        try:
            yield from self._batches()
        except Exception as error:
            self.failed = error
            raise


class Range(NamedTuple):
    """The largest part of each partition that is needed."""

    since_ms: int = 0
    first_offset: int = 0
    end_offset: int | None = None
    skip_unreadable: bool = False

    def end(self, end: int) -> int:
        """Return the end offset to read to, for a partition that ends at `end`."""
        return end if self.end_offset is None else min(end, self.end_offset)


class PartitionRows:
    """The committed records of some partitions that this broker leads; only the named columns are built."""

    def __init__(self, loop: Loop, partitions: Sequence[Partition], columns: Sequence[str], wanted: Range) -> None:
        self._loop = loop
        self._partitions = partitions
        self._columns = list(columns)
        self._wanted = wanted
        self.rows = StreamedRows(schema_of(self._columns), self._all)

    def _all(self) -> Iterator[pa.RecordBatch]:
        kernels = kernels_for(sum(each.high_watermark - each.log_start_offset for each in self._partitions))
        for partition in self._partitions:
            yield from self._of(partition, kernels)

    def _of(self, partition: Partition, kernels: Kernels) -> Iterator[pa.RecordBatch]:
        names = decoded_names(self._columns)
        decoder = Decoder(
            partition.topic,
            partition.index,
            columns=names,
            rows=BLOCK_ROWS,
            verify=False,
            kernels=kernels,
            on_unreadable=on_unreadable(self._wanted),
        )
        end = self._wanted.end(partition.last_stable_offset)
        offset = self._loop.call(lambda: self._first(partition))
        while offset < end:
            found = self._loop.call(partial(_read, partition, offset))
            if not found.records:
                return
            aborted = [(each.producer_id, each.first_offset) for each in found.aborted]
            pieces = found.records
            buffer = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            for batch in decoder.decode(buffer, offset, min(end, OFFSET_MAX), aborted):
                yield batch.rename_columns(self._columns)
            offset = max(header.next_offset for _, header in iter_headers(buffer))

    async def _first(self, partition: Partition) -> int:
        start = max(partition.log_start_offset, self._wanted.first_offset)
        if self._wanted.since_ms <= 0:
            return start
        found = await partition.reader.offset_at(self._wanted.since_ms)
        return partition.log_end_offset if found.offset < 0 else max(start, found.offset)


def decoded_names(columns: Sequence[str]) -> list[str]:
    """Return the decoder's names of these columns."""
    return [_DECODED.get(each, each) for each in columns]


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of batches with these columns."""
    decoded = Decoder("", 0, columns=decoded_names(columns), kernels=load_kernels("python")).schema
    return pa.schema([(name, field.type) for name, field in zip(columns, decoded, strict=True)])


def kernels_for(records: int) -> Kernels:
    """Return the kernels for this number of records."""
    return load_kernels("python" if records <= SMALL_RECORDS_MAX else None)


def on_unreadable(wanted: Range) -> OnUnreadable:
    """Return the handler of an unreadable batch: end with an error that names it, or log it and continue."""
    return _skip if wanted.skip_unreadable else _stop


def _stop(error: UnreadableBatch) -> None:
    raise UnreadableBatch(f"{error}; {SKIP_HINT}")


def _skip(error: UnreadableBatch) -> None:
    log.warning("batch_skipped", reason=str(error))


async def _read(partition: Partition, offset: int) -> ReadResult:
    """Read from the offset on, or from the start if retention has deleted that offset."""
    return await partition.reader.read(max(offset, partition.log_start_offset), READ_BYTES, committed=True)
