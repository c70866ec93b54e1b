"""Reading: round trips, batches of other clients, and damaged bytes."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch as kio_read_batch
from kio.records.schema import NewRecordBatch as KioBatch
from kio.records.schema import Record as KioRecord
from kio.records.schema import RecordHeader as KioHeader
from kio.records.writers import write_new_batch as kio_write_batch
from kio.static.primitive import i8, i16, i32, i64
from tests.support.record_batches import FALSE_RECORDS, GOOD, NOW_MS, new_records, raw_batch, sample
from tests.unit.records.kafka_python import KafkaPythonBatch, KafkaPythonBuilder

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.records.build import NewRecord, build_batch, varint
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, check_crc, read_header, stamp_append_time
from tidemill.records.incremental_compression import compress
from tidemill.records.read import read_records, read_varint
from tidemill.records.record import Record

# kio keeps whole seconds when it reads, and calculates with floats when it writes.
records_of_whole_seconds = new_records.map(
    lambda records: [record._replace(timestamp=record.timestamp // 1000 * 1000) for record in records]
)
EPOCH: Any = datetime.fromtimestamp(0, UTC)


def placed(records: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + i, record.timestamp, record.key, record.value, record.headers)
        for i, record in enumerate(records)
    ]


@settings(max_examples=60, deadline=None)
@given(new_records, st.sampled_from(Codec), st.integers(0, 2**60))
def test_a_built_batch_is_read_back(records: list[NewRecord], codec: Codec, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    check_crc(batch, 0, read_header(batch))
    for kind in (bytes, bytearray, memoryview):
        assert list(read_records(kind(batch))) == placed(records, base_offset)


@settings(max_examples=40, deadline=None)
@given(records_of_whole_seconds)
def test_kio_reads_what_is_built(records: list[NewRecord]) -> None:
    theirs, _ = kio_read_batch(bytes(build_batch(records)), 0)
    assert [
        (
            record.offset,
            (record.timestamp - EPOCH) // timedelta(milliseconds=1),
            record.key,
            record.value,
            tuple(((header.key or b"").decode(), header.value) for header in record.headers),
        )
        for record in theirs.records
    ] == placed(records)


@settings(max_examples=40, deadline=None)
@given(records_of_whole_seconds)
def test_batches_of_kio_are_read_and_built_identically(records: list[NewRecord]) -> None:
    theirs = KioBatch(
        producer_id=i64(9),
        producer_epoch=i16(2),
        base_sequence=i32(5),
        attributes=i16(0),
        records=tuple(
            KioRecord(
                attributes=i8(0),
                timestamp=EPOCH + timedelta(milliseconds=record.timestamp),
                offset=i64(index),
                key=record.key,
                value=record.value,
                headers=tuple(KioHeader(key=key.encode(), value=value) for key, value in record.headers),
            )
            for index, record in enumerate(records)
        ),
    )
    buffer = io.BytesIO()
    kio_write_batch(buffer, theirs)
    written = buffer.getvalue()
    assert list(read_records(written)) == placed(records)
    ours = build_batch(records, producer_id=9, producer_epoch=2, base_sequence=5)
    assert ours[HEADER_SIZE:] == written[HEADER_SIZE:]


@settings(max_examples=60, deadline=None)
@given(new_records, st.sampled_from(Codec))
def test_aiokafka_reads_and_writes_the_same(records: list[NewRecord], codec: Codec) -> None:
    batch = AiokafkaBatch(bytes(build_batch(records, codec=codec)))
    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == placed(records)
    builder = AiokafkaBuilder(2, codec.value, 0, -1, -1, -1, 10**9)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    theirs = bytes(builder.build())
    check_crc(theirs, 0, read_header(theirs))
    assert list(read_records(theirs)) == placed(records)


@settings(max_examples=40, deadline=None)
@given(new_records)
def test_kafka_python_reads_and_writes_the_same(records: list[NewRecord]) -> None:
    batch = KafkaPythonBatch(bytes(build_batch(records)))
    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == placed(records)
    builder = KafkaPythonBuilder(2, 0, False, 4, 1, 8, 10**9)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    theirs = bytes(builder.build())
    ours = build_batch(records, producer_id=4, producer_epoch=1, base_sequence=8)
    assert read_header(ours)._replace(leader_epoch=-1, crc=0) == read_header(theirs)._replace(leader_epoch=-1, crc=0)
    assert ours[HEADER_SIZE:] == theirs[HEADER_SIZE:]


def test_with_append_time_all_records_carry_it() -> None:
    batch = build_batch(sample(3))
    stamp_append_time(batch, 0, NOW_MS + 1000)
    assert [record.timestamp for record in read_records(batch)] == [NOW_MS + 1000] * 3


@settings(max_examples=100, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_of_64_bits(number: int) -> None:
    encoded = varint(number)
    assert read_varint(encoded + b"\xff", 0) == (number, len(encoded))
    with pytest.raises(IndexError):
        read_varint(encoded[:-1], 0)


def test_endless_varints_are_refused() -> None:
    with pytest.raises(CorruptMessage):
        read_varint(b"\xff" * 100, 0)


def test_an_emptied_batch_has_no_records() -> None:
    assert list(read_records(raw_batch(b"", 0, last_offset_delta=9))) == []


def test_a_count_of_no_headers_may_take_two_bytes() -> None:
    [record] = read_records(raw_batch(varint(9) + GOOD[:-1] + b"\x80\x00", 1))
    assert record.headers == ()


def test_header_keys_that_are_not_text_are_replaced() -> None:
    body = b"\x00\x00\x00\x01\x01\x02" + b"\x04\xff\xfe\x01"
    (record,) = read_records(raw_batch(varint(len(body)) + body, 1))
    assert record.headers == (("\ufffd\ufffd", None),)


@pytest.mark.parametrize("name", FALSE_RECORDS)
@pytest.mark.parametrize("codec", Codec)
def test_false_lengths_and_counts_are_corrupt(name: str, codec: Codec) -> None:
    payload, count = FALSE_RECORDS[name]
    with pytest.raises(CorruptMessage):
        list(read_records(raw_batch(compress(codec, payload), count, attributes=int(codec))))


def test_a_cut_batch_is_corrupt() -> None:
    batch = build_batch(sample())
    for size in range(len(batch)):
        with pytest.raises(CorruptMessage):
            list(read_records(bytes(batch[:size])))


def test_an_unknown_codec_is_unsupported() -> None:
    with pytest.raises(UnsupportedCompressionType):
        read_records(raw_batch(varint(len(GOOD)) + GOOD, 1, attributes=6))


def test_bytes_behind_the_batch_are_not_its_own() -> None:
    records = sample(2)
    assert list(read_records(bytes(build_batch(records)) + b"more")) == placed(records)


def test_nulls_and_empties_stay_apart() -> None:
    records = [NewRecord(None, b"", (("", None), ("e", b"")), 5), NewRecord(b"", None, (), 4)]
    assert list(read_records(build_batch(records))) == placed(records)


@pytest.mark.parametrize("codec", Codec)
def test_many_records_with_offsets_of_several_bytes(codec: Codec) -> None:
    records = sample(20_000)
    batch = build_batch(records, codec=codec, base_offset=2**50)
    assert list(read_records(batch)) == placed(records, 2**50)
