"""The five codecs of a record batch, with bounded decompression.

A batch names its codec in three bits. Only the records after the header are compressed. Three rules:

- The output is limited. Each decoder writes into a buffer that is bounded before it starts: by `limit_bytes`, and by
  the largest output that an input of this size can have in its codec. So a truncated stream of 63 bytes costs no more
  than 63 bytes can. The buffer starts small and grows fourfold. An input that does not fit, or that a codec cannot
  read, is CorruptMessage.
- No decompressed data stays alive after an error. The frames that a traceback holds must have released it, because a
  traceback in a reference cycle lives until the next collection.
- Formats of other writers are read: raw snappy (librdkafka) and xerial's framing, several gzip members, several
  consecutive LZ4 and Zstandard frames.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from mmap import mmap
from struct import Struct
from typing import Any

import cramjam

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.records.header import Buffer

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
# The largest output of one byte in the format of each codec: a deflate match, a snappy copy of 64 bytes in 3, a byte of
# an LZ4 match length, a Zstandard block of one repeated byte (128 KiB in 4).
_EXPANSION_MAX = (1, 1032, 22, 255, 32 * 1024)
OUTPUT_BYTES_MIN = 64 * 1024
OUTPUT_GROWTH = 4
GZIP_WBITS = 31  # the largest window, with gzip's header and trailer
GZIP_MEMBERS_MAX = 256  # each costs a copy of the rest of the input

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # its version and the oldest that can read it
_BLOCK_LENGTH = Struct(">I")


class Codec(IntEnum):
    """A codec, by its number in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(number: int) -> Codec:
    """Return the codec with this number. Raise UnsupportedCompressionType for an unknown number."""
    try:
        return Codec(number)
    except ValueError:
        raise UnsupportedCompressionType(f"unknown compression codec {number}; use 0 to 4") from None


def decompressed_bytes_max(codec: int, size: int) -> int:
    """Return the largest readable output of `size` bytes in this codec."""
    return min(size * _EXPANSION_MAX[codec], DECOMPRESSED_BYTES_MAX) if codec else size


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return the decompressed data. Raise CorruptMessage when it is too large or damaged."""
    bound_bytes = min(decompressed_bytes_max(codec, len(data)), limit_bytes)
    match codec:
        case Codec.NONE:
            if len(data) > limit_bytes:
                raise _too_large(limit_bytes)
            return bytes(data)
        case Codec.GZIP:
            return _gunzip(data, bound_bytes)
        case Codec.SNAPPY:
            return _unsnappy(data, bound_bytes)
        case Codec.LZ4:
            return _into_room(cramjam.lz4.decompress_into, data, bound_bytes)
        case Codec.ZSTD:
            return _into_room(cramjam.zstd.decompress_into, data, bound_bytes)


def decompress_into(codec: Codec, data: Buffer, output: memoryview) -> int | None:
    """Decompress LZ4 or Zstandard data into `output`. Return None when it does not fit or is damaged."""
    decode = cramjam.lz4.decompress_into if codec is Codec.LZ4 else cramjam.zstd.decompress_into
    try:
        return int(decode(data, output))
    except cramjam.DecompressionError:
        return None


def _too_large(limit_bytes: int) -> CorruptMessage:
    return CorruptMessage(f"the records take more than {limit_bytes} bytes when decompressed")


def _into_room(decode: Callable[[Any, memoryview], int], data: Buffer, limit_bytes: int) -> bytes:
    # The decoders raise the same kind of error for damaged input and for a full buffer. So both are retried with a
    # larger buffer.
    output_bytes = min(max(OUTPUT_BYTES_MIN, OUTPUT_GROWTH * len(data)), limit_bytes)
    while True:
        found, reason = _attempt(decode, data, output_bytes)
        if found is not None:
            return found
        if output_bytes >= limit_bytes:
            raise CorruptMessage(f"the records cannot be decompressed into {limit_bytes} bytes: {reason}")
        output_bytes = min(output_bytes * OUTPUT_GROWTH, limit_bytes)


def _attempt(decode: Callable[[Any, memoryview], int], data: Buffer, output_bytes: int) -> tuple[bytes | None, str]:
    """Return the decompressed bytes, or the reason for failure. It must not raise: its frame would keep the buffer."""
    # A bytearray is filled with zeros under the interpreter lock, which blocks all other threads for 20 ms at 64 MiB.
    with mmap(-1, max(output_bytes, 1)) as memory, memoryview(memory)[:output_bytes] as view:
        try:
            written = decode(data, view)
        except cramjam.DecompressionError as error:
            return None, str(error)
        return bytes(view[:written]), ""


def _gunzip(data: Buffer, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    try:
        return _join_members(data, limit_bytes, parts)
    finally:
        parts.clear()


def _join_members(data: Buffer, limit_bytes: int, parts: list[bytes]) -> bytes:
    left_bytes = limit_bytes
    rest: Buffer = data
    while rest:
        member = zlib.decompressobj(wbits=GZIP_WBITS)
        try:
            parts.append(member.decompress(rest, left_bytes + 1))
        except zlib.error as error:
            raise CorruptMessage(f"the records are not gzip: {error}") from None
        left_bytes -= len(parts[-1])
        if left_bytes < 0:
            raise _too_large(limit_bytes)
        if not member.eof:
            raise CorruptMessage("the gzip stream of the records is truncated")
        if len(parts) > GZIP_MEMBERS_MAX:
            raise CorruptMessage(f"the records are more than {GZIP_MEMBERS_MAX} gzip members")
        rest = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsnappy(data: Buffer, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    try:
        return _join_blocks(memoryview(data), limit_bytes, parts)
    finally:
        parts.clear()


def _join_blocks(view: memoryview, limit_bytes: int, parts: list[bytes]) -> bytes:
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _unsnappy_block(view, limit_bytes)
    left_bytes = limit_bytes
    position = 0
    while position < len(view):
        if view[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:  # several streams may follow each other
            position += len(XERIAL_HEADER)
            continue
        block_at = position + _BLOCK_LENGTH.size
        if block_at > len(view):
            raise CorruptMessage("the snappy stream of the records is truncated")
        position = block_at + _BLOCK_LENGTH.unpack_from(view, position)[0]
        if position > len(view):
            raise CorruptMessage("a snappy block of the records is truncated")
        parts.append(_unsnappy_block(view[block_at:position], left_bytes))
        left_bytes -= len(parts[-1])
    return b"".join(parts)


def _unsnappy_block(data: Buffer, limit_bytes: int) -> bytes:
    # Raw snappy starts with its claimed output length, which may be more than the input can produce.
    limit_bytes = min(decompressed_bytes_max(Codec.SNAPPY, len(data)), limit_bytes)
    try:
        length = cramjam.snappy.decompress_raw_len(data)
    except cramjam.DecompressionError as error:
        raise CorruptMessage(f"the records are not snappy: {error}") from None
    if length > limit_bytes:
        raise _too_large(limit_bytes)
    found, reason = _attempt(cramjam.snappy.decompress_raw_into, data, length)
    if found is None:
        raise CorruptMessage(f"the records are not snappy: {reason}")
    return found
