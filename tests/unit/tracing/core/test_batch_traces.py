"""Trace contexts in the headers of real batches, whatever the bytes are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compression import Codec
from tidemill.records.header import read_header
from tidemill.tracing.core.batch_traces import OPENED_BYTES_MAX, TRACES_MAX, OpenedBatch, traces_in
from tidemill.tracing.core.sampling import Sampler
from tidemill.tracing.core.trace_context import TraceContext

ALL, FOLLOWING = Sampler(follows_client=False), Sampler()


def traceparent(trace_id: int, flags: str = "01") -> tuple[str, bytes]:
    return "traceparent", f"00-{trace_id:032x}-{7:016x}-{flags}".encode()


def record(*headers: tuple[str, bytes | None], value: bytes = b"v") -> NewRecord:
    return NewRecord(None, value, headers, 1)


def opened(batch: bytearray, sampler: Sampler = FOLLOWING) -> OpenedBatch:
    return traces_in(batch, read_header(batch), sampler)


@pytest.mark.parametrize("codec", list(Codec))
def test_each_trace_is_found_once_with_its_first_record(codec: Codec) -> None:
    records = [record(), record(traceparent(1)), record(("x", b"y"), traceparent(2)), record(traceparent(1))]
    found = opened(build_batch(records, codec=codec))
    assert [(each.context.trace_id, each.offset_delta) for each in found.traces] == [(1, 1), (2, 2)]
    assert found.opened_bytes > 0


def test_the_sampler_decides() -> None:
    batch = build_batch([record(traceparent(1, "00")), record(traceparent(2))])
    assert [each.context for each in opened(batch).traces] == [TraceContext(2, 7, is_sampled=True)]
    assert len(opened(batch, ALL).traces) == 2


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("traceparent", None),),
        (("traceparent", b"traceparent"),),
        (traceparent(1), traceparent(2)),
        (("Traceparent", traceparent(1)[1]),),
    ],
)
def test_records_without_a_trace(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    assert opened(build_batch([record(*headers, value=b"traceparent")])).traces == ()


def test_a_batch_has_a_limited_number_of_traces() -> None:
    batch = build_batch([record(traceparent(number + 1)) for number in range(TRACES_MAX + 5)])
    assert len(opened(batch).traces) == TRACES_MAX


def test_only_the_first_records_are_read() -> None:
    plain = [record()] * 1_000
    assert opened(build_batch([*plain, record(traceparent(1))])).traces == ()
    assert len(opened(build_batch([*plain[1:], record(traceparent(1))])).traces) == 1


def test_large_batches_stay_closed() -> None:
    large = build_batch([record(traceparent(1), value=bytes(OPENED_BYTES_MAX))])
    assert opened(large) == OpenedBatch()
    bomb = build_batch([record(traceparent(1), value=bytes(OPENED_BYTES_MAX))], codec=Codec.GZIP)
    assert len(bomb) < OPENED_BYTES_MAX // 10
    assert opened(bomb) == OpenedBatch(opened_bytes=OPENED_BYTES_MAX)


@given(st.data())
def test_damaged_batches_have_no_error(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4]))
    batch = build_batch([record(traceparent(1)), record(traceparent(2))], codec=codec)
    header = read_header(batch)
    for _ in range(data.draw(st.integers(1, 8))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    assert len(traces_in(batch, header, ALL).traces) <= 2
