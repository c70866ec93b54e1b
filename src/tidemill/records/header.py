"""Reads and writes the header of a record batch (magic 2) in place.

A batch is sent and stored without decoding its records: its 61 header bytes have everything that a broker needs on the
hot path. Reading them is one `unpack_from`. Accepting a batch changes only the base offset and the leader epoch, which
precede the CRC and are not covered by it. Everything after the CRC can be changed only together with it (`seal`). The
one such change for produced batches is the log append time (`stamp_append_time`).

The header is checked for values that would mislead a reader: a length that cannot hold the header, another magic,
negative counts. `validate` checks what a producer must not send.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, TypeAlias

import crc32c

from tidemill.model.errors import CorruptMessage

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LENGTH_END = 12  # the length field counts the bytes after it
MAGIC = 2
MAGIC_AT = 16
CRC_AT = 17
CRC_START = 21
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35
PRODUCER_AT = 43  # its id, its epoch
COUNT_AT = 57
LENGTH_MIN = HEADER_SIZE - LENGTH_END
SEQUENCE_MAX = 2**31 - 1

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40  # KIP-534: the base timestamp is the time from which tombstones may be deleted

_I64 = Struct(">q")
_I32 = Struct(">i")
_U32 = Struct(">I")
_I16 = Struct(">h")


class BatchHeader(NamedTuple):
    """The fixed part of a record batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which a header has no use for

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        """The offset of the last record when the batch was produced."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The number of the codec. Numbers above 4 are unknown."""
        return self.attributes & CODEC_BITS

    @property
    def log_append_time(self) -> bool:
        """Whether all records have the broker's time, which is the max timestamp."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def control(self) -> bool:
        """Whether the batch is a control batch of the broker and not data."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may delete the tombstones of this batch. None before the first pass."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent or transactional producer wrote it."""
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, wrapping from 2147483647 to 0. -1 without sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`. Only its 61 bytes are needed."""
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        raise CorruptMessage(f"a record batch at byte {position} is truncated within its header")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptMessage(f"a record batch at byte {position} has magic {header.magic}, not {MAGIC}")
    if header.length < LENGTH_MIN:
        raise CorruptMessage(f"a record batch at byte {position} has the invalid length {header.length}")
    if header.last_offset_delta < 0 or header.count < 0:
        raise CorruptMessage(f"a record batch at byte {position} has the invalid record count {header.count}")
    return header


def iter_headers(buffer: Buffer, *, partial_ok: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each of several consecutive batches.

    A truncated last batch raises CorruptMessage, or ends the iteration when `partial_ok`.
    """
    position = 0
    end = len(buffer)
    while position < end:
        if partial_ok and end - position < HEADER_SIZE:
            return
        header = read_header(buffer, position)
        if end - position < header.size:
            if partial_ok:
                return
            raise CorruptMessage(f"a record batch of {header.size} bytes at byte {position} is truncated")
        yield position, header
        position += header.size


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptMessage unless the batch is complete and matches its CRC."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptMessage(f"a record batch of {header.size} bytes at byte {position} is truncated")
    if crc32c.crc32c(memoryview(buffer)[position + CRC_START : end]) != header.crc:
        raise CorruptMessage(f"the CRC of the record batch at byte {position} does not match")


def place(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set the batch's base offset and leader epoch. The CRC covers neither field."""
    _I64.pack_into(buffer, position, base_offset)
    _I32.pack_into(buffer, position + LENGTH_END, leader_epoch)


def seal(buffer: bytearray | memoryview, position: int, size: int) -> None:
    """Write the CRC of the batch of `size` bytes at `position`."""
    crc = crc32c.crc32c(memoryview(buffer)[position + CRC_START : position + size])
    _U32.pack_into(buffer, position + CRC_AT, crc)


def stamp_append_time(buffer: bytearray | memoryview, position: int, now_ms: int) -> None:
    """Set the log append time of all records of the batch."""
    header = read_header(buffer, position)
    _I16.pack_into(buffer, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    _I64.pack_into(buffer, position + MAX_TIMESTAMP_AT, now_ms)
    seal(buffer, position, header.size)
