"""Reads the records of a batch from untrusted bytes.

Any input yields records, CorruptMessage or UnsupportedCompressionType. Memory is allocated only in proportion to the
input: counts are never trusted, and decompression is bounded. The checks are cheap. The position only moves forward, a
negative length is rejected, and each record must end exactly where its length says. So one comparison at a record's end
proves that all its parts were inside. Reading past the data is Python's own IndexError. Nearly all varints take one
byte; that case is inlined for speed.

Header keys are UTF-8. Invalid bytes are replaced, as Java does.
"""

from collections.abc import Iterator

from tidemill.model.errors import CorruptMessage
from tidemill.records.compression import DECOMPRESSED_BYTES_MAX, codec_of, decompress
from tidemill.records.header import HEADER_SIZE, BatchHeader, Buffer, read_header
from tidemill.records.record import Headers, Record

RECORD_BYTES_MIN = 7  # length, attributes, two deltas, two lengths and a count, one byte each
VARINT_BITS_MAX = 63  # the shift of the tenth and last byte of 64 bits
TIMESTAMP_MIN = -(2**63)
TIMESTAMP_MAX = 2**63 - 1


def read_records(batch: Buffer, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yield the records of the batch at the start of `batch`, in order.

    With LogAppendTime all of them have the broker's time. The CRC is not checked here; `check_crc` does that.
    """
    header = read_header(batch)
    return scan_records(read_payload(batch, header, limit_bytes=limit_bytes), header)


def read_payload(batch: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return the bytes of all records, decompressed."""
    if header.size > len(batch):
        raise CorruptMessage(f"a record batch of {header.size} bytes is truncated to {len(batch)}")
    return decompress(codec_of(header.codec), memoryview(batch)[HEADER_SIZE : header.size], limit_bytes)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return a zig-zag varint of up to 64 bits and the position after it. Raise IndexError if the data ends first."""
    raw = byte = data[position]
    shift = 0
    while byte >= 0x80:
        shift += 7
        if shift > VARINT_BITS_MAX:
            raise CorruptMessage("a varint exceeds 64 bits")
        position += 1
        byte = data[position]
        raw += (byte - 1) << shift  # subtract the continuation bit of the previous byte: 0x80 << shift - 7
    return (raw >> 1) ^ -(raw & 1), position + 1


def scan_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records in `data`, the payload of a batch with this header."""
    if header.count * RECORD_BYTES_MIN > len(data):
        raise CorruptMessage(f"{header.count} records do not fit into {len(data)} bytes")
    base_offset, base_timestamp, last_delta = header.base_offset, header.base_timestamp, header.last_offset_delta
    append_time = header.max_timestamp if header.log_append_time else None
    previous_delta = -1
    at = 0
    try:
        for _ in range(header.count):
            # A non-negative one-byte number is even in zig-zag encoding, and half of it is the number.
            length, at = (byte >> 1, at + 1) if not (byte := data[at]) & 0x81 else read_varint(data, at)
            end = at + length
            at += 1  # the attributes of a record are unused
            delta, at = (byte >> 1, at + 1) if not (byte := data[at]) & 0x81 else read_varint(data, at)
            timestamp = base_timestamp + delta if append_time is None else append_time
            delta, at = (byte >> 1, at + 1) if not (byte := data[at]) & 0x81 else read_varint(data, at)
            size, at = (byte >> 1, at + 1) if not (byte := data[at]) & 0x81 else read_varint(data, at)
            key = None
            if size >= 0:
                key = data[at : at + size]
                at += size
            elif size != -1:
                raise _negative(size)
            size, at = (byte >> 1, at + 1) if not (byte := data[at]) & 0x81 else read_varint(data, at)
            value = None
            if size >= 0:
                value = data[at : at + size]
                at += size
            elif size != -1:
                raise _negative(size)
            headers, at = ((), at + 1) if data[at] == 0 else _headers(data, at)
            if at != end:
                raise CorruptMessage(f"a record of {length} bytes has parts of {at - end + length}")
            if not previous_delta < delta <= last_delta:
                raise CorruptMessage(
                    f"a record has offset delta {delta} after {previous_delta}; the batch ends at {last_delta}"
                )
            if not TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX:
                raise CorruptMessage(f"a record has the invalid timestamp {timestamp}")
            previous_delta = delta
            yield Record(base_offset + delta, timestamp, key, value, headers)
    except IndexError:
        raise CorruptMessage("a record extends beyond its batch") from None
    if at != len(data):
        raise CorruptMessage(f"{len(data) - at} bytes follow the last record")


def _negative(size: int) -> CorruptMessage:
    return CorruptMessage(f"a key or value has the invalid length {size}")


def _headers(data: bytes, at: int) -> tuple[Headers, int]:
    count, at = read_varint(data, at)
    if not 0 <= count <= len(data) - at:
        raise CorruptMessage(f"a record has the invalid header count {count}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = read_varint(data, at)
        if size < 0:
            raise CorruptMessage(f"a header key has the invalid length {size}")
        key = data[at : at + size].decode(errors="replace")
        size, at = read_varint(data, at + size)
        if size >= 0:
            headers.append((key, data[at : at + size]))
            at += size
        elif size == -1:
            headers.append((key, None))
        else:
            raise _negative(size)
    return tuple(headers), at
