"""Finds records by timestamp.

The log's index returns an offset at or before the record. From there the search compares the largest timestamp in each
batch header, and decodes only a batch that reaches the wanted time. Large or compressed batches are decoded on a
thread. A producer can put millions of records into one batch and write any value into its header.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.records.read import read_records
from tidemill.streams.admission import opened_in_place, run_aside
from tidemill.streams.interface import RewritableLog, StoredBatch

_UNREADABLE = (CorruptMessage, UnsupportedCompressionType)


class FoundOffset(NamedTuple):
    """A record found by timestamp. All fields are -1 when there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


NOT_FOUND = FoundOffset(-1, -1, -1)


async def first_at(log: RewritableLog, end_offset: int, timestamp: int) -> FoundOffset:
    """Return the first record before `end_offset` with a timestamp of at least `timestamp`."""
    async for stored in log.scan(await log.before_time(timestamp)):
        if stored.header.base_offset >= end_offset:
            break
        if stored.header.max_timestamp >= timestamp:
            found = await _opened(stored, partial(_first_in, stored, log.start_offset, timestamp))
            if found != NOT_FOUND:
                return found
    return NOT_FOUND


async def first_with_largest(log: RewritableLog, end_offset: int) -> FoundOffset:
    """Return the first record with the largest timestamp."""
    largest = max(facts.largest_timestamp for facts in log.segments())
    if largest < 0:
        return NOT_FOUND
    found = await first_at(log, end_offset, largest)
    return found if found != NOT_FOUND else await _largest_by_scan(log, end_offset)


async def _largest_by_scan(log: RewritableLog, end_offset: int) -> FoundOffset:
    """Scan for the largest timestamp when the one that segments know is before the log's start."""
    best = NOT_FOUND
    async for stored in log.scan(log.start_offset):
        if stored.header.base_offset >= end_offset:
            break
        if stored.header.max_timestamp > best.timestamp:
            found = await _opened(stored, partial(_largest_in, stored, log.start_offset))
            best = found if found.timestamp > best.timestamp else best
    return best


async def _opened(stored: StoredBatch, look: Callable[[], FoundOffset]) -> FoundOffset:
    return look() if opened_in_place(stored.header) else await run_aside(look)


def _largest_in(stored: StoredBatch, start_offset: int) -> FoundOffset:
    """Return the first record of a batch with the largest timestamp, in one pass."""
    header = stored.header
    if header.log_append_time:
        return FoundOffset(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)
    best = NOT_FOUND
    try:
        for record in read_records(stored.batch):
            if record.timestamp > best.timestamp and record.offset >= start_offset:
                best = FoundOffset(record.offset, record.timestamp, header.leader_epoch)
    except _UNREADABLE:
        return FoundOffset(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)
    return best


def _first_in(stored: StoredBatch, start_offset: int, timestamp: int) -> FoundOffset:
    header = stored.header
    if header.max_timestamp < timestamp:
        return NOT_FOUND
    if header.log_append_time:
        return FoundOffset(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)
    try:
        for record in read_records(stored.batch):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return FoundOffset(record.offset, record.timestamp, header.leader_epoch)
    except _UNREADABLE:
        # The batch header claims that it reaches the time. A reader that starts there misses nothing.
        return FoundOffset(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)
    return NOT_FOUND
