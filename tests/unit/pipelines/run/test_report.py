"""The numbers of a report."""

import pytest
from tests.unit.pipelines.run.sample_report import REPORT

from tidemill.pipelines.run.core.report import TrafficReport, step_s


@pytest.mark.parametrize(
    ("span_s", "step"),
    [(240 * step, step) for step in (1, 2, 5, 10, 30, 60, 300, 900, 3_600, 14_400, 86_400)]
    + [(0.001, 1), (240.001, 2), (241, 2), (3600.001, 30), (86_400, 900), (10_000 * 86_400, 86_400)],
)
def test_a_plot_has_at_most_so_many_points(span_s: float, step: int) -> None:
    assert step_s(round(span_s * 1000)) == step


def test_topics_and_groups_are_added_up() -> None:
    clicks, orders = REPORT.topics
    assert (clicks.topic, clicks.records, clicks.bytes, clicks.records_per_s, clicks.peak_per_s) == (
        "clicks",
        300,
        30_000,
        30.0,
        30.0,
    )
    assert (orders.topic, orders.records, orders.records_per_s, orders.peak_per_s) == ("orders", 120, 4.0, 10.0)
    assert (clicks.newest_ms, orders.newest_ms) == (20_000, 30_000)
    assert REPORT.moments == [0, 10_000, 20_000]
    assert REPORT.groups() == [
        {"group": "a", "topic": "orders", "lag": 32, "lag_s": 9.0},
        {"group": "b", "topic": "clicks", "lag": 0, "lag_s": 0.0},
    ]
    empty = TrafficReport(0, 1, 1, [], ())
    assert (empty.topics, empty.moments, empty.groups()) == ([], [], [])
