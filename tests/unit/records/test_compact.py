import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.support.record_batches import NOW_MS, new_records, sample

from tidemill.records.build import NewRecord, build_batch, end_marker, marker_of
from tidemill.records.compact import compact_batch, empty_batch
from tidemill.records.compression import Codec
from tidemill.records.header import check_crc, read_header, stamp_append_time
from tidemill.records.read import read_records

HORIZON_MS = NOW_MS + 86_400_000


@hypothesis_settings(max_examples=80)
@given(new_records, st.sampled_from(Codec), st.data())
def test_compaction_keeps_offset_time_and_content(records: list[NewRecord], codec: Codec, data: st.DataObject) -> None:
    stays = data.draw(st.sets(st.integers(0, len(records) - 1)))
    horizon_ms = data.draw(st.sampled_from([None, HORIZON_MS]))
    batch = build_batch(
        records, base_offset=50, codec=codec, producer_id=3, producer_epoch=1, base_sequence=9, transactional=True
    )
    again = compact_batch(batch, lambda record: record.offset - 50 in stays, delete_horizon_ms=horizon_ms)
    expected = [record for record in read_records(batch) if record.offset - 50 in stays]
    if not expected:
        assert again is None
        return
    assert again is not None
    header, was = read_header(again), read_header(batch)
    check_crc(again, 0, header)
    assert list(read_records(again)) == expected
    assert [(r.offset, r.timestamp, r.key, r.value) for r in AiokafkaBatch(bytes(again))] == [r[:4] for r in expected]
    assert header.codec == codec
    assert header.transactional
    assert (header.base_offset, header.last_offset, header.last_sequence) == (50, was.last_offset, was.last_sequence)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 9)
    assert header.max_timestamp == max(record.timestamp for record in expected)
    tombstones = any(record.value is None for record in expected)
    assert header.delete_horizon_ms == (horizon_ms if tombstones else None)


def test_a_batch_that_loses_nothing_keeps_its_bytes() -> None:
    batch = build_batch(sample(9), codec=Codec.GZIP)
    assert compact_batch(bytes(batch) + b"next", lambda _: True, delete_horizon_ms=HORIZON_MS) == batch


def test_a_horizon_is_set_once() -> None:
    batch = build_batch([NewRecord(b"a", None, timestamp=NOW_MS), NewRecord(b"b", b"", timestamp=NOW_MS - 7)])
    first = compact_batch(batch, lambda _: True, delete_horizon_ms=HORIZON_MS)
    assert first is not None
    again = compact_batch(first, lambda record: record.key == b"a", delete_horizon_ms=HORIZON_MS + 5)
    assert again is not None
    assert read_header(again).delete_horizon_ms == HORIZON_MS
    assert [(r.key, r.timestamp) for r in read_records(first)] == [(b"a", NOW_MS), (b"b", NOW_MS - 7)]
    assert [(r.key, r.timestamp) for r in read_records(again)] == [(b"a", NOW_MS)]


def test_a_marker_with_a_horizon_is_still_a_marker() -> None:
    marker = end_marker(4, 2, commit=True, timestamp=NOW_MS)
    dated = compact_batch(marker, lambda _: True, delete_horizon_ms=HORIZON_MS)
    assert dated is not None
    assert marker_of(dated) == marker_of(marker)
    assert read_header(dated).delete_horizon_ms == HORIZON_MS
    assert [record.timestamp for record in read_records(dated)] == [NOW_MS]


@pytest.mark.parametrize("codec", Codec)
def test_an_emptied_batch_holds_offsets_and_sequence(codec: Codec) -> None:
    batch = build_batch(sample(5), base_offset=7, codec=codec, producer_id=1, producer_epoch=0, base_sequence=20)
    empty = compact_batch(batch, lambda _: False, keep_empty=True)
    assert empty is not None
    header = read_header(empty)
    check_crc(empty, 0, header)
    assert (header.count, header.codec, header.size) == (0, Codec.NONE, 61)
    assert (header.base_offset, header.next_offset, header.last_sequence) == (7, 12, 24)
    assert list(read_records(empty)) == []
    assert compact_batch(empty, lambda _: True, keep_empty=True) == empty == empty_batch(header)
    assert compact_batch(empty, lambda _: True) is None


def test_append_time_stays() -> None:
    batch = build_batch(sample(4))
    stamp_append_time(batch, 0, NOW_MS + 500)
    again = compact_batch(batch, lambda record: record.offset == 1)
    assert again is not None
    assert read_header(again).log_append_time
    assert [(record.offset, record.timestamp) for record in read_records(again)] == [(1, NOW_MS + 500)]


def test_times_at_the_border_of_64_bits_do_not_break_a_pass() -> None:
    batch = build_batch([NewRecord(b"k", None, timestamp=-(2**63)), NewRecord(b"l", None, timestamp=-(2**63))])
    again = compact_batch(batch, lambda _: True, delete_horizon_ms=HORIZON_MS)
    assert again is not None
    assert [record.key for record in read_records(again)] == [b"k", b"l"]
