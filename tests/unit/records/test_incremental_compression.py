"""Streams that are written piece by piece, read by the codecs' own libraries."""

import random

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.record_batches import COMPRESSED

from tidemill.records.compression import Codec, decompress
from tidemill.records.incremental_compression import LEVELS, Compression, compress

piece = st.one_of(st.binary(max_size=300), st.binary(min_size=1, max_size=9).map(lambda part: part * 20_000))


def packed(compression: Compression, pieces: list[bytes], before: bytes = b"") -> bytes:
    out = bytearray(before)
    pack = compression.into(out)
    for each in pieces:
        pack.add(each)
    pack.end()
    return bytes(out)


@settings(max_examples=60, deadline=None)
@given(st.lists(piece, max_size=4), st.sampled_from(Codec), st.binary(max_size=70))
def test_pieces_are_one_stream_behind_what_was_there(pieces: list[bytes], codec: Codec, before: bytes) -> None:
    out = packed(Compression(codec), pieces, before)
    assert out.startswith(before)
    assert decompress(codec, out[len(before) :], 1_000_000) == b"".join(pieces)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_piece_is_in_the_buffer_when_it_was_added(codec: Codec) -> None:
    out = bytearray()
    pack = Compression(codec).into(out)
    for size in (10_000, 50_000):
        before = len(out)
        pack.add(random.Random(size).randbytes(size))
        assert size <= len(out) - before <= size + size // 100 + 40


def test_lz4_in_pieces_is_one_frame() -> None:
    pieces = [b"tide" * 40_000, random.Random(2).randbytes(70_000), b"mill"]
    out = packed(Compression(Codec.LZ4), pieces)
    assert lz4.frame.decompress(out) == b"".join(pieces)
    assert lz4.frame.LZ4FrameDecompressor().decompress(out) == b"".join(pieces)


@pytest.mark.parametrize("pieces", [[], [b""], [b"x"], [b"tide" * 40_000, b"mill" * 3]])
def test_zstandard_in_pieces_is_one_frame_with_its_size(pieces: list[bytes]) -> None:
    out = packed(Compression(Codec.ZSTD), pieces)
    whole = b"".join(pieces)
    assert zstandard.frame_content_size(out) == len(whole)
    reader = zstandard.ZstdDecompressor().decompressobj()
    assert reader.decompress(out) == whole
    assert reader.eof
    assert not reader.unused_data


@pytest.mark.parametrize("codec", LEVELS)
def test_a_higher_level_takes_less_room(codec: Codec) -> None:
    noise = random.Random(4)
    text = b" ".join(noise.choice([b"tide", b"mill", b"lease", b"offset"]) for _ in range(20_000))
    levels = LEVELS[codec]
    least, most = (len(packed(Compression(codec, level), [text])) for level in (levels[0], levels[-1]))
    assert most < least
    assert len(compress(codec, text)) <= least
