import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch as kio_read_batch
from tests.support.record_batches import NOW_MS, new_records, sample

from tidemill.model.errors import CorruptMessage
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import (
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    check_crc,
    iter_headers,
    place,
    read_header,
    stamp_append_time,
)


@settings(max_examples=50, deadline=None)
@given(new_records, st.integers(0, 2**62), st.integers(-1, 2**31 - 1), st.booleans())
def test_the_header_says_what_kio_reads(
    records: list[NewRecord], base_offset: int, sequence: int, transactional: bool
) -> None:
    batch = build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=7,
        producer_id=12,
        producer_epoch=3,
        base_sequence=sequence,
        transactional=transactional,
    )
    header = read_header(batch)
    theirs, size = kio_read_batch(bytes(batch), 0)
    assert header.size == size == len(batch)
    assert tuple(header) == (
        theirs.base_offset,
        theirs.batch_length,
        theirs.partition_leader_epoch,
        theirs.magic,
        theirs.crc,
        theirs.attributes,
        theirs.last_offset_delta,
        theirs.base_timestamp,
        theirs.max_timestamp,
        theirs.producer_id,
        theirs.producer_epoch,
        theirs.base_sequence,
        len(theirs.records),
    )
    assert header.transactional is transactional
    assert header.next_offset == base_offset + len(records)


def test_headers_are_found_in_a_row() -> None:
    first, second = build_batch(sample(2)), build_batch(sample(3), base_offset=2)
    row = bytes(first + second)
    assert [(at, header.count) for at, header in iter_headers(row)] == [(0, 2), (len(first), 3)]
    assert list(iter_headers(b"")) == []


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_cut_last_batch_is_an_error_unless_it_may_be_cut(cut: int) -> None:
    first, second = build_batch(sample(2)), build_batch(sample(9))
    row = memoryview(first + second)[:-cut]
    assert [at for at, _ in iter_headers(row, partial_ok=True)] == [0]
    with pytest.raises(CorruptMessage):
        list(iter_headers(row))
    with pytest.raises(CorruptMessage):
        check_crc(row, len(first), read_header(row, len(first)))


@pytest.mark.parametrize(
    ("field", "value"), [("magic", 1), ("length", 48), ("length", -1), ("last_offset_delta", -1), ("count", -5)]
)
def test_absurd_headers_are_refused(field: str, value: int) -> None:
    header = read_header(build_batch(sample()))._replace(**{field: value})
    with pytest.raises(CorruptMessage):
        read_header(HEADER.pack(*header) + bytes(100))


def test_a_header_cannot_be_read_from_too_few_bytes() -> None:
    batch = build_batch(sample())
    for position, size in ((0, HEADER_SIZE - 1), (1, HEADER_SIZE), (-1, 200), (500, 100)):
        with pytest.raises(CorruptMessage):
            read_header(bytes(batch[:size]), position)


def test_placing_a_batch_leaves_its_crc_right() -> None:
    row = bytearray(b"before") + build_batch(sample())
    place(row, 6, 2**40, 9)
    header = read_header(row, 6)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    check_crc(row, 6, header)


def test_every_byte_behind_the_crc_is_under_it() -> None:
    batch = build_batch(sample(1))
    header = read_header(batch)
    for position in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptMessage):
            check_crc(damaged, 0, header)


def test_the_append_time_is_stamped_and_sealed() -> None:
    batch = build_batch(sample())
    before = read_header(batch)
    stamp_append_time(memoryview(batch), 0, NOW_MS + 99)
    after = read_header(batch)
    check_crc(batch, 0, after)
    assert not before.log_append_time
    assert after.log_append_time
    assert after.max_timestamp == NOW_MS + 99
    assert after._replace(crc=0, attributes=0, max_timestamp=0) == before._replace(crc=0, attributes=0, max_timestamp=0)


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (5, 3, 8), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 4, 2), (-1, 4, -1)],
)
def test_sequences_wrap_to_zero(base: int, delta: int, last: int) -> None:
    header = BatchHeader(0, 49, 0, 2, 0, 0, delta, 0, 0, 1, 0, base, delta + 1)
    assert header.last_sequence == last


def test_the_delete_horizon_is_known_by_its_bit() -> None:
    header = read_header(build_batch(sample()))
    assert header.delete_horizon_ms is None
    assert header._replace(attributes=0x40, base_timestamp=77).delete_horizon_ms == 77
