"""The bars of the histogram of a timeline."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.servers.http.core.future_grid import (
    BARS_WANTED,
    DAY_MS,
    END_MS,
    HOUR_MS,
    MINUTE_MS,
    WIDTHS_MS,
    ZOOM,
    FutureGrid,
    future_grid,
    shifted,
    zoomed_out,
)


@pytest.mark.parametrize(
    ("length_ms", "width_ms"),
    [
        (10, 1),
        (48 * DAY_MS, DAY_MS),
        (49 * DAY_MS, 2 * DAY_MS),
        (HOUR_MS, 2 * MINUTE_MS),
        (DAY_MS, 30 * MINUTE_MS),
        (30 * DAY_MS, DAY_MS),
        (END_MS, WIDTHS_MS[-1]),
    ],
)
def test_bars_have_round_widths(length_ms: int, width_ms: int) -> None:
    assert future_grid(0, length_ms).width_ms == width_ms


def test_the_width_is_the_next_round_one() -> None:
    hours = [1, 2, 6, 12, 24, 48, 7 * 24, 30 * 24, 90 * 24, 365 * 24]
    for width, next_width in pairwise(hours):
        assert future_grid(0, BARS_WANTED * width * HOUR_MS).width_ms == width * HOUR_MS
        assert future_grid(0, BARS_WANTED * width * HOUR_MS + 1).width_ms == next_width * HOUR_MS
    seconds = [0.001, 0.01, 0.1, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600]
    assert [future_grid(0, int(BARS_WANTED * width * 1_000)).width_ms / 1_000 for width in seconds] == seconds


def test_bars_begin_at_round_times() -> None:
    assert future_grid(7 * HOUR_MS + 123, 8 * HOUR_MS) == FutureGrid(7 * HOUR_MS, 2 * MINUTE_MS, 30)


@given(st.integers(-5, END_MS + 5), st.integers(-5, END_MS + 5))
def test_bars_cover_the_range_and_no_more_than_time(from_ms: int, to_ms: int) -> None:
    grid = future_grid(from_ms, to_ms)
    assert 1 <= grid.bars <= BARS_WANTED + 1
    assert 0 <= grid.start_ms < grid.end_ms <= END_MS
    edges = grid.edges()
    assert [end for _, end in edges[:-1]] == [start for start, _ in edges[1:]]
    assert edges[0][0] <= min(max(0, from_ms), END_MS - 1)
    assert edges[-1][1] >= min(max(from_ms + 1, to_ms), END_MS) or edges[-1][1] == END_MS
    low, high = zoomed_out(grid)
    assert 0 <= low <= grid.start_ms
    assert grid.end_ms <= high <= END_MS
    for direction in (-1, 1):
        moved = shifted(grid, direction)
        assert moved is None or (0 <= moved[0] < moved[1] <= END_MS and moved != (grid.start_ms, grid.end_ms))


def test_a_bar_opens_as_bars_inside_of_it() -> None:
    (start_ms, end_ms), *_ = future_grid(0, DAY_MS).edges()
    inside = future_grid(start_ms, end_ms)
    assert (inside.start_ms, inside.end_ms) == (start_ms, end_ms)
    assert inside.width_ms == MINUTE_MS


def test_the_first_range_has_none_before_and_the_last_none_after() -> None:
    assert shifted(future_grid(0, DAY_MS), -1) is None
    assert shifted(future_grid(END_MS - DAY_MS, END_MS), 1) is None
    assert shifted(FutureGrid(DAY_MS, HOUR_MS, 24), 1) == (2 * DAY_MS, 3 * DAY_MS)


def test_a_wider_range_has_the_same_middle() -> None:
    grid = FutureGrid(1_000 * HOUR_MS, HOUR_MS, 10)
    start_ms, end_ms = zoomed_out(grid)
    assert end_ms - start_ms == ZOOM * 10 * HOUR_MS
    assert start_ms + end_ms == grid.start_ms + grid.end_ms
