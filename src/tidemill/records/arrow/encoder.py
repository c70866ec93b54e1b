"""Arrow record batches to record batches, ready to be sent.

A row's largest possible size is known from the columns alone, so how many rows go into a batch is decided before
anything is written. A row that is larger than a batch may be goes alone: the broker says whether it takes it.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.records.arrow.columns import Columns
from tidemill.records.arrow.draft import Draft, Encoded, Writer
from tidemill.records.arrow.partitioners import DEFAULT_PARTITIONER, partitions_of
from tidemill.records.arrow.twins import Kernels, kernels
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, SEQUENCE_MAX

BATCH_BYTES = 1024 * 1024 - 12 * 1024
"""Bytes of a batch before compression: just below the largest that Kafka's defaults take."""


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

    def fill(
        self, rows: npt.NDArray[np.int64], draft: Draft | None = None, *, batch_bytes: int = BATCH_BYTES
    ) -> Iterator[Draft]:
        """Drafts with these rows in their order; all but the last one are full. Rows go behind those of `draft`."""
        sizes = self._sizes[rows]
        ends = np.cumsum(sizes)
        start = 0
        while start < len(rows):
            before = int(ends[start - 1]) if start else 0
            if draft is None:
                draft = Draft(max(batch_bytes - HEADER_SIZE, int(sizes[start])))
            end = int(np.searchsorted(ends, before + draft.free, side="right"))
            if end > start:
                self._write(rows[start:end], draft)
                start = end
            if start < len(rows):
                yield draft
                draft = None
        if draft is not None:
            yield draft

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
        for draft in self.fill(chosen, batch_bytes=batch_bytes):
            yield draft.sealed(codec, writer)
            if writer.base_sequence >= 0:
                writer = writer._replace(base_sequence=(writer.base_sequence + draft.count) & SEQUENCE_MAX)

    def _write(self, rows: npt.NDArray[np.int64], draft: Draft) -> None:
        times = self._columns.timestamps_ms[rows]
        latest = int(times.max())
        if not draft.count:
            draft.base_time, draft.max_time = int(times[0]), latest
        draft.end = self._twin.write(self._prepared, rows, draft)
        draft.count += len(rows)
        draft.max_time = max(draft.max_time, latest)


def rows_by_partition(partitions: npt.NDArray[np.int64]) -> dict[int, npt.NDArray[np.int64]]:
    """The rows of each partition, in their order."""
    if not len(partitions):
        return {}
    counts = np.bincount(partitions)
    found = np.flatnonzero(counts)
    # Numbers of 16 bits are sorted in a pass or two, larger ones by comparing.
    order = np.argsort(partitions.astype(np.min_scalar_type(len(counts))), kind="stable")
    return dict(zip(found.tolist(), np.split(order, np.cumsum(counts[found])[:-1]), strict=True))
