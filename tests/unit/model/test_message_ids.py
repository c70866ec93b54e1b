"""Ids that grow with time."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.message_ids import RANDOM_BITS, new_id

TIMES = st.integers(0, 253_402_300_799_999)
BITS = st.integers(0, (1 << RANDOM_BITS) - 1)


@given(TIMES, BITS, TIMES, BITS)
def test_ids_sort_by_time_and_differ(first_ms: int, first: int, second_ms: int, second: int) -> None:
    one, two = new_id(first_ms, first), new_id(second_ms, second)
    assert len(one) == len(two) == 32
    assert (one < two) == ((first_ms, first) < (second_ms, second))
