"""A batch that is being written: room that records fill, the rows of several Arrow batches one after the other.

So the size of a batch does not depend on how large the Arrow batches are, or on how many partitions share their rows.
"""

from typing import NamedTuple

import numpy as np

from tidemill.records.build import head, wrap
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, LENGTH_MIN, MAGIC, TRANSACTIONAL_BIT, BatchHeader


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


class Draft:
    """Records of one partition, with room for their header before them."""

    __slots__ = ("base_time", "count", "end", "max_time", "room")

    def __init__(self, capacity: int) -> None:
        self.room = np.empty(HEADER_SIZE + capacity, np.uint8)
        self.end = HEADER_SIZE
        self.count = 0
        self.base_time = self.max_time = 0

    @property
    def free(self) -> int:
        """Bytes of records that it still takes."""
        return len(self.room) - self.end

    def sealed(self, codec: Codec, writer: Writer) -> Encoded:
        """The batch; without compression it is where its records are, so the draft must not be used any more."""
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
        written = self.room[: self.end].data
        if codec is not Codec.NONE:
            return Encoded(wrap(header, written[HEADER_SIZE:]), self.count)
        head(header, written)
        return Encoded(written, self.count)
