"""Batches become rows and the same batches again, byte for byte, whatever is in them."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.records.arrow import Kernels, load_kernels
from tidemill.records.build import NewRecord, build_batch, end_marker
from tidemill.records.compact import compact_batch, empty_batch
from tidemill.records.compression import Codec
from tidemill.records.header import place, read_header, seal
from tidemill.streams.clickhouse.rows import EXPIRES_MAX_S, BatchRows, batches_of, outline_of, rows_of
from tidemill.streams.clickhouse.statements import PartitionRef

NOW = 1_794_859_462_723
KERNELS = [load_kernels("python"), load_kernels("numba")]
BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=6), BYTES), max_size=3).map(tuple)
RECORDS = st.lists(st.builds(NewRecord, BYTES, BYTES, HEADERS, st.integers(-(10**13), 10**13)), min_size=1, max_size=12)


def laid(*batches: bytearray) -> list[bytearray]:
    """The batches one behind the other, as a log has them."""
    offset = 0
    for batch in batches:
        place(batch, 0, offset, 7)
        offset = read_header(batch).next_offset
    return list(batches)


def rows(batches: list[bytearray], kernels: Kernels) -> pa.Table:
    entries = [BatchRows(PartitionRef("orders", 3), read_header(batch), batch, EXPIRES_MAX_S) for batch in batches]
    return pa.Table.from_batches([rows_of(entries, NOW, kernels)]).sort_by("offset")


def some_records(count: int = 5) -> list[NewRecord]:
    return [NewRecord(b"k%d" % n, b"v", (("h", b"1"), ("g", None)), NOW + n) for n in range(count)]


@settings(max_examples=60)
@given(
    groups=st.lists(st.tuples(RECORDS, st.sampled_from(list(Codec))), min_size=1, max_size=4),
    kernels=st.sampled_from(KERNELS),
)
def test_every_batch_comes_back(groups: list[tuple[list[NewRecord], Codec]], kernels: Kernels) -> None:
    batches = laid(*(build_batch(records, codec=codec) for records, codec in groups))
    found = batches_of(rows(batches, kernels), kernels)
    assert [bytes(batch) for _, batch in found] == [bytes(batch) for batch in batches]


@pytest.mark.parametrize("kernels", KERNELS, ids=lambda kernels: kernels.name)
def test_producers_transactions_and_markers_come_back(kernels: Kernels) -> None:
    batches = laid(
        build_batch(some_records(), producer_id=5, producer_epoch=2, base_sequence=2**31 - 3, transactional=True),
        end_marker(5, 2, True, NOW),
        end_marker(5, 2, False, NOW, 9),
        empty_batch(read_header(build_batch(some_records(), producer_id=5, producer_epoch=2, base_sequence=4))),
    )
    table = rows(batches, kernels)
    assert [bytes(batch) for _, batch in batches_of(table, kernels)] == [bytes(batch) for batch in batches]
    assert table["sequence"].to_pylist()[:5] == [2**31 - 3, 2**31 - 2, 2**31 - 1, 0, 1]
    assert table["mark"].to_pylist()[5:] == [1, 2, 3]


@pytest.mark.parametrize("kernels", KERNELS, ids=lambda kernels: kernels.name)
def test_a_compacted_batch_is_restored_with_its_holes(kernels: Kernels) -> None:
    records = [*some_records(), NewRecord(b"gone", None, (), NOW)]
    kept = compact_batch(build_batch(records), lambda record: record.offset in {1, 5}, delete_horizon_ms=NOW + 777)
    assert kept is not None
    batches = laid(kept, build_batch(some_records()))
    assert [bytes(batch) for _, batch in batches_of(rows(batches, kernels), kernels)] == [
        bytes(batch) for batch in batches
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_an_unreadable_batch_is_one_row_and_is_restored_unchanged(codec: Codec) -> None:
    damaged = build_batch(some_records(), codec=codec)
    damaged[-3] ^= 0xFF
    damaged[64] ^= 0xFF
    seal(damaged, 0, len(damaged))
    strange = build_batch([NewRecord(None, b"v", (), -(2**62))])
    batches = laid(build_batch(some_records()), damaged, strange, build_batch(some_records(2)))
    table = rows(batches, KERNELS[0])
    assert table["mark"].to_pylist() == [0] * 5 + [4, 4] + [0] * 2
    assert [bytes(batch) for _, batch in batches_of(table, KERNELS[0])] == [bytes(batch) for batch in batches]


def test_an_outline_has_headers_and_markers() -> None:
    batches = laid(build_batch(some_records()), end_marker(5, 2, True, NOW))
    table = rows(batches, KERNELS[0])
    first = outline_of(table.take(pa.array([0, 5])), KERNELS[0])
    assert [stored.header.next_offset for stored in first] == [5, 6]
    assert first[0].header[5:] == read_header(batches[0])[5:]
    assert (first[0].header.size, bytes(first[1].batch)) == (len(batches[0]), bytes(batches[1]))
