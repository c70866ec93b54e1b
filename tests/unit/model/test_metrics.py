"""Histograms: many values at once are counted as each alone."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.metrics import SECONDS_BOUNDS, Histogram

seconds = st.one_of(st.sampled_from(SECONDS_BOUNDS), st.floats(0, 20))


@given(st.lists(st.lists(seconds, min_size=1), min_size=1))
def test_many_values_are_counted_as_each_alone(batches: list[list[float]]) -> None:
    together, alone = Histogram(), Histogram()
    for batch in batches:
        for value in batch:
            alone.add(value)
        together.add_all(batch)
    assert (together.counts, together.largest) == (alone.counts, alone.largest)
    assert abs(together.total - alone.total) < 1e-6 * max(1.0, alone.total)
