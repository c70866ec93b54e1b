"""Arrow to record batches, by both kernels."""

import inspect
import random
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.record_batches import COMPRESSED, NOW_MS, new_records
from tests.unit.records.arrow.both_kernels import KERNELS, both, decoded

from tidemill.model.errors import InvalidRecord
from tidemill.records.arrow import (
    CONSISTENT_RANDOM,
    MURMUR2_RANDOM,
    BatchProducer,
    Encoded,
    Encoder,
    Kernels,
    load_kernels,
    warm_up,
)
from tidemill.records.arrow.batch_builder import UNPACKED_BYTES_MAX
from tidemill.records.arrow.columns import Columns, Runs
from tidemill.records.arrow.schema import HEADER
from tidemill.records.build import NewRecord, build_batch, encode_records
from tidemill.records.compression import Codec
from tidemill.records.header import check_crc, read_header
from tidemill.records.incremental_compression import Compression
from tidemill.records.read import read_records

HEADERS = pa.list_(HEADER)


def rows(records: list[NewRecord]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in record.headers] or None for record in records], HEADERS
            ),
            "timestamp": pa.array([record.timestamp for record in records], pa.timestamp("ms", tz="UTC")),
        }
    )


def encoded(kernels: str, batch: pa.RecordBatch, **options: object) -> list[Encoded]:
    return list(Encoder(batch, now_ms=NOW_MS, kernels=load_kernels(kernels)).batches(**options))  # type: ignore[arg-type]  # the tests name them right


@both
@given(records=new_records, codec=st.sampled_from(list(Codec)))
@settings(max_examples=60, deadline=None)
def test_rows_become_the_batch_that_their_records_are(kernels: str, records: list[NewRecord], codec: Codec) -> None:
    ((batch, count),) = encoded(kernels, rows(records), codec=codec)
    check_crc(batch, 0, read_header(batch))
    assert count == len(records)
    assert batch == build_batch(records, codec=codec, leader_epoch=-1)


