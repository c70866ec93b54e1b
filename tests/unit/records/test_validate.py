from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.record_batches import new_records, sample

from tidemill.model.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from tidemill.records.build import NewRecord, build_batch, wrap
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER, HEADER_SIZE, LENGTH_END, check_crc, read_header, seal
from tidemill.records.read import read_records
from tidemill.records.validate import check_produced, check_records, is_plain, recompress, records_without_key


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
def test_an_invalid_batch_of_a_producer_is_rejected(batch: bytes | bytearray) -> None:
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


def sealed(payload: bytes, count: int, codec: Codec = Codec.NONE) -> bytearray:
    """A batch with this payload, whatever it is, behind a header and a CRC that are right."""
    header = read_header(build_batch(sample(1)))
    header = header._replace(
        attributes=int(codec), count=count, last_offset_delta=count - 1, length=HEADER_SIZE - LENGTH_END + len(payload)
    )
    batch = bytearray(HEADER.pack(*header) + payload)
    seal(batch, 0, len(batch))
    return batch


@pytest.mark.parametrize("codec", Codec)
def test_a_count_that_the_bytes_cannot_hold_is_invalid(codec: Codec) -> None:
    with pytest.raises(InvalidRecord, match="2147483647 records"):
        check_produced(sealed(b"\x10" * 200, 2**31 - 1, codec), version=9)


@pytest.mark.parametrize("codec", Codec)
def test_the_most_records_that_a_codec_can_hold_pass(codec: Codec) -> None:
    batch = build_batch([NewRecord(None, None, (), 1)] * 60_000, codec=codec)
    assert check_produced(batch, version=9).count == 60_000
    check_records(batch)


RECORD = b"\x0c\x00\x00\x00\x01\x01\x00"


def numbered(*indexes: int) -> bytes:
    """The shortest records, with these offset deltas."""
    return b"".join(RECORD[:3] + bytes([index * 2]) + RECORD[4:] for index in indexes)


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (numbered(0, 1, 2), 2),
        (numbered(0, 1) + b"\x00" * 7, 3),
        (numbered(0, 1) + b"\x0b" + bytes(6), 3),
        (numbered(0, 1) + b"\x0d" + numbered(2)[1:], 3),
        (RECORD + b"\x0e" + numbered(1)[1:], 2),
        (RECORD + b"\x80\x80\x80\x80\x10" + numbered(1), 2),
        (RECORD + b"\x80" * 20, 2),
        (RECORD + b"\x80\x80\x80\x80\x80\x80", 2),
    ],
)
def test_lengths_that_do_not_fill_the_batch_are_invalid(payload: bytes, count: int) -> None:
    assert not is_plain(payload, count)
    with pytest.raises(InvalidRecord):
        check_records(sealed(payload, count))


@given(new_records)
def test_honest_records_pass(records: list[NewRecord]) -> None:
    batch = build_batch(records)
    check_records(batch)
    near = max(abs(record.timestamp - records[0].timestamp) for record in records) < 2**40
    assert is_plain(memoryview(batch)[HEADER_SIZE:], len(records)) or not near


@given(new_records, st.data())
def test_the_quick_check_passes_nothing_that_a_reader_refuses(records: list[NewRecord], data: st.DataObject) -> None:
    payload = bytearray(build_batch(records)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    batch = sealed(bytes(payload), len(records))
    if is_plain(bytes(payload), len(records)):
        assert len(list(read_records(batch))) == len(records)


@pytest.mark.parametrize("count", [64, 65, 8_192, 8_193, 20_000, 2**20 + 2])
def test_offset_deltas_of_every_width_are_checked(count: int) -> None:
    batch = build_batch([NewRecord(None, None, (), 1)] * count)
    check_records(batch)
    assert is_plain(memoryview(batch)[HEADER_SIZE:], count) or count > 2**20
    last = -1 - len(RECORD[4:])
    batch[last] ^= 1
    with pytest.raises(InvalidRecord, match="offset delta"):
        check_records(batch)


@pytest.mark.parametrize(
    "payload",
    [
        RECORD[:3] + b"\x03" + RECORD[4:],
        RECORD[:3] + b"\x02" + RECORD[4:],
        b"\x14\x00\x00\x00\x80\x80\x80\x80\x10\x01\x00",
        RECORD[:4] + b"\x03\x01\x00",
        RECORD[:6] + b"\x02",
    ],
    ids=["negative delta", "delta 1 of 1", "key of 2^31 bytes", "key of -2 bytes", "header that is not there"],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_malformed_record_is_rejected(payload: bytes, codec: Codec) -> None:
    batch = wrap(read_header(sealed(payload, 1, codec)), payload)
    check_produced(batch, version=9)
    with pytest.raises(InvalidRecord, match="cannot be read"):
        check_records(batch)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_compressed_garbage_is_found_when_records_are_checked(codec: Codec) -> None:
    batch = sealed(b"\xa5garbage" * 4, 3, codec)
    check_produced(batch, version=9)
    with pytest.raises(InvalidRecord, match="cannot be read"):
        check_records(batch)
    with pytest.raises(InvalidRecord):
        recompress(batch, Codec.NONE)


def test_a_recompressed_batch_holds_the_records_that_it_counts() -> None:
    batch = wrap(read_header(sealed(b"", 2, Codec.ZSTD)), RECORD)
    check_produced(batch, version=9)
    with pytest.raises(InvalidRecord, match="records do not fit into"):
        recompress(batch, Codec.LZ4)


def test_a_delete_horizon_is_not_the_producers_to_set() -> None:
    with pytest.raises(InvalidRecord, match="delete horizon"):
        check_produced(forged(attributes=0x40), version=9)
