"""Where the rows of a result are on the axis of a chart."""

import pytest

from tidemill.servers.http.core.result_axis import result_axis


def test_words_stay_in_the_order_of_the_query() -> None:
    axis = result_axis(["b", "a", "2026-01-01"])
    assert (axis.order, axis.places) == ([0, 1, 2], [0.0, 0.5, 1.0])


def test_times_have_their_distance() -> None:
    axis = result_axis(["2026-11-19 10:00:00", "2026-11-19 10:00:40", "2026-11-19 10:00:10.000"])
    assert axis.order == [0, 2, 1]
    assert axis.places == pytest.approx([0.0, 0.25, 1.0])


def test_numbers_have_their_distance() -> None:
    axis = result_axis(["30", "-10", "0"])
    assert (axis.order, axis.places) == ([1, 2, 0], [0.0, 0.25, 1.0])


@pytest.mark.parametrize("labels", [["nan", "1"], ["inf", "1"], ["NULL", "1"]])
def test_a_label_without_a_value_makes_words_of_all(labels: list[str]) -> None:
    assert result_axis(labels) == ([0, 1], [0.0, 1.0])


def test_one_row_and_equal_rows_have_a_place() -> None:
    assert result_axis(["5"]) == ([0], [0.0])
    assert result_axis(["5", "5"]) == ([0, 1], [0.0, 0.0])
    assert result_axis(["x"]) == ([0], [0.0])
