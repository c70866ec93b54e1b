"""Bringing a leader to the state of its log, at the start and after a cut: by the same `accept` as live traffic."""

from struct import Struct

from tidemill.records.build import MarkerType, marker_of
from tidemill.records.header import BatchHeader, Buffer
from tidemill.records.read import read_records
from tidemill.streams.core.leader import ControlMarker, Leader
from tidemill.streams.interface import StreamLog

_MARKER_VALUE = Struct(">hi")


async def replay(log: StreamLog, leader: Leader, now_ms: int) -> None:
    """Give a new leader what was saved, then the batches that came after."""
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
    """The end of a transaction that the batch says, if it is a marker.

    Compaction may have emptied it. That happens only when no record of the transaction is left, so nobody needs to
    know any more how it ended.
    """
    if not header.control:
        return None
    if header.count == 0:
        return ControlMarker(commit=True, coordinator_epoch=0)
    value = next(record.value for record in read_records(batch))
    coordinator_epoch = _MARKER_VALUE.unpack_from(value)[1] if value else 0
    return ControlMarker(marker_of(batch) is MarkerType.COMMIT, coordinator_epoch)
