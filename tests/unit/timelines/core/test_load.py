"""The load of a timeline: arrivals from what was pushed and what is available, and how late messages are."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.timelines.core.load import SMOOTHING_S, LoadFigures, TimelineLoadMeter


def test_the_first_measurement_has_no_rate_yet() -> None:
    assert TimelineLoadMeter().measure(7, None, 1.0, 1_000) == LoadFigures(7, 0.0, 0)


def test_pushed_and_waiting_messages_have_arrived() -> None:
    meter = TimelineLoadMeter()
    meter.measure(10, None, 1.0, 0)
    meter.pushed(80, 3)
    meter.pushed(10, 40)
    assert meter.measure(20, None, 1.0, 1_000) == LoadFigures(20, 100.0, 40)


def test_a_smaller_backlog_is_no_negative_rate() -> None:
    meter = TimelineLoadMeter()
    meter.measure(100, None, 1.0, 0)
    assert meter.measure(0, None, 1.0, 1_000).arrivals_per_s == 0


def test_the_oldest_waiting_message_counts_when_nothing_is_pushed() -> None:
    meter = TimelineLoadMeter()
    assert meter.measure(1, 400, 1.0, 1_000).late_ms == 600
    assert meter.measure(0, 3_000, 1.0, 2_000).late_ms == 0


def test_a_broker_that_pushes_a_part_scales_its_pushes() -> None:
    meter = TimelineLoadMeter()
    meter.measure(0, None, 0.25, 0)
    meter.pushed(25, 0)
    assert meter.measure(0, None, 0.25, 1_000).arrivals_per_s == 100


def test_a_spike_shows_and_ends_within_some_seconds() -> None:
    meter = TimelineLoadMeter()
    meter.measure(0, None, 1.0, 0)
    rates = []
    for second in range(1, 41):
        meter.pushed(1_000 if 10 < second <= 10 + SMOOTHING_S else 10, 0)
        rates.append(meter.measure(0, None, 1.0, second * 1_000).arrivals_per_s)
    assert rates[8] == 10
    assert max(rates) > 500
    assert rates[-1] < 20


def test_after_a_pause_the_rate_begins_again() -> None:
    meter = TimelineLoadMeter()
    meter.measure(0, None, 1.0, 0)
    meter.pushed(100, 0)
    meter.measure(0, None, 1.0, 1_000)
    meter.restart()
    assert meter.measure(50_000, None, 1.0, 900_000).arrivals_per_s == 0


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(-5, 5_000)), max_size=30))
def test_no_rate_is_negative_or_larger_than_any_arrival(steps: list[tuple[int, int, int]]) -> None:
    meter, now_ms = TimelineLoadMeter(), 0
    meter.measure(0, None, 1.0, now_ms)
    for available, pushed, passed_ms in steps:
        now_ms += passed_ms
        meter.pushed(pushed, 0)
        load = meter.measure(available, None, 1.0, now_ms)
        assert 0 <= load.arrivals_per_s <= 20_000 * 1_000
        assert load.late_ms == 0


def test_a_step_of_the_rate_shows_by_63_percent_after_the_smoothing_time() -> None:
    meter = TimelineLoadMeter()
    meter.measure(0, None, 1.0, 0)
    meter.measure(0, None, 1.0, 1_000)
    for part in range(1, 11):
        meter.pushed(round(100 * SMOOTHING_S), 0)  # 1,000 a second
        found = meter.measure(0, None, 1.0, 1_000 + round(part * SMOOTHING_S * 100))
    assert 630 <= found.arrivals_per_s <= 633
