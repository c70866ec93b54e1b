"""The records of a batch, read from bytes that nobody vouches for.

Any bytes may come: what comes out is records, CorruptMessage or UnsupportedCompressionType, and nothing is allocated
that is not paid for by input (counts are never trusted, decompression is bounded). How the bounds are kept cheaply:
the position only moves forward, a length below zero is refused, and each record must end exactly where its length says.
So one comparison at a record's end proves that all its parts lay inside, and running off the data is Python's own
IndexError. Nearly all varints take one byte; that case is written out where it happens, for speed.

Keys of headers are UTF-8; bytes that are not are replaced, as Java does it.
"""

from collections.abc import Iterator

from tidemill.model.errors import CorruptMessage
from tidemill.records.compression import DECOMPRESSED_BYTES_MAX, codec_of, decompress
from tidemill.records.header import HEADER_SIZE, BatchHeader, Buffer, read_header
from tidemill.records.record import Headers, Record

RECORD_BYTES_MIN = 7  # length, attributes, two deltas, two lengths and a count, one byte each
VARINT_BITS_MAX = 63  # where the tenth and last byte of 64 bits starts
TIMESTAMP_MIN = -(2**63)
TIMESTAMP_MAX = 2**63 - 1


def read_records(batch: Buffer, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of the batch at the start of `batch`, in order.

    With LogAppendTime all of them carry the broker's time. The CRC is not checked: `check_crc` does that.
    """
    header = read_header(batch)
    return scan_records(read_payload(batch, header, limit_bytes=limit_bytes), header)


def read_payload(batch: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The bytes of all records, decompressed."""
    if header.size > len(batch):
        raise CorruptMessage(f"a record batch of {header.size} bytes is cut to {len(batch)}")
    return decompress(codec_of(header.codec), memoryview(batch)[HEADER_SIZE : header.size], limit_bytes)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zig-zag varint of up to 64 bits and the position behind it; IndexError where the data ends before it."""
    raw = byte = data[position]
    shift = 0
    while byte >= 0x80:
        shift += 7
        if shift > VARINT_BITS_MAX:
            raise CorruptMessage("a number takes more than 64 bits")
        position += 1
        byte = data[position]
        raw += (byte - 1) << shift  # less the mark that the byte before it had: 0x80 << shift - 7
    return (raw >> 1) ^ -(raw & 1), position + 1


def scan_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records in `data`, the payload of a batch with this header."""
    if header.count * RECORD_BYTES_MIN > len(data):
        raise CorruptMessage(f"{header.count} records cannot lie in {len(data)} bytes")
    base_offset, base_timestamp, last_delta = header.base_offset, header.base_timestamp, header.last_offset_delta
    append_time = header.max_timestamp if header.log_append_time else None
    previous_delta = -1
    at = 0
    try:
        for _ in range(header.count):
            # Zig-zag makes a number of one byte even when it is not negative, and then half of it is the number.
            length, at = (byte >> 1, at + 1) if not (byte := data[at]) & 0x81 else read_varint(data, at)
            end = at + length
            at += 1  # the attributes of a record say nothing yet
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
                raise CorruptMessage(f"a record has the offset delta {delta} after {previous_delta}, of {last_delta}")
            if not TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX:
                raise CorruptMessage(f"a record has the impossible timestamp {timestamp}")
            previous_delta = delta
            yield Record(base_offset + delta, timestamp, key, value, headers)
    except IndexError:
        raise CorruptMessage("a record runs beyond its batch") from None
    if at != len(data):
        raise CorruptMessage(f"{len(data) - at} bytes follow the last record")


def _negative(size: int) -> CorruptMessage:
    return CorruptMessage(f"a key or value has the length {size}")


def _headers(data: bytes, at: int) -> tuple[Headers, int]:
    count, at = read_varint(data, at)
    if not 0 <= count <= len(data) - at:
        raise CorruptMessage(f"a record counts {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = read_varint(data, at)
        if size < 0:
            raise CorruptMessage(f"the key of a header has the length {size}")
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
