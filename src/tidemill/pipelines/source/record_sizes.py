"""Estimates the size of the records of partitions from small samples.

A trigger with a byte limit needs the size for every partition with a backlog, and waits for it. So a partition whose
backlog fits into one sample is fetched once. Several clients sample at the same time. The samples of a trigger have
a common limit.
"""

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from tidemill.client.kafka import EARLIEST, KafkaClient
from tidemill.model.errors import KafkaError, OffsetOutOfRange
from tidemill.pipelines.source.client_pool import ClientPool
from tidemill.pipelines.source.core.offsets import OffsetRange
from tidemill.records.header import iter_headers

SAMPLES_BYTES = 16 * 1024 * 1024
"""The limit for the first samples of all partitions together, if SAMPLE_BYTES_MIN allows it."""
SAMPLE_BYTES_MAX = 256 * 1024
SAMPLE_BYTES_MIN = 16 * 1024
SIZE_MARGIN = 4
"""A range is shortened when the records at its end are larger by this factor than those at its beginning."""
UNKNOWN_RECORD_BYTES = 1024
"""Used for a partition without measurable records, such as one with open transactions only."""


class Measured(NamedTuple):
    """The bytes of a record, and the offset up to which records have about this size. Later ones may be much larger."""

    record_bytes: float
    until: int


class _Sample(NamedTuple):
    record_bytes: float
    next_offset: int


def measure(client: KafkaClient, ranges: Collection[OffsetRange], budget: int, *, committed: bool) -> list[Measured]:
    """Measure the beginning of each range, up to `budget` bytes."""
    sample_bytes = sample_size(len(ranges))
    with ClientPool(client) as pool:
        return pool.each(partial(_measure, budget=budget, sample_bytes=sample_bytes, committed=committed), ranges)


def sample_size(partitions: int) -> int:
    """The bytes of one sample when this many partitions are sampled."""
    return min(SAMPLE_BYTES_MAX, max(SAMPLE_BYTES_MIN, SAMPLES_BYTES // max(1, partitions)))


def _measure(client: KafkaClient, wanted: OffsetRange, *, budget: int, sample_bytes: int, committed: bool) -> Measured:
    sample = partial(_sample, client, wanted, max_bytes=sample_bytes, committed=committed)
    first = sample(wanted.start) or _Sample(UNKNOWN_RECORD_BYTES, wanted.start)
    size = first.record_bytes
    until = min(wanted.end, wanted.start + max(1, int(budget / size)))
    while until > max(first.next_offset, wanted.start + 1):
        last = sample(until - 1)
        largest = size if last is None else last.record_bytes
        if largest <= SIZE_MARGIN * size or largest * (until - wanted.start) <= budget:
            return Measured(max(size, largest), until)
        until = wanted.start + (until - wanted.start) // 2
    return Measured(size, until)


def _sample(
    client: KafkaClient, wanted: OffsetRange, offset: int, *, max_bytes: int, committed: bool
) -> _Sample | None:
    """A sample from this offset, or from the start of the log. None if there is no record to measure."""
    part = wanted.partition
    fetch = partial(client.fetch, part, max_bytes=max_bytes, committed=committed)
    try:
        try:
            piece = fetch(offset)
        except OffsetOutOfRange:  # the task that reads the range reports the loss
            piece = fetch(client.list_offsets({part: EARLIEST}, committed=committed)[part].offset)
        headers = [header for _, header in iter_headers(piece.records, partial_ok=True)]
    except OffsetOutOfRange:
        return None
    except KafkaError as error:
        raise type(error)(f"{part}: {error}") from None
    records = sum(header.last_offset_delta + 1 for header in headers)
    return _Sample(sum(header.size for header in headers) / records, piece.next_offset) if records else None
