"""Builds a record batch in a buffer that takes the rows of several Arrow batches.

So the size of a batch does not depend on the size of the Arrow batches, or on how many partitions share their rows.
"""

from typing import NamedTuple

import numpy as np

from tidemill.records.build import head, wrap
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, LENGTH_MIN, MAGIC, TRANSACTIONAL_BIT, BatchHeader
from tidemill.records.incremental_compression import Compression, Pack

UNPACKED_BYTES_MAX = 4 * 1024 * 1024
"""The size of a batch's records before compression. Larger batches cost slightly less, but readers hold all of it."""
PIECES = 8
"""A batch is full when less than this fraction of it is left, because smaller pieces cost more than they save."""
PLAIN = Compression()


class BatchProducer(NamedTuple):
    """The producer of a batch: idempotent, transactional, or none."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


class Encoded(NamedTuple):
    """A sealed batch and its number of records."""

    batch: bytearray | memoryview
    count: int  # type: ignore[assignment]  # hides tuple.count, which has no use here


class Draft:
    """The records of one partition in a buffer, with space for their header in front.

    With compression, the buffer holds a piece of the batch. When it is full, it is compressed and reused. A piece is
    never larger than the rest of the batch, so the batch fits even if compression saves nothing.
    """

    __slots__ = (
        "_batch_bytes",
        "_compression",
        "_pack",
        "_packed",
        "_unpacked_bytes",
        "base_time",
        "buffer",
        "count",
        "end",
        "max_time",
        "stop",
    )

    def __init__(self, batch_bytes: int, compression: Compression = PLAIN) -> None:
        self.buffer = np.empty(max(batch_bytes, HEADER_SIZE), np.uint8)
        self.end = HEADER_SIZE
        self.count = 0
        self.base_time = self.max_time = 0
        self._compression = compression
        self._batch_bytes = batch_bytes
        self.stop = len(self.buffer)
        """The current end of the usable buffer."""
        self._packed = bytearray(HEADER_SIZE)
        self._pack: Pack | None = None
        self._unpacked_bytes = 0

    def grow(self) -> bool:
        """Free buffer space by compressing its contents. Return False when the batch is full."""
        if self._compression.codec is Codec.NONE or self.end == HEADER_SIZE:
            return False
        self._squeeze()
        longest = max(UNPACKED_BYTES_MAX, self._batch_bytes)
        left = min(self._batch_bytes - len(self._packed), longest - self._unpacked_bytes)
        self.stop = HEADER_SIZE + max(left, 0)
        return left > self._batch_bytes // PIECES

    def close(self) -> None:
        """Accept no more records, because the batch is already larger than it should be."""
        self._batch_bytes = self.stop = 0

    def sealed(self, writer: BatchProducer) -> Encoded:
        """Return the batch. Without compression it shares the draft's memory, so the draft must not be used again."""
        codec, level = self._compression
        header = BatchHeader(
            base_offset=0,
            length=LENGTH_MIN,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=codec.value | (TRANSACTIONAL_BIT if writer.transactional else 0),
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_time,
            max_timestamp=self.max_time,
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            base_sequence=writer.base_sequence,
            count=self.count,
        )
        if self._pack is not None:
            self._squeeze()
            self._pack.end()
            head(header, self._packed)
            return Encoded(self._packed, self.count)
        written = self.buffer[: self.end].data
        if codec is not Codec.NONE:
            return Encoded(wrap(header, written[HEADER_SIZE:], level), self.count)
        head(header, written)
        return Encoded(written, self.count)

    def _squeeze(self) -> None:
        if self._pack is None:
            self._pack = self._compression.into(self._packed)
        self._pack.add(self.buffer[HEADER_SIZE : self.end].data)
        self._unpacked_bytes += self.end - HEADER_SIZE
        self.end = HEADER_SIZE
