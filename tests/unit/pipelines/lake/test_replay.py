"""The position of a replay as metadata of commits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.core.replay import positions_from_texts, positions_to_texts


@given(st.dictionaries(st.integers(0, 50), st.integers(0, 10**12)), st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_the_positions_of_a_replay_read_back(positions: dict[int, int], count: int) -> None:
    texts = positions_to_texts(positions, count)
    assert set(texts) <= set(range(count))
    assert positions_from_texts([*texts.values(), "batch=1 tasks=2"]) == positions


def test_positions_that_do_not_fit_are_reported() -> None:
    with pytest.raises(PipelineError, match="too few partitions"):
        positions_to_texts(dict.fromkeys(range(1000), 10**9), 1)
