"""The batches of a fetch as a table of numbers: one line per batch, so that one kernel call handles many batches.

`START` and `END` are the bounds of the records in the memory that belongs to the table. That is the fetch itself, or
the buffer with the decompressed records.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tidemill.records.arrow.selection import BatchPosition
from tidemill.records.header import HEADER_SIZE, LENGTH_END, MAGIC, BatchHeader

Table: TypeAlias = npt.NDArray[np.int64]

WIDTH = 11
POSITION, SIZE, CRC, ATTRIBUTES, BASE_OFFSET, LAST_DELTA, BASE_TIME, MAX_TIME, RECORDS, START, END = range(WIDTH)


def table_of(places: Iterable[BatchPosition]) -> Table:
    """Return the table of these batches, whose records are in the fetch."""
    lines = [
        (
            position,
            header.size,
            header.crc,
            header.attributes,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.count,
            position + HEADER_SIZE,
            position + header.size,
        )
        for position, header in places
    ]
    return np.array(lines, np.int64).reshape(len(lines), WIDTH)


def header_of(line: Sequence[int]) -> BatchHeader:
    """Return the header of a line, without its producer."""
    return BatchHeader(
        base_offset=line[BASE_OFFSET],
        length=line[SIZE] - LENGTH_END,
        leader_epoch=-1,
        magic=MAGIC,
        crc=line[CRC],
        attributes=line[ATTRIBUTES],
        last_offset_delta=line[LAST_DELTA],
        base_timestamp=line[BASE_TIME],
        max_timestamp=line[MAX_TIME],
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=line[RECORDS],
    )
