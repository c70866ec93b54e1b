"""Which batches of a fetch a reader sees: none of the broker's markers, nothing aborted, nothing outside of the range.

A fetch for committed records comes with the aborted transactions that reach into it: (producer id, first offset). From
that offset on, the producer's transactional batches are aborted, until its marker; with the marker the transaction is
over, and a later one of the same producer has an entry of its own.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage
from tidemill.records.header import BatchHeader, Buffer, iter_headers

OFFSET_MAX = 2**63 - 1


class Aborted:
    """The aborted transactions of one fetch, as its batches go by."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self._open: set[int] = set()

    def covers(self, header: BatchHeader) -> bool:
        """Whether this transactional batch, which follows the one asked before, is aborted."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])
        if header.control:
            self._open.discard(header.producer_id)
            return False
        return header.producer_id in self._open


class BatchPosition(NamedTuple):
    """A batch, and where in the buffer it starts."""

    position: int
    header: BatchHeader


def select(buffer: Buffer, start: int, end: int, aborted: Iterable[tuple[int, int]] = ()) -> Iterator[BatchPosition]:
    """The batches that hold offsets from `start` to before `end`, in order; a cut last batch is left out."""
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
