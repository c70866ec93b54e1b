"""Selects the records of a partition that a reader may see: no control batches, no aborted transactions.

A partition is read as whole batches, together with the aborted transactions in them. The records of such a transaction
are dropped from its first offset up to its abort marker. Markers are never returned as records.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop

from tidemill.records.build import MarkerType, marker_of
from tidemill.records.header import BatchHeader, Buffer, iter_headers


def visible_batches(
    chunks: Iterable[Buffer], aborted: Iterable[tuple[int, int]] = ()
) -> Iterator[tuple[BatchHeader, memoryview | None]]:
    """Yield each batch in order with its bytes, or None where the reader must not see its records.

    `aborted` has pairs of a producer's id and the first offset of its transaction.
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
