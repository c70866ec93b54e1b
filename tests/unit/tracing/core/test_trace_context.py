"""Trace contexts: which headers are valid, and the ids that replicas compute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.tracing.core.trace_context import (
    VALUE_BYTES_MAX,
    TraceContext,
    append_span_id,
    format_traceparent,
    parse_traceparent,
)

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE_ID}-{SPAN_ID}-01"
CONTEXT = TraceContext(int(TRACE_ID, 16), int(SPAN_ID, 16), is_sampled=True)


def test_a_valid_header() -> None:
    assert parse_traceparent(VALID) == parse_traceparent(VALID.encode()) == CONTEXT
    assert parse_traceparent(VALID[:-1] + "0") == CONTEXT._replace(is_sampled=False)
    assert parse_traceparent(VALID[:-2] + "fe") == CONTEXT._replace(is_sampled=False)
    assert parse_traceparent(VALID[:-2] + "ff") == CONTEXT


def test_later_versions_may_be_longer() -> None:
    assert parse_traceparent(f"cc{VALID[2:]}") == CONTEXT
    assert parse_traceparent(f"cc{VALID[2:]}-what the future brings") == CONTEXT
    assert parse_traceparent(f"cc{VALID[2:]}.more") is None
    assert parse_traceparent(f"cc{VALID[2:]}-{'x' * VALUE_BYTES_MAX}") is None


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        VALID + "0",
        VALID[:-1],
        VALID + "-",
        VALID + "\n",
        " " + VALID,
        VALID.upper(),
        VALID.replace("-", "_"),
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        "00-" + "\u0661" * 32 + f"-{SPAN_ID}-01",  # digits, but not hexadecimal ASCII
        VALID * 20,
        b"\xff" * 55,
        b"\x00" * 55,
    ],
)
def test_anything_else_is_no_context(value: str | bytes) -> None:
    assert parse_traceparent(value) is None


@given(st.one_of(st.binary(max_size=80), st.text(max_size=80), st.from_regex(r"[0-9a-f-]{50,60}", fullmatch=True)))
def test_no_input_is_an_error(value: bytes | str) -> None:
    found = parse_traceparent(value)
    assert found is None or (found.trace_id > 0 and found.span_id > 0)


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_a_formatted_context_is_parsed_back(trace_id: int, span_id: int, is_sampled: bool) -> None:
    context = TraceContext(trace_id, span_id, is_sampled)
    assert parse_traceparent(format_traceparent(context)) == context


def test_the_id_of_an_append_depends_on_trace_and_place() -> None:
    ids = {
        append_span_id(CONTEXT, "orders", 0, 7),
        append_span_id(CONTEXT, "orders", 0, 8),
        append_span_id(CONTEXT, "orders", 1, 7),
        append_span_id(CONTEXT, "order", 0, 7),
        append_span_id(CONTEXT._replace(span_id=1), "orders", 0, 7),
        append_span_id(CONTEXT._replace(trace_id=1), "orders", 0, 7),
    }
    assert len(ids) == 6
    assert all(0 < each < 2**64 for each in ids)
    assert append_span_id(CONTEXT, "orders", 0, 7) == append_span_id(CONTEXT._replace(is_sampled=False), "orders", 0, 7)
