"""Removes records from a batch, for compaction.

Offsets never change. The base offset and the last offset delta stay, and each record keeps its own delta, which leaves
gaps. A batch may even stay without records, because its header has the last sequence of a producer. The bytes of a kept
record are copied, not encoded again. Only the timestamp delta is encoded again when the batch gets a delete horizon,
because that replaces the base timestamp (KIP-534).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tidemill.records.build import varint, wrap
from tidemill.records.compression import DECOMPRESSED_BYTES_MAX
from tidemill.records.header import CODEC_BITS, DELETE_HORIZON_BIT, BatchHeader, Buffer, read_header
from tidemill.records.read import TIMESTAMP_MAX, TIMESTAMP_MIN, read_payload, read_varint, scan_records
from tidemill.records.record import Record


class _Frame(NamedTuple):
    """The positions of the parts of a record that matter when it is moved."""

    start: int
    timestamp_delta: int
    rest: int
    end: int


def compact_batch(
    batch: Buffer,
    keep: Callable[[Record], bool],
    *,
    keep_empty: bool = False,
    delete_horizon_ms: int | None = None,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray | None:
    """Return the batch with the records that `keep` accepts. Return None when there are none, unless `keep_empty`.

    `delete_horizon_ms` is for a batch that has none yet and that keeps a tombstone or is a marker.
    """
    header = read_header(batch)
    payload = read_payload(batch, header, limit_bytes=limit_bytes)
    kept = bytearray(header.count)  # no list of records, because a batch may hold millions
    has_tombstone, max_timestamp = False, TIMESTAMP_MIN
    for index, record in enumerate(scan_records(payload, header)):
        if keep(record):
            kept[index] = True
            has_tombstone = has_tombstone or record.value is None
            max_timestamp = max(max_timestamp, record.timestamp)
    count = sum(kept)
    if not count:
        return empty_batch(header) if keep_empty else None
    needs_horizon = header.delete_horizon_ms is None and (header.control or has_tombstone)
    horizon_ms = delete_horizon_ms if needs_horizon else None
    if count == len(kept) and horizon_ms is None:
        return bytearray(memoryview(batch)[: header.size])
    frames = (frame for frame, stays in zip(_frames(payload, header.count), kept, strict=True) if stays)
    header = header._replace(count=count, max_timestamp=max_timestamp)
    if horizon_ms is None:
        return wrap(header, _joined(payload, frames))
    dated = header._replace(attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=horizon_ms)
    return wrap(dated, _rebased(payload, frames, header.base_timestamp - horizon_ms))


def empty_batch(header: BatchHeader) -> bytearray:
    """Return the batch without any record. It keeps its offsets and its producer's sequence."""
    return wrap(header._replace(count=0, attributes=header.attributes & ~CODEC_BITS), b"")


def _frames(payload: bytes, count: int) -> Iterator[_Frame]:
    # The payload was read as records before, so every length in it is valid.
    at = 0
    for _ in range(count):
        length, body = read_varint(payload, at)
        timestamp_delta, rest = read_varint(payload, body + 1)
        yield _Frame(at, timestamp_delta, rest, body + length)
        at = body + length


def _joined(payload: bytes, frames: Iterable[_Frame]) -> bytes:
    out = bytearray()
    for frame in frames:
        out += payload[frame.start : frame.end]
    return bytes(out)


def _rebased(payload: bytes, frames: Iterable[_Frame], shift_ms: int) -> bytes:
    out = bytearray()
    for frame in frames:
        # A time that exceeds 64 bits is invalid already, so it is clamped.
        delta = varint(min(max(frame.timestamp_delta + shift_ms, TIMESTAMP_MIN), TIMESTAMP_MAX))
        body = b"".join((b"\x00", delta, payload[frame.rest : frame.end]))
        out += varint(len(body))
        out += body
    return bytes(out)
