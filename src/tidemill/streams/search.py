"""Finding records by their time.

The log names a place at or before the record; from there on batches are looked at by the largest time in their
header, and only one that reaches the wanted time is opened; a large or compressed one in a thread, because a producer
can make it hold millions of records, and say in its header what it likes.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.records.read import read_records
from tidemill.streams.admission import opened_in_place, run_aside
from tidemill.streams.interface import StoredBatch, StreamLog

_UNREADABLE = (CorruptMessage, UnsupportedCompressionType)


class FoundOffset(NamedTuple):
    """A record found by time; all -1 when there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


NOT_FOUND = FoundOffset(-1, -1, -1)


async def first_at(log: StreamLog, end_offset: int, timestamp: int) -> FoundOffset:
    """The first record before `end_offset` whose time is `timestamp` or later."""
    async for stored in log.scan(await log.before_time(timestamp)):
        if stored.header.base_offset >= end_offset:
            break
        if stored.header.max_timestamp >= timestamp:
            found = await _opened(stored, partial(_first_in, stored, log.start_offset, timestamp))
            if found != NOT_FOUND:
                return found
    return NOT_FOUND


async def first_with_largest(log: StreamLog, end_offset: int) -> FoundOffset:
    """The first record with the largest time of all."""
    largest = max(facts.largest_timestamp for facts in log.segments())
    if largest < 0:
        return NOT_FOUND
    found = await first_at(log, end_offset, largest)
    return found if found != NOT_FOUND else await _largest_by_scan(log, end_offset)


async def _largest_by_scan(log: StreamLog, end_offset: int) -> FoundOffset:
    """The same when the largest time that segments know of lies before the log's start."""
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
    """The first record of a batch with the largest time, in one pass."""
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
        # Its header says that it reaches the time; a reader that begins there misses nothing.
        return FoundOffset(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)
    return NOT_FOUND