@both
@given(records=new_records, cut=st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_runs_of_rows_become_the_records_of_their_batches(kernels: str, records: list[NewRecord], cut: int) -> None:
    cut = min(cut, len(records))
    deltas = [*range(cut), *range(3, 3 + len(records) - cut)]
    columns = Columns.of(rows(records), NOW_MS)
    runs = Runs(np.array([cut, len(records)]), np.array([NOW_MS, NOW_MS - 5]), np.array(deltas, np.int64))
    made = load_kernels(kernels)
    written = made.write_runs(made.prepare(columns), runs, int(columns.sizes().sum()))
    assert [bytes(each) for each in written] == [
        encode_records(records[:cut], NOW_MS, deltas[:cut]),
        encode_records(records[cut:], NOW_MS - 5, deltas[cut:]),
    ]


@both
@given(records=new_records, start=st.integers(0, 12), limit=st.integers(100, 20_000))
@settings(max_examples=60, deadline=None)
def test_encoded_rows_are_decoded_unchanged(kernels: str, records: list[NewRecord], start: int, limit: int) -> None:
    batch = rows(records).slice(start)
    out = encoded(kernels, batch, batch_bytes=limit)
    for each in out:
        assert len(each.batch) <= limit or each.count == 1
    back = pa.Table.from_batches(
        [
            part
            for each in out
            for part in decoded(kernels, each.batch, columns=("key", "value", "headers")).to_batches()
        ],
        schema=batch.schema.remove(3),
    )
    assert back.to_pylist() == batch.select(["key", "value", "headers"]).to_pylist()


@both
@given(records=new_records, cut=st.integers(0, 12), codec=st.sampled_from([Codec.NONE, Codec.ZSTD]))
@settings(max_examples=60, deadline=None)
def test_the_rows_of_several_arrow_batches_are_one_batch(
    kernels: str, records: list[NewRecord], cut: int, codec: Codec
) -> None:
    draft = None
    for part in (rows(records).slice(0, cut), rows(records).slice(cut)):
        encoder = Encoder(part, now_ms=NOW_MS, kernels=load_kernels(kernels))
        for each in encoder.fill(np.arange(part.num_rows), draft, compression=Compression(codec)):
            draft = each
    assert draft is not None
    assert draft.sealed(BatchProducer()).batch == build_batch(records, codec=codec, leader_epoch=-1)


@both
def test_a_full_draft_is_followed_by_another(kernels: str) -> None:
    encoder = Encoder(pa.record_batch({"value": [b"x" * 50] * 3}), now_ms=NOW_MS, kernels=load_kernels(kernels))
    (first,) = encoder.fill(np.arange(1), batch_bytes=250)
    drafts = list(encoder.fill(np.arange(3), first, batch_bytes=250))
    assert drafts[0] is first
    assert [draft.count for draft in drafts] == [3, 1]
    assert all(len(draft.sealed(BatchProducer()).batch) <= 250 for draft in drafts)


@both
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_compressed_batch_is_filled_as_it_travels(kernels: str, codec: Codec) -> None:
    values = [bytes([number % 7]) * 500 + number.to_bytes(4) for number in range(2000)]
    out = encoded(kernels, pa.record_batch({"value": values}), codec=codec, batch_bytes=20_000)
    assert [record.value for each in out for record in read_records(each.batch)] == values
    assert sum(each.count for each in out) == len(values)
    assert all(len(each.batch) <= 20_000 for each in out)
    assert len(out) < 2000 * 500 // 20_000 // 3
    for each in out:
        check_crc(each.batch, 0, read_header(each.batch))
    theirs = [record.value for each in out for record in AiokafkaBatch(bytes(each.batch))]
    assert theirs == values


@both
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_fits_even_if_nothing_becomes_smaller(kernels: str, codec: Codec) -> None:
    noise = random.Random(3)
    values = [noise.randbytes(noise.randrange(1, 400)) for _ in range(1000)]
    out = encoded(kernels, pa.record_batch({"value": values}), codec=codec, batch_bytes=20_000)
    assert [record.value for each in out for record in read_records(each.batch)] == values
    assert all(len(each.batch) <= 20_000 + 20_000 // 100 for each in out)


def test_the_unpacked_size_of_a_batch_is_bounded() -> None:
    batch = pa.record_batch({"value": [bytes(10_000)] * 1000})
    out = encoded("numba", batch, codec=Codec.ZSTD)
    assert len(out) > 1
    for each in out[:-1]:
        assert UNPACKED_BYTES_MAX // 2 < each.count * 10_000 <= UNPACKED_BYTES_MAX


@both
def test_rows_are_chosen_and_ordered_by_their_numbers(kernels: str) -> None:
    encoder = Encoder(
        pa.record_batch({"value": [b"0", b"1", b"2", b"3"]}), now_ms=NOW_MS, kernels=load_kernels(kernels)
    )
    (only,) = encoder.batches(np.array([3, 1], np.int64))
    assert [(record.offset, record.key, record.value) for record in read_records(only.batch)] == [
        (0, None, b"3"),
        (1, None, b"1"),
    ]
    assert list(encoder.batches(np.array([], np.int64))) == []


@both
def test_the_writer_and_its_sequence_stand_in_every_batch(kernels: str) -> None:
    batch = pa.record_batch({"value": [b"x" * 50] * 6})
    out = encoded(kernels, batch, batch_bytes=200, writer=BatchProducer(9, 4, 2**31 - 3, transactional=True))
    headers = [read_header(each.batch) for each in out]
    assert [header.count for header in headers] == [2, 2, 2]
    assert [header.base_sequence for header in headers] == [2**31 - 3, 2**31 - 1, 1]
    assert {(header.producer_id, header.producer_epoch, header.transactional) for header in headers} == {(9, 4, True)}


@both
def test_a_row_larger_than_a_batch_goes_alone(kernels: str) -> None:
    batch = pa.record_batch({"value": [b"a", b"b" * 5000, b"c", b"d"]})
    assert [each.count for each in encoded(kernels, batch, batch_bytes=1000)] == [1, 1, 2]


@both
def test_text_and_large_columns_and_missing_times_are_taken(kernels: str) -> None:
    batch = pa.record_batch(
        {
            "key": pa.array(["é", None], pa.large_string()),
            "value": pa.array(["v", ""], pa.string()),
            "timestamp": pa.array([5_000_001, None], pa.timestamp("us")),
            "other": [1, 2],
        }
    )
    ((out, _),) = encoded(kernels, batch)
    assert [(record.key, record.value, record.timestamp) for record in read_records(out)] == [
        ("é".encode(), b"v", 5000),
        (None, b"", NOW_MS),
    ]


@pytest.mark.parametrize(
    ("column", "values", "line"),
    [
        ("value", pa.array([1]), "column value has type int64, which cannot be written; use binary or string"),
        (
            "headers",
            pa.array([["x"]]),
            "column headers has type list<.*>, which cannot be written; use list<struct<key: string, value: binary>>",
        ),
        ("headers", pa.array([[{"key": None, "value": b"1"}]], HEADERS), "a header key is null"),
        (
            "timestamp",
            pa.array(["now"]),
            "column timestamp has type string, which cannot be written; use timestamp or long",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_named(column: str, values: pa.Array, line: str) -> None:
    with pytest.raises(InvalidRecord, match=line):
        encoded("python", pa.record_batch({column: values}))


# From Kafka's own tests of its hash.
MURMUR2 = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}


@both
def test_keys_are_hashed_as_by_kafkas_producers(kernels: str) -> None:
    batch = pa.record_batch({"key": pa.array(list(MURMUR2), pa.large_binary())})
    encoder = Encoder(batch, now_ms=0, kernels=load_kernels(kernels))
    by_murmur = encoder.partitions(2**31, 0, MURMUR2_RANDOM).tolist()
    assert by_murmur == [number & 0x7FFFFFFF for number in MURMUR2.values()]
    assert encoder.partitions(2**32, 0).tolist() == [zlib.crc32(key) for key in MURMUR2]


@given(keys=st.lists(st.none() | st.binary(max_size=40), max_size=20), start=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_the_twins_agree_on_partitions(keys: list[bytes | None], start: int) -> None:
    batch = pa.record_batch({"key": pa.array(keys, pa.binary())}).slice(start)
    for partitioner in (CONSISTENT_RANDOM, MURMUR2_RANDOM):
        reference, compiled = (
            Encoder(batch, now_ms=0, kernels=load_kernels(kernels)).partitions(7, 5, partitioner).tolist()
            for kernels in KERNELS
        )
        assert reference == compiled


@both
def test_rows_without_a_key_go_where_the_caller_says(kernels: str) -> None:
    encoder = Encoder(pa.record_batch({"key": [None, b"", b"k"]}), now_ms=0, kernels=load_kernels(kernels))
    assert encoder.partitions(100, 42)[:2].tolist() == [42, 42]
    by_murmur = encoder.partitions(100, 42, MURMUR2_RANDOM).tolist()
    assert by_murmur[0] == 42
    assert by_murmur[1] != 42
    with pytest.raises(ValueError, match="no partitioner 'dice'; choose one of consistent_random, murmur2_random"):
        encoder.partitions(1, 0, "dice")


@both
def test_rows_of_a_partition_keep_their_order(kernels: str) -> None:
    found = load_kernels(kernels).dealt(np.array([2, 0, 2, 0, 5], np.int64), 7)
    assert {partition: part.tolist() for partition, part in found.items()} == {0: [1, 3], 2: [0, 2], 5: [4]}
    assert list(found) == [0, 2, 5]
    assert load_kernels(kernels).dealt(np.array([], np.int64), 7) == {}


class Recording:
    """Kernels that note which of them are used."""

    def __init__(self, kernels: Kernels) -> None:
        self.name = kernels.name
        self.used: set[str] = set()
        self._kernels = kernels

    def __getattr__(self, name: str) -> Any:
        self.used.add(name)
        return getattr(self._kernels, name)


@both
def test_warming_up_uses_every_kernel_without_effect(kernels: str) -> None:
    table = rows([NewRecord(b"k", b"v", (("h", b"1"),), NOW_MS), NewRecord(None, None, (), NOW_MS + 1)])
    before = encoded(kernels, table)
    recording = Recording(load_kernels(kernels))
    warm_up(recording)
    assert recording.used == {
        name for name in vars(Kernels) if inspect.isfunction(getattr(Kernels, name)) and name[0] != "_"
    }
    assert encoded(kernels, table) == before
    assert [batch["value"].to_pylist() for batch in decoded(kernels, before[0].batch).to_batches()] == [[b"v", None]]
