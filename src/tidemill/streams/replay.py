"""Rebuilds a leader's state from its log, at start and after a truncation, with the same `accept` as live appends."""

from struct import Struct

from tidemill.records.build import MarkerType, marker_of
from tidemill.records.header import BatchHeader, Buffer
from tidemill.records.read import read_records
from tidemill.streams.core.leader import ControlMarker, Leader
from tidemill.streams.interface import AppendLog

_MARKER_VALUE = Struct(">hi")


async def replay(log: AppendLog, leader: Leader, now_ms: int) -> None:
    """Load the saved state into a new leader, then replay the batches after it."""
    offset = log.start_offset
    saved = log.saved
    if saved is not None and offset <= saved.offset <= log.end_offset:
        leader.load(saved.state)
        offset = saved.offset
    if offset < log.end_offset:
        async for header, batch in log.outline(offset):
            leader.replay(header, now_ms, marker_in(header, batch))
    leader.end_offset = log.end_offset


def marker_in(header: BatchHeader, batch: Buffer) -> ControlMarker | None:
    """Return how the batch ends a transaction, or None if it is not an end marker.

    Compaction empties a marker only when no record of the transaction is left. The outcome does not matter then.
    """
    if not header.control:
        return None
    if header.count == 0:
        return ControlMarker(commit=True, coordinator_epoch=0)
    value = next(record.value for record in read_records(batch))
    coordinator_epoch = _MARKER_VALUE.unpack_from(value)[1] if value else 0
    return ControlMarker(marker_of(batch) is MarkerType.COMMIT, coordinator_epoch)
