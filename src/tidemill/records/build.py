"""Builds record batches: the broker's journals, transaction markers, and what this package's clients send.

`wrap` returns every batch as one bytearray that `place` and `stamp_append_time` can still patch. It has a header and
the records, compressed if the header says so. Length and CRC are written last.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage, InvalidRecord
from tidemill.records.compression import Codec
from tidemill.records.header import (
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LENGTH_MIN,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    read_header,
    seal,
)
from tidemill.records.incremental_compression import Compression, pack_whole
from tidemill.records.read import read_records
from tidemill.records.record import Headers

_MARKER_KEY = Struct(">hh")  # version, type
_MARKER_VALUE = Struct(">hi")  # version, epoch of the coordinator
MARKER_VERSION = 0
NO_TIMESTAMP = -1


class NewRecord(NamedTuple):
    """A record without a position in a log."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = NO_TIMESTAMP


class MarkerType(IntEnum):
    """The outcome of a transaction, by its number in the key of the marker."""

    ABORT = 0
    COMMIT = 1


def _encode_varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# The lengths and deltas of nearly all records. A table lookup is much faster than the loop.
_VARINTS = tuple(_encode_varint(number) for number in range(2048))
_NULL = _encode_varint(-1)


def varint(number: int) -> bytes:
    """Return the zig-zag varint of a number of up to 64 bits."""
    return _VARINTS[number] if 0 <= number < 2048 else _encode_varint(number)


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
) -> bytearray:
    """Return a sealed batch of `records`, which have consecutive offsets from `base_offset`."""
    if not records:
        raise InvalidRecord("a record batch needs at least one record")
    base_timestamp = records[0].timestamp
    payload = encode_records(records, base_timestamp)
    attributes = codec.value
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    attributes |= LOG_APPEND_TIME_BIT if log_append_time else 0
    header = BatchHeader(
        base_offset,
        LENGTH_MIN,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max([record.timestamp for record in records]),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return wrap(header, payload)


def wrap(header: BatchHeader, payload: Buffer, level: int | None = None) -> bytearray:
    """Return a sealed batch of these records with the header's codec. Sets its length and CRC."""
    batch = bytearray(HEADER_SIZE)
    pack_whole(Compression(Codec(header.codec), level), payload, batch)
    head(header, batch)
    return batch


def head(header: BatchHeader, batch: bytearray | memoryview) -> None:
    """Write the header into the space in front of the records. Sets its length and CRC."""
    HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - LENGTH_END))
    seal(batch, 0, len(batch))


def encode_records(records: Sequence[NewRecord], base_timestamp: int, deltas: Iterable[int] | None = None) -> bytes:
    """Return the payload of a batch that starts at this time. `deltas` are the offset deltas if there are gaps."""
    parts: list[bytes] = []
    places = range(len(records)) if deltas is None else deltas
    for delta, (key, value, headers, timestamp) in zip(places, records, strict=True):
        body = b"".join(
            (
                b"\x00",  # attributes
                varint(timestamp - base_timestamp),
                varint(delta),
                _NULL if key is None else varint(len(key)) + key,
                _NULL if value is None else varint(len(value)) + value,
                _encode_headers(headers) if headers else b"\x00",
            )
        )
        parts.append(varint(len(body)))
        parts.append(body)
    return b"".join(parts)


def _encode_headers(headers: Headers) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        key = name.encode()
        parts += (varint(len(key)), key)
        parts += (_NULL,) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def end_marker(
    producer_id: int, producer_epoch: int, commit: bool, timestamp: int, coordinator_epoch: int = 0
) -> bytearray:
    """Return the control batch that ends a transaction in one partition."""
    kind = MarkerType.COMMIT if commit else MarkerType.ABORT
    record = NewRecord(
        _MARKER_KEY.pack(MARKER_VERSION, kind),
        _MARKER_VALUE.pack(MARKER_VERSION, coordinator_epoch),
        timestamp=timestamp,
    )
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def marker_of(batch: Buffer) -> MarkerType:
    """Return how the transaction of this marker ended. Raise CorruptMessage when the batch is not a marker."""
    if not read_header(batch).control:
        raise CorruptMessage("the batch is not a control batch")
    key = next((record.key for record in read_records(batch)), None)
    if key is None or len(key) < _MARKER_KEY.size:
        raise CorruptMessage("the key of a marker is truncated")
    number = _MARKER_KEY.unpack_from(key)[1]
    try:
        return MarkerType(number)
    except ValueError:
        raise CorruptMessage(f"unknown marker type {number}") from None
