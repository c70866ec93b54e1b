"""Charts of results: what is drawn, what is refused, and hostile names."""

from typing import Any

import pytest

from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.console.charts import WIDTH, tick_text
from tidemill.servers.http.console.sql import BARS_MAX, chart_of
from tidemill.wire.http.sql import ChartRequest

EVIL = "<script>alert(1)</script>\"'"


def request(kind: str = "line", **fields: object) -> ChartRequest:
    usual: dict[str, Any] = {
        "labels": ["1", "3", "2"],
        "values": [1, 3, 2],
        "label_name": "minute",
        "value_name": "n",
    }
    return ChartRequest(kind=kind, **{**usual, **fields})  # type: ignore[arg-type]


def test_a_line_is_drawn_in_the_order_of_the_axis() -> None:
    drawn = chart_of(request(labels=["10", "50", "20"], values=[4, 0, None]))
    assert 'data-places="0.0000 0.2500 1.0000"' in drawn
    assert drawn.count("M") == 2  # a row without a value is a gap
    assert f"M{WIDTH:.1f}" in drawn


def test_bars_are_bounded_and_have_a_short_label_under_them() -> None:
    labels = [f"a-long-name-of-a-topic-{each}" for each in range(BARS_MAX + 1)]
    drawn = chart_of(request("bar", labels=labels, values=[1.0] * len(labels)))
    assert drawn.count('class="bar s1"') == BARS_MAX
    assert ">a-long-name-o…</text>" in drawn
    assert "a-long-name-of-a-topic-0: 1 n" in drawn


@pytest.mark.parametrize("kind", ["line", "bar"])
def test_hostile_names_and_labels_are_text(kind: str) -> None:
    drawn = chart_of(request(kind, label_name=EVIL, labels=[EVIL] * 3, value_name=EVIL))
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn


def test_values_below_zero_are_refused() -> None:
    with pytest.raises(ApiProblem, match="3 labels and 1 values"):
        chart_of(request(values=[1]))
    with pytest.raises(ApiProblem, match="n has values below zero"):
        chart_of(request(values=[1, -1, None]))


def test_a_time_under_a_chart_keeps_its_end() -> None:
    assert tick_text("2026-11-19 10:20:30.123") == "11-19 10:20"
    assert tick_text("2026-11-19") == "2026-11-19"
    assert tick_text("orders-of-customers") == "orders-of-cus…"
