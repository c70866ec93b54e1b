"""Compresses records piece by piece into one stream, in formats that every Kafka client can read.

So a batch can be filled up to its compressed size, with only one uncompressed piece in memory. Java must be able to
read the output: snappy in xerial's framing, and LZ4 frames with independent blocks, because Java's reader rejects
linked ones.
"""

import zlib
from struct import Struct
from typing import NamedTuple, Protocol

import cramjam

from tidemill.records.compression import GZIP_WBITS, XERIAL_HEADER, Codec
from tidemill.records.header import Buffer

GZIP_LEVEL = 6
ZSTD_LEVEL = 3
LEVELS = {Codec.GZIP: range(1, 10), Codec.ZSTD: range(1, 23)}
"""The codecs with levels, and their levels. A higher level takes longer and compresses better."""

LZ4_BLOCK_BYTES = 72 * 1024
"""The block size for LZ4, slightly above 64 KiB.

Up to 64 KiB the library uses another table, which is slower by a fifth, with noise by three quarters. Much larger
blocks do not pay, because LZ4 only finds repeats within 64 KiB and searches the rest in vain. With blocks of 256 KiB,
text takes 5 to 15 % more time and 1 to 3 % less space. Rows that repeat themselves take half as long again.
"""
LZ4_HEADER = bytes.fromhex("04224d18 60 50 fb")
"""Magic; version 1 with independent blocks and no checksums; blocks of 256 KiB at most; the checksum of these bytes."""
LZ4_STORED = 1 << 31
"""In the length of a block: the block is stored uncompressed, because it does not become smaller."""
_LZ4_LENGTH = Struct("<I")

XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = Struct(">I")

ZSTD_DESCRIPTOR_AT = 4
"""After the magic. The window size follows, and then the content size if it is present."""
ZSTD_CONTENT_AT = 6
ZSTD_CONTENT_SIZE = 0xE0
ZSTD_CONTENT_IN_4_BYTES = 0x80
_ZSTD_CONTENT = Struct("<I")


class Pack(Protocol):
    """A compressed stream that is appended to a buffer."""

    def add(self, piece: Buffer) -> None:
        """Compress another piece. All of it is in the buffer then."""

    def end(self) -> None:
        """Complete the stream."""


class Compression(NamedTuple):
    """A codec and its level (None: the level of Kafka's own clients)."""

    codec: Codec = Codec.NONE
    level: int | None = None

    def into(self, out: bytearray) -> Pack:
        """Start a stream at the end of `out`."""
        match self.codec:
            case Codec.NONE:
                return _Plain(out)
            case Codec.GZIP:
                return _Gzip(out, self.level or GZIP_LEVEL)
            case Codec.SNAPPY:
                return _Xerial(out)
            case Codec.LZ4:
                return _Lz4(out)
            case Codec.ZSTD:
                return _Zstd(out, self.level or ZSTD_LEVEL)


def pack_whole(compression: Compression, data: Buffer, out: bytearray) -> None:
    """Append `data` to `out` as one stream."""
    if compression.codec is Codec.ZSTD:  # with a known input size it allocates only as much memory
        out += cramjam.zstd.compress(data, level=compression.level or ZSTD_LEVEL)
        return
    pack = compression.into(out)
    pack.add(data)
    pack.end()


def compress(codec: Codec, data: Buffer) -> bytes:
    """Return `data` as one stream."""
    out = bytearray()
    pack_whole(Compression(codec), data, out)
    return bytes(out)


class _Plain:
    def __init__(self, out: bytearray) -> None:
        self._out = out

    def add(self, piece: Buffer) -> None:
        self._out += piece

    def end(self) -> None:
        """Do nothing, because nothing follows the records."""


class _Gzip:
    def __init__(self, out: bytearray, level: int) -> None:
        self._out = out
        self._member = zlib.compressobj(level, wbits=GZIP_WBITS)

    def add(self, piece: Buffer) -> None:
        self._out += self._member.compress(piece)
        self._out += self._member.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> None:
        self._out += self._member.flush()


class _Xerial:
    def __init__(self, out: bytearray) -> None:
        self._out = out
        self._out += XERIAL_HEADER

    def add(self, piece: Buffer) -> None:
        view = memoryview(piece)
        for start in range(0, len(view), XERIAL_BLOCK_BYTES):
            block = cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES])
            self._out += _XERIAL_LENGTH.pack(len(block))
            self._out += block

    def end(self) -> None:
        """Do nothing, because the stream ends with its last block."""


class _Lz4:
    # Writing blocks directly takes less than half the time of the library's own frames (measured).
    def __init__(self, out: bytearray) -> None:
        self._out = out
        self._out += LZ4_HEADER
        self._room = memoryview(b"")

    def add(self, piece: Buffer) -> None:
        view = memoryview(piece)
        for start in range(0, len(view), LZ4_BLOCK_BYTES):
            block = view[start : start + LZ4_BLOCK_BYTES]
            if len(self._room) < len(block):
                self._room = memoryview(bytearray(cramjam.lz4.compress_block_bound(block)))
            written = cramjam.lz4.compress_block_into(block, self._room, store_size=False)
            stored = written >= len(block)
            self._out += _LZ4_LENGTH.pack(len(block) | LZ4_STORED if stored else written)
            self._out += block if stored else self._room[:written]

    def end(self) -> None:
        self._out += _LZ4_LENGTH.pack(0)


class _Zstd:
    def __init__(self, out: bytearray, level: int) -> None:
        self._out = out
        self._start = len(out)
        self._size = 0
        self._stream = cramjam.zstd.Compressor(level)

    def add(self, piece: Buffer) -> None:
        self._stream.compress(bytes(piece))  # it accepts only bytes
        self._out += self._stream.flush()
        self._size += len(piece)

    def end(self) -> None:
        """Write the content size, which is unknown at the start. Readers allocate their buffer from it."""
        self._out += self._stream.finish()
        descriptor_at, content_at = self._start + ZSTD_DESCRIPTOR_AT, self._start + ZSTD_CONTENT_AT
        if not self._out[descriptor_at] & ZSTD_CONTENT_SIZE:
            self._out[descriptor_at] |= ZSTD_CONTENT_IN_4_BYTES
            self._out[content_at:content_at] = _ZSTD_CONTENT.pack(self._size)
