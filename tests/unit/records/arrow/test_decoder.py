"""Record batches to Arrow, by both kernels."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.record_batches import FALSE_RECORDS, NOW_MS, new_records, raw_batch, sample
from tests.unit.records.arrow.both_kernels import KERNELS, both, decoded, row_of, rows_of

from tidemill.model.errors import CorruptMessage, KafkaError, UnreadableBatch
from tidemill.records.arrow import COLUMNS, Decoder, load_kernels
from tidemill.records.arrow.schema import TIMESTAMP_MS_MAX
from tidemill.records.build import NewRecord, build_batch, end_marker, wrap
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, place, read_header, seal, stamp_append_time
from tidemill.records.read import read_records


@both
@given(records=new_records, codec=st.sampled_from(list(Codec)), base=st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_every_record_becomes_the_row_it_is(kernels: str, records: list[NewRecord], codec: Codec, base: int) -> None:
    batch = build_batch(records, base_offset=base, codec=codec)
    assert rows_of(decoded(kernels, batch)) == [row_of(record) for record in read_records(batch)]


@both
def test_batches_of_different_codecs_stand_in_a_row(kernels: str) -> None:
    batches = [build_batch(sample(5), base_offset=10 * n, codec=codec) for n, codec in enumerate(Codec)]
    expected = [row_of(record) for batch in batches for record in read_records(batch)]
    assert rows_of(decoded(kernels, b"".join(batches))) == expected
    assert rows_of(decoded(kernels, b"".join(batches), rows=7)) == expected


@both
def test_only_offsets_of_the_range_are_given(kernels: str) -> None:
    buffer = b"".join(build_batch(sample(10), base_offset=base) for base in (0, 10, 20))
    assert decoded(kernels, buffer, 5, 23)["offset"].to_pylist() == list(range(5, 23))
    assert decoded(kernels, buffer, 30, 40).num_rows == 0
    assert decoded(kernels, buffer, 7, 7).num_rows == 0


@both
def test_only_wanted_columns_are_made_in_the_wanted_order(kernels: str) -> None:
    batch = build_batch(sample(3))
    for columns in (("offset", "value"), ("topic",), ("headers", "key"), ("partition", "timestampType")):
        table = decoded(kernels, batch, columns=columns)
        assert table.column_names == list(columns)
        assert table.num_rows == 3
        assert table == decoded(kernels, batch).select(columns)


def test_a_column_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="no column colour; the columns are key, value, topic"):
        Decoder("t", 0, columns=("colour",))


@both
def test_no_arrow_batch_has_more_rows_than_wanted(kernels: str) -> None:
    buffer = build_batch(sample(25)) + build_batch(sample(4), base_offset=25) + build_batch(sample(4), base_offset=29)
    found = list(Decoder("t", 3, rows=10, kernels=load_kernels(kernels)).decode(buffer))
    assert [batch.num_rows for batch in found] == [10, 10, 5, 8]
    assert [at for batch in found for at in batch["offset"].to_pylist()] == list(range(33))


@both
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_an_arrow_batch_is_full_with_the_record_batch_that_makes_it_large(kernels: str, codec: Codec) -> None:
    large = [NewRecord(None, b"x" * 1000, timestamp=NOW_MS)] * 3
    buffer = b"".join(build_batch(large, base_offset=3 * each, codec=codec) for each in range(5))
    found = Decoder("t", 3, group_bytes=4000, kernels=load_kernels(kernels)).decode(buffer)
    assert [batch.num_rows for batch in found] == [6, 6, 3]


@both
def test_the_brokers_time_is_shown_as_such(kernels: str) -> None:
    batch = build_batch(sample(2))
    stamp_append_time(batch, 0, NOW_MS + 77)
    rows = rows_of(decoded(kernels, batch))
    assert {(row["timestamp"], row["timestampType"]) for row in rows} == {((NOW_MS + 77) * 1000, 1)}


@both
def test_times_that_do_not_fit_are_set_to_the_last_that_does(kernels: str) -> None:
    times = [2**62, -(2**62), -1, 0]
    batch = build_batch([NewRecord(None, None, (), time) for time in times])
    expected = [TIMESTAMP_MS_MAX * 1000, -TIMESTAMP_MS_MAX * 1000, -1000, 0]
    assert [row["timestamp"] for row in rows_of(decoded(kernels, batch, columns=("timestamp",)))] == expected


@both
def test_headers_that_are_not_text_are_replaced(kernels: str) -> None:
    batch = build_batch([NewRecord(None, None, (("ab", b"1"),), NOW_MS)])
    at = batch.index(b"ab")
    batch[at : at + 2] = b"\xffb"
    (row,) = rows_of(decoded(kernels, batch, verify=False))
    assert row["headers"] == [{"key": "�b", "value": b"1"}]


def transactional(producer_id: int, base: int, count: int = 2) -> bytearray:
    return build_batch(
        sample(count), base_offset=base, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(producer_id: int, base: int, *, commit: bool) -> bytearray:
    batch = end_marker(producer_id, 0, commit, NOW_MS)
    place(batch, 0, base, 0)
    return batch


@both
def test_markers_and_what_was_aborted_are_left_out(kernels: str) -> None:
    buffer = b"".join(
        [
            transactional(1, 0),  # aborted
            transactional(2, 2),  # committed
            build_batch(sample(1), base_offset=4),  # in no transaction
            marker(1, 5, commit=False),
            transactional(1, 6),  # the same producer, committed
            marker(2, 8, commit=True),
            marker(1, 9, commit=True),
            transactional(1, 10),  # aborted again
            marker(1, 12, commit=False),
        ]
    )
    aborted = [(1, 10), (1, 0)]
    assert decoded(kernels, buffer, aborted=aborted)["offset"].to_pylist() == [2, 3, 4, 6, 7]
    assert decoded(kernels, buffer)["offset"].to_pylist() == [0, 1, 2, 3, 4, 6, 7, 10, 11]


@both
def test_a_transaction_aborted_before_the_fetch_starts_is_left_out(kernels: str) -> None:
    buffer = transactional(7, 100) + marker(7, 102, commit=False) + transactional(7, 103)
    assert decoded(kernels, buffer, 100, aborted=[(7, 40)])["offset"].to_pylist() == [103, 104]


@both
def test_a_batch_that_the_fetch_cut_is_left_out(kernels: str) -> None:
    whole, cut = build_batch(sample(3)), build_batch(sample(3), base_offset=3)
    for left in (1, 60, 61, len(cut) - 1):
        assert decoded(kernels, whole + cut[:left])["offset"].to_pylist() == [0, 1, 2]
    assert decoded(kernels, b"").num_rows == 0


@both
@pytest.mark.parametrize("codec", list(Codec))
def test_a_changed_bit_is_found(kernels: str, codec: Codec) -> None:
    batch = build_batch(sample(3), codec=codec)
    batch[-3] ^= 4
    with pytest.raises(CorruptMessage, match="CRC"):
        decoded(kernels, batch)


@both
def test_impossible_counts_and_offsets_are_refused(kernels: str) -> None:
    batch = build_batch(sample(3))
    header = read_header(batch)
    payload = bytes(batch[61:])
    for wrong in (
        header._replace(count=4, last_offset_delta=3),
        header._replace(count=2),
        header._replace(count=2**31 - 1, last_offset_delta=2**31 - 1),
        header._replace(base_offset=-5),
        header._replace(base_offset=2**63 - 2),
        header._replace(last_offset_delta=1),
        header._replace(base_timestamp=2**63 - 1),
    ):
        with pytest.raises(CorruptMessage):
            decoded(kernels, wrap(wrong, payload))


@both
@pytest.mark.parametrize("name", [name for name, (_, count) in FALSE_RECORDS.items() if count])  # else not opened
def test_false_lengths_and_counts_are_refused(kernels: str, name: str) -> None:
    payload, count = FALSE_RECORDS[name]
    batch = bytearray(raw_batch(payload, count))
    seal(batch, 0, len(batch))
    with pytest.raises(CorruptMessage):
        decoded(kernels, batch)


def outcome(kernels: str, buffer: bytes) -> pa.Table | str:
    """The rows, or that there are none: which of several faults is reported is left to the kernel."""
    try:
        return decoded(kernels, buffer, 1, verify=False)
    except KafkaError:
        return "refused"


@given(records=new_records, changes=st.lists(st.tuples(st.integers(61, 400), st.integers(0, 255)), max_size=4))
@settings(max_examples=100, deadline=None)
def test_both_kernels_agree_on_damaged_batches(records: list[NewRecord], changes: list[tuple[int, int]]) -> None:
    batch = build_batch(records)
    for at, byte in changes:
        if at < len(batch):
            batch[at] = byte
    reference, compiled = (outcome(kernels, bytes(batch)) for kernels in KERNELS)
    assert reference == compiled


@given(payload=st.binary(max_size=120), count=st.integers(0, 12))
@settings(max_examples=100, deadline=None)
def test_both_kernels_agree_on_noise(payload: bytes, count: int) -> None:
    header = read_header(build_batch(sample(1)))._replace(count=count, last_offset_delta=max(count - 1, 0))
    batch = bytes(wrap(header, payload))
    reference, compiled = (outcome(kernels, batch) for kernels in KERNELS)
    assert reference == compiled


@given(cut=st.integers(0, 200), grown=st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_both_kernels_agree_on_payloads_of_the_wrong_length(cut: int, grown: int) -> None:
    whole = build_batch(sample(6))
    payload = bytes(whole[61 : max(61, len(whole) - cut)]) + bytes(grown)
    batch = bytes(wrap(read_header(whole), payload))
    reference, compiled = (outcome(kernels, batch) for kernels in KERNELS)
    assert reference == compiled


kinds = st.sampled_from(["plain", "data", "commit", "abort", "compressed"])
steps = st.lists(st.tuples(kinds, st.integers(1, 3)), max_size=12)


def log_of(steps: list[tuple[str, int]]) -> bytes:
    """Batches and markers of three producers, in a row."""
    log, offset = bytearray(), 0
    for kind, producer_id in steps:
        match kind:
            case "plain" | "compressed":
                codec = Codec.NONE if kind == "plain" else Codec.ZSTD
                batch = build_batch(sample(2), base_offset=offset, codec=codec)
            case "data":
                batch = transactional(producer_id, offset)
            case _:
                batch = marker(producer_id, offset, commit=kind == "commit")
        offset = read_header(batch).next_offset
        log += batch
    return bytes(log)


@given(steps=steps, aborted=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 20)), max_size=4), data=st.data())
@settings(max_examples=100, deadline=None)
def test_both_kernels_agree_on_transactions_and_damaged_headers(
    steps: list[tuple[str, int]], aborted: list[tuple[int, int]], data: st.DataObject
) -> None:
    log = bytearray(log_of(steps))
    if log and data.draw(st.booleans()):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    start, end = data.draw(st.integers(0, 10)), data.draw(st.integers(5, 30))

    def seen(kernels: str) -> pa.Table | str:
        try:
            return decoded(kernels, bytes(log), start, end, aborted, verify=False)
        except KafkaError:
            return "refused"

    assert seen("python") == seen("numba")


def test_all_columns_are_those_of_sparks_own_source() -> None:
    assert COLUMNS == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def with_a_bad_batch(codec: Codec) -> bytes:
    """Three batches of which the second cannot be read."""
    batches = [build_batch(sample(3), base_offset=at, codec=codec) for at in (0, 3, 6)]
    batches[1][HEADER_SIZE:] = b"\xa5" * (len(batches[1]) - HEADER_SIZE)
    seal(batches[1], 0, len(batches[1]))
    return b"".join(batches)


@both
@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_cannot_be_read_is_named_or_left_out(kernels: str, codec: Codec) -> None:
    buffer = with_a_bad_batch(codec)
    with pytest.raises(UnreadableBatch, match=r"the batch of t-3 at offsets 3 to 5 cannot be read: .+") as raised:
        decoded(kernels, buffer)
    assert raised.value.next_offset == 6
    assert not raised.value.retriable
    skipped: list[UnreadableBatch] = []
    found = decoded(kernels, buffer, on_unreadable=skipped.append)
    assert found["offset"].to_pylist() == [0, 1, 2, 6, 7, 8]
    assert [str(one) for one in skipped] == [str(raised.value)]


@both
def test_a_batch_with_a_wrong_crc_is_named(kernels: str) -> None:
    batches = [build_batch(sample(3), base_offset=at) for at in (0, 3)]
    batches[1][-1] ^= 1
    with pytest.raises(UnreadableBatch, match=r"offsets 3 to 5 cannot be read: the CRC"):
        decoded(kernels, b"".join(batches))
