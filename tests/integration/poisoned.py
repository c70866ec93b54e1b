"""Batches that a correct producer never sends: a valid CRC over invalid records."""

from tests.support.raw_batches import NOW_MS

from tidemill.records.build import NewRecord, build_batch, wrap
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER, HEADER_SIZE, LENGTH_END, read_header, seal

RECORD = b"\x0c\x00\x00\x00\x01\x01\x00"
NEGATIVE_DELTA = b"\x0c\x00\x00\x03\x01\x01\x00"
HUGE_KEY = b"\x14\x00\x00\x00\x80\x80\x80\x80\x10\x01\x00"
GARBAGE = b"\xa5garbage" * 4


def sealed(payload: bytes, count: int, codec: Codec = Codec.NONE, time_ms: int = NOW_MS) -> bytearray:
    """A batch with this record count and codec in its header, and `payload` unchanged after it."""
    header = read_header(build_batch([NewRecord(None, b"v", (), time_ms)]))
    header = header._replace(
        attributes=int(codec), count=count, last_offset_delta=count - 1, length=HEADER_SIZE - LENGTH_END + len(payload)
    )
    batch = bytearray(HEADER.pack(*header) + payload)
    seal(batch, 0, len(batch))
    return batch


def compressed(payload: bytes, count: int, codec: Codec) -> bytearray:
    """A batch with this record count in its header, and `payload` compressed."""
    return wrap(read_header(sealed(b"", count, codec)), payload)
