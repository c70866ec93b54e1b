"""Selects the batches of a fetch that a reader may see: no control batches, nothing aborted, nothing out of range.

A read_committed fetch lists the aborted transactions that overlap with it: (producer id, first offset). From that
offset on, the producer's transactional batches are aborted, until its marker. The marker ends the transaction, and a
later transaction of the same producer has its own entry.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage
from tidemill.records.header import BatchHeader, Buffer, iter_headers

OFFSET_MAX = 2**63 - 1


class Aborted:
    """Tracks the aborted transactions of one fetch while its batches are read in order."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self._open: set[int] = set()

    def covers(self, header: BatchHeader) -> bool:
        """Whether this transactional batch is aborted. Batches must be passed in order."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])
        if header.control:
            self._open.discard(header.producer_id)
            return False
        return header.producer_id in self._open


class BatchPosition(NamedTuple):
    """A batch, and its position in the buffer."""

    position: int
    header: BatchHeader


def select(buffer: Buffer, start: int, end: int, aborted: Iterable[tuple[int, int]] = ()) -> Iterator[BatchPosition]:
    """Yield the batches with offsets from `start` to before `end`, in order. A truncated last batch is skipped."""
    filtered = Aborted(aborted)
    for position, header in iter_headers(buffer, partial_ok=True):
        base, last = header.base_offset, header.last_offset
        if base < 0 or last > OFFSET_MAX:
            raise CorruptMessage(f"a record batch has the impossible offset {base}")
        if base >= end:
            return
        hidden = header.transactional and filtered.covers(header)
        if not (hidden or header.control or last < start or header.count == 0):
            yield BatchPosition(position, header)
