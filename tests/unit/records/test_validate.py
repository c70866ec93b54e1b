from typing import Any

import pytest
from tests.unit.records.batches import sample

from tidemill.model.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER, HEADER_SIZE, check_crc, read_header, seal
from tidemill.records.read import read_records
from tidemill.records.validate import check_produced, recompress, records_without_key


def forged(**fields: int) -> bytearray:
    """A batch with other header fields, sealed again."""
    batch = build_batch(sample(3))
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(**fields))
    seal(batch, 0, len(batch))
    return batch


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_good_batches_pass(codec: Codec, kind: Any) -> None:
    batch = build_batch(sample(3), codec=codec, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert check_produced(kind(batch), version=9) == read_header(batch)


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        bytes(16) + b"\x01" + bytes(100),
        bytes(16) + b"\x00",
        build_batch(sample()) * 2,
        build_batch(sample()) + b"x",
        forged(count=0),
        forged(count=-1),
        forged(count=2),
        forged(last_offset_delta=-1, count=0),
        forged(last_offset_delta=2**31 - 1),
        forged(attributes=0x20),
        forged(attributes=0x30, producer_id=1, base_sequence=0),
        forged(producer_id=1, base_sequence=-1),
        forged(attributes=0x10, base_sequence=0),
    ],
)
def test_what_a_producer_may_not_send_is_invalid(batch: bytes | bytearray) -> None:
    with pytest.raises(InvalidRecord):
        check_produced(batch, version=9)


@pytest.mark.parametrize(
    "batch",
    [
        b"\x00",
        build_batch(sample())[:HEADER_SIZE],
        build_batch(sample())[:-1],
        forged(length=10),
        forged(length=2**31 - 1),
    ],
)
def test_cut_batches_are_corrupt(batch: bytes | bytearray) -> None:
    with pytest.raises(CorruptMessage):
        check_produced(batch, version=9)


def test_a_wrong_crc_comes_before_wrong_fields() -> None:
    batch = forged(count=-1)
    batch[-1] ^= 1
    with pytest.raises(CorruptMessage):
        check_produced(batch, version=9)


def test_zstd_needs_produce_7() -> None:
    batch = build_batch(sample(), codec=Codec.ZSTD)
    assert check_produced(batch, version=7).codec == Codec.ZSTD
    with pytest.raises(UnsupportedCompressionType):
        check_produced(batch, version=6)
    with pytest.raises(UnsupportedCompressionType):
        check_produced(forged(attributes=5), version=9)


@pytest.mark.parametrize("before", Codec)
@pytest.mark.parametrize("after", Codec)
def test_recompression_changes_the_codec_only(before: Codec, after: Codec) -> None:
    batch = build_batch(sample(50), codec=before, producer_id=8, producer_epoch=1, base_sequence=2, transactional=True)
    again = recompress(batch, after)
    header, was = read_header(again), read_header(batch)
    check_crc(again, 0, header)
    assert header.codec == after
    assert header._replace(length=0, crc=0, attributes=0) == was._replace(length=0, crc=0, attributes=0)
    assert header.transactional
    assert list(read_records(again)) == list(read_records(batch))
    assert (again is batch) == (before is after)


def test_recompressing_what_is_not_compressed_data_is_the_producers_fault() -> None:
    with pytest.raises(InvalidRecord):
        recompress(forged(attributes=int(Codec.GZIP)), Codec.NONE)
    with pytest.raises(InvalidRecord):
        recompress(build_batch([NewRecord(b"k", bytes(10_000))], codec=Codec.GZIP), Codec.ZSTD, limit_bytes=5_000)


def test_records_without_key_are_named_by_index() -> None:
    records = [NewRecord(key, b"v") for key in (b"a", None, b"", None)]
    assert records_without_key(build_batch(records, codec=Codec.LZ4)) == [1, 3]
    assert records_without_key(build_batch(sample())) == []
    with pytest.raises(InvalidRecord):
        records_without_key(forged(attributes=int(Codec.SNAPPY)))
