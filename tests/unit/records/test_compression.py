import gzip
import random

import cramjam
import lz4.frame
import pytest
from aiokafka.codec import snappy_decode, snappy_encode
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.record_batches import COMPRESSED

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.records.compression import (
    GZIP_MEMBERS_MAX,
    OUTPUT_BYTES_MIN,
    XERIAL_MAGIC,
    Codec,
    codec_of,
    decompress,
)
from tidemill.records.incremental_compression import LZ4_BLOCK_BYTES, compress

TEXT = b"the quick brown fox jumps over the lazy dog. " * 4000
data = st.one_of(st.binary(max_size=300), st.binary(min_size=1, max_size=9).map(lambda part: part * 20_000))


@settings(max_examples=40, deadline=None)
@given(data, st.sampled_from(Codec))
def test_compressed_data_is_decompressed_unchanged(content: bytes, codec: Codec) -> None:
    for kind in (bytes, bytearray, memoryview):
        assert decompress(codec, kind(compress(codec, kind(content))), len(content)) == content


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", [1, OUTPUT_BYTES_MIN - 1, OUTPUT_BYTES_MIN, OUTPUT_BYTES_MIN + 1, 3_000_000])
def test_the_limit_is_exact(codec: Codec, size: int) -> None:
    packed = compress(codec, bytes(size))
    assert len(decompress(codec, packed, size)) == size
    with pytest.raises(CorruptMessage):
        decompress(codec, packed, size - 1)


@pytest.mark.parametrize("codec", [codec for codec in COMPRESSED if codec is not Codec.SNAPPY])
def test_a_bomb_is_stopped_on_its_way(codec: Codec) -> None:
    bomb = compress(codec, bytes(50_000_000))
    with pytest.raises(CorruptMessage):
        decompress(codec, bomb, 1_000_000)


def test_a_snappy_block_that_promises_gigabytes_is_refused_before_it_is_opened() -> None:
    with pytest.raises(CorruptMessage):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00a" * 40, 1_000_000)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_streams_are_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for cut in (1, 3, len(packed) // 2, len(packed) - 5):
        with pytest.raises(CorruptMessage):
            decompress(codec, packed[:-cut], len(TEXT))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_streams_may_follow_one_another(codec: Codec) -> None:
    packed = compress(codec, TEXT) + compress(codec, b"and then some")
    assert decompress(codec, packed, len(TEXT) + 13) == TEXT + b"and then some"
    with pytest.raises(CorruptMessage):
        decompress(codec, packed, len(TEXT) + 12)


def test_gzip_members_are_counted() -> None:
    member = gzip.compress(b"")
    assert decompress(Codec.GZIP, member * GZIP_MEMBERS_MAX, 10) == b""
    with pytest.raises(CorruptMessage):
        decompress(Codec.GZIP, member * (GZIP_MEMBERS_MAX + 1), 10)


def test_snappy_is_framed_as_java_writes_it() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed.startswith(XERIAL_MAGIC)
    assert snappy_decode(packed) == TEXT
    assert decompress(Codec.SNAPPY, snappy_encode(TEXT), len(TEXT)) == TEXT


def test_raw_snappy_is_read_too() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT


@pytest.mark.parametrize("content", [b"", b"x", TEXT, TEXT * 10, random.Random(1).randbytes(200_000)])
def test_lz4_is_read_by_the_reference(content: bytes) -> None:
    frame = compress(Codec.LZ4, content)
    assert lz4.frame.decompress(frame) == content
    assert len(frame) <= len(content) + 40
    reported = lz4.frame.get_frame_info(frame)
    assert not reported["block_linked"]
    assert reported["block_size"] >= LZ4_BLOCK_BYTES, "no block is larger than the frame says"


def test_lz4_blocks_are_independent_and_others_are_read() -> None:
    frame = compress(Codec.LZ4, TEXT)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20, "Java refuses frames with linked blocks"
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(TEXT)), len(TEXT)) == TEXT


@pytest.mark.parametrize("number", [5, 6, 7])
def test_numbers_without_codec_are_unsupported(number: int) -> None:
    with pytest.raises(UnsupportedCompressionType):
        codec_of(number)
