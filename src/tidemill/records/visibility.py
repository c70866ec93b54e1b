"""The records of a partition that a reader may see: without markers, and without those of aborted transactions.

A partition is read as whole batches, together with the transactions in them that were aborted. The records of such a
transaction are dropped from its first offset on, up to its abort marker; markers themselves are nobody's records.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop

from tidemill.records.build import MarkerType, marker_of
from tidemill.records.header import BatchHeader, Buffer, iter_headers


def visible_batches(
    chunks: Iterable[Buffer], aborted: Iterable[tuple[int, int]] = ()
) -> Iterator[tuple[BatchHeader, memoryview | None]]:
    """Each batch in order with its bytes, or None where nobody may see its records.

    `aborted` are pairs of a producer's id and the first offset of its transaction.
    """
    beginnings = [(first_offset, producer_id) for producer_id, first_offset in aborted]
    heapify(beginnings)
    dropped: set[int] = set()
    for chunk in chunks:
        view = memoryview(chunk)
        for position, header in iter_headers(view):
            while beginnings and beginnings[0][0] <= header.last_offset:
                dropped.add(heappop(beginnings)[1])
            batch = view[position : position + header.size]
            if header.control:
                if marker_of(batch) is MarkerType.ABORT:
                    dropped.discard(header.producer_id)
                yield header, None
            else:
                yield header, None if header.transactional and header.producer_id in dropped else batch
