"""Positions and times that clients send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.servers.http.core.record_positions import (
    InvalidPosition,
    decode_positions,
    decode_time,
    encode_positions,
)


@given(st.dictionaries(st.integers(0, 499), st.integers(0, 2**63 - 1), min_size=1))
def test_positions_return(offsets: dict[int, int]) -> None:
    assert decode_positions(encode_positions(offsets), range(500)) == offsets


@pytest.mark.parametrize(
    "text", ["", "1", "1:", "a:1", "1:1,", "-1:1", "1:-1", "1:1;2:2", "1:" + "9" * 30, "0:1" * 1000]
)
def test_positions_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidPosition, match="use one of an earlier page"):
        decode_positions(text, range(10))


def test_positions_of_other_partitions_are_refused() -> None:
    with pytest.raises(InvalidPosition, match="of other partitions"):
        decode_positions("0:1,1:1", (0,))


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1790000000000", 1_790_000_000_000),
        (" -1 ", -1),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86_400_000),
    ],
)
def test_times(text: str, time_ms: int) -> None:
    assert decode_time(text) == time_ms


@pytest.mark.parametrize("text", ["", "soon", "1_000", "9" * 40, "2026-13-01"])
def test_times_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidPosition, match="is not a time"):
        decode_time(text)
