"""Finding records by their time.

The log names a place at or before the record; from there on batches are looked at by the largest time in their
header, and only one that reaches the wanted time is opened.
"""

from typing import NamedTuple

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.records.read import read_records
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
            found = _first_in(stored, log.start_offset, timestamp)
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
        found = _first_in(stored, log.start_offset, best.timestamp + 1)
        while found != NOT_FOUND:
            best = found
            found = _first_in(stored, log.start_offset, best.timestamp + 1)
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
