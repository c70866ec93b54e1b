"""The store's clock: it never jumps and never goes back, for any change of the wall clock."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.timelines.core.clock import DRIFT_MS_MAX, HOLD_MS, StoreClock


def test_the_clock_follows_the_steady_clock() -> None:
    clock = StoreClock(1_000_000, 50)
    assert clock.now(1_000_010, 60) == 1_000_010
    assert not clock.drifting


def test_a_jump_forward_is_not_followed_until_it_has_lasted() -> None:
    clock = StoreClock(1_000_000, 0)
    assert clock.now(1_000_000 + 120_000, 0) == 1_000_000
    assert clock.drifting
    assert clock.drift_ms == 120_000
    assert clock.now(1_000_000 + 121_000, 1_000) == 1_001_000
    assert clock.now(1_120_000 + HOLD_MS, HOLD_MS) == 1_120_000 + HOLD_MS
    assert not clock.drifting


def test_a_jump_that_is_taken_back_leaves_no_trace() -> None:
    clock = StoreClock(1_000_000, 0)
    clock.now(1_120_000, 0)
    assert clock.now(1_002_000, 2_000) == 1_002_000
    assert not clock.drifting


def test_a_jump_back_stops_the_clock_until_the_wall_clock_catches_up() -> None:
    clock = StoreClock(1_000_000, 0)
    clock.now(880_000, 0)
    believed = clock.now(880_000 + HOLD_MS, HOLD_MS)
    assert believed == 1_000_000
    assert clock.now(999_000, 119_000) == 1_000_000
    assert clock.drifting  # what it calls due is not due yet by the calendar
    assert clock.now(1_000_500, 120_500) == 1_000_500
    assert not clock.drifting


def test_small_differences_are_made_up_slowly() -> None:
    clock = StoreClock(0, 0)
    wall, steady = DRIFT_MS_MAX, 0
    clock.now(wall, steady)
    assert not clock.drifting
    for _ in range(1_000):
        wall, steady = wall + 200, steady + 200
        now = clock.now(wall, steady)
    assert now == wall


@given(st.lists(st.tuples(st.integers(-200_000, 200_000), st.integers(0, 20_000)), max_size=60))
def test_the_clock_never_goes_back_and_never_runs_ahead_of_both_clocks(steps: list[tuple[int, int]]) -> None:
    wall, steady = 10**12, 0
    clock = StoreClock(wall, steady)
    last = wall
    highest = wall
    for jump, passed in steps:
        wall, steady = wall + jump + passed, steady + passed
        highest = max(highest + passed, wall)
        now = clock.now(wall, steady)
        assert last <= now <= highest
        last = now


def test_a_second_jump_has_to_last_for_its_own_time() -> None:
    clock = StoreClock(1_000_000, 0)
    clock.now(1_120_000, 0)
    clock.now(1_002_000, 2_000)
    later_ms = HOLD_MS + 12_000
    assert clock.now(1_120_000 + later_ms, later_ms) == 1_000_000 + later_ms
    assert clock.drifting


def test_a_small_difference_is_corrected_by_five_in_a_thousand() -> None:
    clock = StoreClock(0, 0)
    assert clock.now(500, 0) == 0
    assert clock.now(700, 200) == 201
    assert clock.now(1_500, 1_000) == 1_005
