"""Arrow record batches to record batches, ready to be sent.

A row's largest possible size is known from the columns alone, so where one batch ends and the next begins is decided
before anything is written. A row that is larger than a batch may be goes alone: the broker says whether it takes it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.records.arrow.columns import Columns
from tidemill.records.arrow.partitioners import DEFAULT_PARTITIONER, partitions_of
from tidemill.records.arrow.twins import Kernels, kernels
from tidemill.records.build import head, wrap
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, LENGTH_MIN, MAGIC, SEQUENCE_MAX, TRANSACTIONAL_BIT, BatchHeader

BATCH_BYTES = 1024 * 1024 - 12 * 1024
"""Bytes of a batch before compression: just below the largest that Kafka's defaults take."""


class Writer(NamedTuple):
    """Whose batches they are: an idempotent or transactional producer, or nobody."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


class Encoded(NamedTuple):
    """A sealed batch and how many records it holds."""

    batch: bytearray | memoryview
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here


class Encoder:
    """The rows of one Arrow record batch on their way into batches."""

    def __init__(self, rows: pa.RecordBatch, *, now_ms: int, twin: Kernels | None = None) -> None:
        self._twin = kernels() if twin is None else twin
        self._columns = Columns.of(rows, now_ms)
        self._sizes = self._columns.sizes()
        self._prepared = self._twin.prepare(self._columns)

    def partitions(self, count: int, unkeyed: int, partitioner: str = DEFAULT_PARTITIONER) -> npt.NDArray[np.int64]:
        """The partition of each row by its key."""
        return partitions_of(self._columns.key, count, unkeyed, self._twin, partitioner)

    def batches(
        self,
        rows: npt.NDArray[np.int64] | None = None,
        *,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        writer: Writer = Writer(),  # noqa: B008 - it cannot be changed
    ) -> Iterator[Encoded]:
        """Batches of these rows (None: all) in their order."""
        chosen = np.arange(len(self._sizes), dtype=np.int64) if rows is None else rows
        sizes = self._sizes[chosen]
        sequence = writer.base_sequence
        for start, end in _cuts(sizes, batch_bytes - HEADER_SIZE):
            part = chosen[start:end]
            written = self._twin.write(self._prepared, part, int(sizes[start:end].sum()))
            header = self._header(part, codec, writer._replace(base_sequence=sequence))
            yield Encoded(_sealed(header, written), end - start)
            if sequence >= 0:
                sequence = (sequence + end - start) & SEQUENCE_MAX

    def _header(self, rows: npt.NDArray[np.int64], codec: Codec, writer: Writer) -> BatchHeader:
        times = self._columns.timestamps_ms[rows]
        return BatchHeader(
            base_offset=0,
            length=LENGTH_MIN,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=codec.value | (TRANSACTIONAL_BIT if writer.transactional else 0),
            last_offset_delta=len(rows) - 1,
            base_timestamp=int(times[0]),
            max_timestamp=int(times.max()),
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            base_sequence=writer.base_sequence,
            count=len(rows),
        )


def rows_by_partition(partitions: npt.NDArray[np.int64]) -> dict[int, npt.NDArray[np.int64]]:
    """The rows of each partition, in their order."""
    if not len(partitions):
        return {}
    counts = np.bincount(partitions)
    found = np.flatnonzero(counts)
    # Numbers of 16 bits are sorted in a pass or two, larger ones by comparing.
    order = np.argsort(partitions.astype(np.min_scalar_type(len(counts))), kind="stable")
    return dict(zip(found.tolist(), np.split(order, np.cumsum(counts[found])[:-1]), strict=True))


def _sealed(header: BatchHeader, written: bytearray | memoryview) -> bytearray | memoryview:
    """The batch of records that have room for a header before them; without compression it is where they are."""
    if header.codec:
        return wrap(header, memoryview(written)[HEADER_SIZE:])
    head(header, written)
    return written


def _cuts(sizes: npt.NDArray[np.int64], limit_bytes: int) -> Iterator[tuple[int, int]]:
    """Runs of rows that fit into the limit together; a row that does not fit is a run of its own."""
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        end = max(start + 1, int(np.searchsorted(ends, before + limit_bytes, side="right")))
        yield start, end
        start, before = end, int(ends[end - 1])
