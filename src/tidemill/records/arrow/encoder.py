"""Converts Arrow record batches to record batches that are ready to send.

Each batch takes as many rows as fit. A row that is larger than a batch is sent alone, and the broker accepts or rejects
it.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.records.arrow.batch_builder import PLAIN, BatchProducer, Draft, Encoded
from tidemill.records.arrow.columns import Columns
from tidemill.records.arrow.kernels import Kernels, load_kernels
from tidemill.records.arrow.partitioners import DEFAULT_PARTITIONER, partitions_of
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, SEQUENCE_MAX
from tidemill.records.incremental_compression import Compression

BATCH_BYTES = 1024 * 1024 - 12 * 1024
"""The size of a batch: just below the largest that Kafka's defaults accept."""


class Encoder:
    """Converts the rows of one Arrow record batch."""

    def __init__(self, rows: pa.RecordBatch, *, now_ms: int, kernels: Kernels | None = None) -> None:
        self._kernels = load_kernels() if kernels is None else kernels
        self._columns = Columns.of(rows, now_ms)
        self._prepared = self._kernels.prepare(self._columns)

    def partitions(self, count: int, unkeyed: int, partitioner: str = DEFAULT_PARTITIONER) -> npt.NDArray[np.int64]:
        """Return the partition of each row by its key."""
        return partitions_of(self._columns, count, unkeyed, self._kernels, partitioner)

    def dealt(self, partitions: npt.NDArray[np.int64], count: int) -> dict[int, npt.NDArray[np.int64]]:
        """Return the rows of each of `count` partitions, in order. Partitions without rows are left out."""
        return self._kernels.dealt(partitions, count)

    def fill(
        self,
        rows: npt.NDArray[np.int64],
        draft: Draft | None = None,
        *,
        batch_bytes: int = BATCH_BYTES,
        compression: Compression = PLAIN,
    ) -> Iterator[Draft]:
        """Return drafts with these rows in order. All but the last are full. The first rows are added to `draft`."""
        draft = Draft(batch_bytes, compression) if draft is None else draft
        start = self._write(rows, draft)
        while start < len(rows):
            if not draft.count:
                draft = Draft(int(self._columns.sizes()[rows[start]]) + HEADER_SIZE, compression)
                start += self._write(rows[start : start + 1], draft)
                draft.close()
            elif not draft.grow():
                yield draft
                draft = Draft(batch_bytes, compression)
            start += self._write(rows[start:], draft)
        if draft.count:
            yield draft

    def batches(
        self,
        rows: npt.NDArray[np.int64] | None = None,
        *,
        codec: Codec = Codec.NONE,
        batch_bytes: int = BATCH_BYTES,
        writer: BatchProducer = BatchProducer(),  # noqa: B008 - it is immutable
    ) -> Iterator[Encoded]:
        """Return batches of these rows (None: all) in order."""
        chosen = np.arange(len(self._columns.key), dtype=np.int64) if rows is None else rows
        for draft in self.fill(chosen, batch_bytes=batch_bytes, compression=Compression(codec)):
            yield draft.sealed(writer)
            if writer.base_sequence >= 0:
                writer = writer._replace(base_sequence=(writer.base_sequence + draft.count) & SEQUENCE_MAX)

    def _write(self, rows: npt.NDArray[np.int64], draft: Draft) -> int:
        if not len(rows):
            return 0
        if not draft.count:
            draft.base_time = draft.max_time = int(self._columns.timestamps_ms[rows[0]])
        count, draft.end, draft.max_time = self._kernels.write(self._prepared, rows, draft)
        draft.count += count
        return count
