"""Finds the first record at or after an offset that a read_committed consumer can read.

Offsets without such a record are skipped: transaction markers, aborted transactions, compacted records, and records
that wait for their time. So a group that has read everything has nothing unread, wherever its committed offset is.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.records.header import Buffer
from tidemill.records.read import read_records
from tidemill.records.visibility import visible_batches


class UnreadPosition(NamedTuple):
    """Where a reader continues. `timestamp_ms` is the time of the record there; None: there may be no record."""

    offset: int
    timestamp_ms: int | None = None

    def records_to(self, end_offset: int) -> int:
        """How many offsets are left up to the end."""
        return max(0, end_offset - self.offset)

    def age_s(self, now_ms: int) -> float | None:
        """How old the record is, if there is one and it has a time. Kafka writes a negative number for no time."""
        if self.timestamp_ms is None or self.timestamp_ms < 0:
            return None
        return max(0, now_ms - self.timestamp_ms) / 1_000


def unread_in(chunks: Iterable[Buffer], aborted: Iterable[tuple[int, int]], offset: int) -> UnreadPosition:
    """Return the first readable record from `offset` on in these batches, or the offset after them."""
    following = offset
    for header, batch in visible_batches(chunks, aborted):
        if batch is not None and header.next_offset > offset:
            try:
                for record in read_records(batch):
                    if record.offset >= offset:
                        return UnreadPosition(record.offset, record.timestamp)
            except (CorruptMessage, UnsupportedCompressionType):
                return UnreadPosition(max(offset, header.base_offset), header.max_timestamp)
        following = max(following, header.next_offset)
    return UnreadPosition(following)
