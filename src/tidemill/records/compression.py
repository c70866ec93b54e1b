"""The five codecs of a record batch, decompressed with output that cannot outgrow a limit.

A batch names its codec in three bits; only the records behind the header are compressed. Three rules:

- The limit is on what comes out. Each decoder writes into room that is bounded before it starts: by `limit_bytes`, and
  by the most that an input of this size can stand for in its codec, so that a truncated stream of 63 bytes costs what
  63 bytes can cost. The room starts small and grows fourfold. An input that does not fit is CorruptMessage, as
  is one that a codec cannot read.
- Nothing that was decompressed stays behind an error: the frames that a traceback holds have let go of it, because a
  traceback in a reference cycle lives until the next collection.
- What others write is read: raw snappy (librdkafka) beside xerial's framing, several gzip members, several LZ4 and
  Zstandard frames in a row.
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
# What one byte can stand for at most, by the format of each codec: a deflate match, a snappy copy of 64 bytes in 3,
# a byte of an LZ4 match length, a Zstandard block of one repeated byte (128 KiB in 4).
_EXPANSION_MAX = (1, 1032, 22, 255, 32 * 1024)
ROOM_BYTES_MIN = 64 * 1024
ROOM_GROWTH = 4
GZIP_WBITS = 31  # the largest window, with gzip's header and trailer
GZIP_MEMBERS_MAX = 256  # each costs a copy of what follows it

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
    """The codec with this number; UnsupportedCompressionType for the numbers that have none."""
    try:
        return Codec(number)
    except ValueError:
        raise UnsupportedCompressionType(f"there is no codec with number {number}") from None


def decompressed_bytes_max(codec: int, size: int) -> int:
    """The most bytes that `size` bytes of this codec can stand for and still be read."""
    return min(size * _EXPANSION_MAX[codec], DECOMPRESSED_BYTES_MAX) if codec else size


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """What `data` stands for; CorruptMessage when it stands for too much or is damaged."""
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


def decompress_into(codec: Codec, data: Buffer, room: memoryview) -> int | None:
    """Write what `data` stands for into `room`, for LZ4 and Zstandard; None when it does not fit, or is damaged."""
    decode = cramjam.lz4.decompress_into if codec is Codec.LZ4 else cramjam.zstd.decompress_into
    try:
        return int(decode(data, room))
    except cramjam.DecompressionError:
        return None


def _too_large(limit_bytes: int) -> CorruptMessage:
    return CorruptMessage(f"the records take more than {limit_bytes} bytes when decompressed")


def _into_room(decode: Callable[[Any, memoryview], int], data: Buffer, limit_bytes: int) -> bytes:
    # The decoders say by the same kind of error that the input is damaged or that the room is full, so both are
    # tried again with more room.
    room_bytes = min(max(ROOM_BYTES_MIN, ROOM_GROWTH * len(data)), limit_bytes)
    while True:
        found, reason = _attempt(decode, data, room_bytes)
        if found is not None:
            return found
        if room_bytes >= limit_bytes:
            raise CorruptMessage(f"the records cannot be decompressed into {limit_bytes} bytes: {reason}")
        room_bytes = min(room_bytes * ROOM_GROWTH, limit_bytes)


def _attempt(decode: Callable[[Any, memoryview], int], data: Buffer, room_bytes: int) -> tuple[bytes | None, str]:
    """The decompressed bytes, or why there are none. It does not raise: its frame would keep the room."""
    # A bytearray is filled with zeros under the interpreter's lock: with 64 MiB nothing else runs for 20 ms.
    with mmap(-1, max(room_bytes, 1)) as room, memoryview(room)[:room_bytes] as view:
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
            raise CorruptMessage("the gzip stream of the records is cut")
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
        if view[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:  # streams may follow one another
            position += len(XERIAL_HEADER)
            continue
        block_at = position + _BLOCK_LENGTH.size
        if block_at > len(view):
            raise CorruptMessage("the snappy stream of the records is cut")
        position = block_at + _BLOCK_LENGTH.unpack_from(view, position)[0]
        if position > len(view):
            raise CorruptMessage("a snappy block of the records is cut")
        parts.append(_unsnappy_block(view[block_at:position], left_bytes))
        left_bytes -= len(parts[-1])
    return b"".join(parts)


def _unsnappy_block(data: Buffer, limit_bytes: int) -> bytes:
    # Raw snappy opens with the length that it claims, which a few bytes cannot stand for.
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
