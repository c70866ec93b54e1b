"""Reads a range of offsets piece by piece, with one request sent ahead.

When a piece arrives, the request for the next one is sent before the piece is returned. The broker reads and the
network transfers while the caller decodes, and at most one piece waits. If the request ahead fails (moved leader, lost
connection), `fetch` repeats it with its retries.

Brokers return what they have, even beyond the end of the range. So a request asks for about as many bytes as the rest
of the range has, estimated from the pieces before it.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidemill.client.kafka.connection import BlockingConnection
from tidemill.client.kafka.errors import ClientError
from tidemill.client.kafka.fetch import FetchedBatches, FetchPosition, fetch_request, fetched
from tidemill.client.kafka.routing import RequestRouter
from tidemill.model.errors import KafkaError, OffsetOutOfRange
from tidemill.model.topics import TopicPartition

Fetch = Callable[..., FetchedBatches]
FETCH_BYTES_MIN = 64 * 1024
RECORD_BYTES_GUESS = 1024
"""The estimated size of a record before the first piece."""
MARGIN = 1.1


class _Ahead(NamedTuple):
    connection: BlockingConnection
    number: int
    wanted: FetchPosition


def read_range(
    router: RequestRouter,
    fetch: Fetch,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    max_bytes: int,
    committed: bool,
) -> Iterator[FetchedBatches]:
    """The pieces that hold the offsets from `start` to before `end`."""
    offset = start
    ahead: _Ahead | None = None
    taken_bytes = 0
    idle_since = time.monotonic()
    try:
        while offset < end:
            piece = _take(ahead) if ahead else None
            ahead = None
            if piece is None:
                limit = bytes_for(end - offset, offset - start, taken_bytes, max_bytes)
                piece = fetch(partition, offset, max_bytes=limit, committed=committed)
            if piece.next_offset == offset:
                if _nothing_left(piece, end, committed=committed):
                    return
                _check_patience(router, partition, end, piece, idle_since)
                continue
            offset = piece.next_offset
            taken_bytes += len(piece.records)
            idle_since = time.monotonic()
            if offset < end:
                limit = bytes_for(end - offset, offset - start, taken_bytes, max_bytes)
                ahead = _send(router, partition, FetchPosition(offset, limit, committed))
            yield piece
    finally:
        if ahead is not None:
            ahead.connection.abandon(ahead.number)


def bytes_for(left: int, taken: int, taken_bytes: int, max_bytes: int) -> int:
    """How many bytes to request for `left` offsets, when `taken` offsets had `taken_bytes`."""
    each = taken_bytes / taken if taken else RECORD_BYTES_GUESS
    return int(min(max_bytes, FETCH_BYTES_MIN + left * each * MARGIN))


def _send(router: RequestRouter, partition: TopicPartition, wanted: FetchPosition) -> _Ahead | None:
    try:
        connection = router.leader(partition)
        return _Ahead(connection, connection.ask(fetch_request(partition, wanted)), wanted)
    except (KafkaError, ClientError):
        return None


def _take(ahead: _Ahead) -> FetchedBatches | None:
    try:
        piece = fetched(ahead.connection.answer(ahead.number, extra_s=ahead.wanted.max_wait_ms / 1000), ahead.wanted)
    except ClientError:
        return None
    return piece if isinstance(piece, FetchedBatches) else None


def _nothing_left(piece: FetchedBatches, end: int, *, committed: bool) -> bool:
    # Compaction may have removed the last records of a range, while the log continues after them.
    return (piece.last_stable_offset if committed else piece.high_watermark) >= end


def _check_patience(
    router: RequestRouter, partition: TopicPartition, end: int, piece: FetchedBatches, idle_since: float
) -> None:
    if (time.monotonic() - idle_since) * 1000 >= router.options.api_timeout_ms:
        raise OffsetOutOfRange(f"{partition} ends at offset {piece.high_watermark}, before the requested {end}")
