"""Charts: what is drawn, what is said to people who do not see it, and hostile names."""

import random
import re
from xml.etree import ElementTree as ET

import pytest

from tidemill.servers.http.console.charts import (
    BOTTOM,
    TOP,
    WIDTH,
    ChartBar,
    ChartSeries,
    bar_chart,
    line_chart,
    meter,
    sparkline,
)

EVIL = """<script>alert(1)</script>"'&amp;\x00"""
TIMES = [1_700_000_000_000 + 5_000 * each for each in range(5)]
HEIGHT = BOTTOM - TOP


def tree_of(drawn: str) -> ET.Element:
    return ET.fromstring(f"<root>{drawn}</root>")  # noqa: S314 -- our own text


def text_of(element: ET.Element | None) -> str:
    assert element is not None
    return "".join(element.itertext())


def test_a_line_goes_from_edge_to_edge_and_from_zero_to_the_ceiling() -> None:
    tree = tree_of(line_chart("Rate", TIMES, [ChartSeries("in", [0, 1, 2, 3, 3])], "rate"))
    path = next(each.get("d") for each in tree.iter("path") if each.get("class") == "line s1")
    assert path == f"M0.0 {HEIGHT:.1f} 250.0 {HEIGHT * 2 / 3:.1f} 500.0 {HEIGHT / 3:.1f} 750.0 0.0 {WIDTH:.1f} 0.0"
    assert [text_of(each) for each in tree.iter("text")] == [
        *("1/s", "2/s", "3/s"),
        *("22:13:20", "22:13:25", "22:13:30", "22:13:35", "22:13:40"),
    ]


def test_a_line_has_a_gap_where_values_are_missing() -> None:
    tree = tree_of(line_chart("Rate", TIMES, [ChartSeries("in", [1, 2, None, 1, None])]))
    path = next(each.get("d") or "" for each in tree.iter("path") if each.get("class") == "line s1")
    assert path.count("M") == 2
    assert path.endswith("h2")  # a single value is visible


def test_a_chart_has_words_and_a_table_for_screen_readers() -> None:
    series = [ChartSeries("in", [1024, 2048, None, 0, 512]), ChartSeries("out", [None] * 5)]
    tree = tree_of(line_chart("Traffic", TIMES, series, "byte_rate"))
    drawing = next(tree.iter("svg"))
    while drawing.get("role") != "img":
        drawing = next(each for each in tree.iter("svg") if each.get("role") == "img")
    assert text_of(drawing.find("title")) == "Traffic"
    text = text_of(drawing.find("desc"))
    assert text == "in: now 512 B/s, at least 0 B/s, at most 2.0 KiB/s; out: no values"
    rows = [[text_of(cell) for cell in row] for row in tree.iter("tr")]
    assert rows[0] == ["Time (UTC)", "in", "out"]
    assert rows[1:3] == [["22:13:20", "1.0 KiB/s", "-"], ["22:13:25", "2.0 KiB/s", "-"]]
    assert len(rows) == 6


@pytest.mark.parametrize("drawn", [line_chart("Empty", [], []), bar_chart("Empty", ["n"], [])])
def test_a_chart_without_values_is_a_document(drawn: str) -> None:
    assert tree_of(drawn).find("figure") is not None


def test_bars_are_stacked_and_open_their_range() -> None:
    bars = [ChartBar("noon", (3, 1), "?from=1&to=2"), ChartBar("one", (0, 0))]
    tree = tree_of(bar_chart("Messages", ["pending", "late"], bars))
    (link,) = tree.iter("a")
    assert link.get("href") == "?from=1&to=2"
    assert link.get("aria-label") == "noon: 3 pending, 1 late"
    heights = {each.get("class"): float(each.get("height") or 0) for each in link.iter("rect")}
    assert heights["bar s1"] == pytest.approx(3 * heights["bar s2"], rel=0.01)
    places = {each.get("class"): float(each.get("y") or 0) for each in link.iter("rect")}
    assert places["bar s2"] < places["bar s1"]
    assert all(each.get("role") != "img" for each in tree.iter("svg")), "an image hides the links inside"


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (["0", "1", "2", "3", "4", "5"], ["0", "1", "2", "3", "4", "5"]),
        ([str(each) for each in range(40)], [str(each) for each in range(0, 40, 3)]),
        ([f"broker {each}" for each in range(7)], ["broker 0", "broker 2", "broker 4", "broker 6"]),
    ],
)
def test_labels_of_bars_have_equal_distances(labels: list[str], shown: list[str]) -> None:
    tree = tree_of(bar_chart("Records", ["n"], [ChartBar(each, (1,)) for each in labels]))
    assert [text_of(each) for each in tree.iter("text") if each.get("class") != "y"] == shown


def test_hostile_names_are_text() -> None:
    drawn = [
        line_chart(EVIL, TIMES, [ChartSeries(EVIL, [1] * 5)]),
        bar_chart(EVIL, [EVIL, EVIL], [ChartBar(EVIL, (1, 2), 'x" onclick="alert(1)')]),
        sparkline(EVIL, [1, 2]),
        meter(EVIL, 0.5, '" onload="alert(1)'),
    ]
    for each in drawn:
        assert "<script" not in each
        assert "style=" not in each
        tree = tree_of(each.replace("\x00", ""))
        assert not any(name.startswith("on") for element in tree.iter() for name in element.attrib)


def test_a_sparkline_says_its_last_and_largest_value() -> None:
    tree = tree_of(sparkline("Lag of g", [5, None, 1500, 20]))
    assert text_of(next(tree.iter("title"))) == "Lag of g: now 20, at most 1.5k"
    assert "path" not in sparkline("Lag", [None, None])


@pytest.mark.parametrize(("share", "width"), [(-1.0, "0.0%"), (0.0, "0.0%"), (0.333, "33.3%"), (7.0, "100.0%")])
def test_a_meter_stays_inside(share: float, width: str) -> None:
    assert f'class="fill" width="{width}"' in meter("Disk", share)


@pytest.mark.parametrize("unit", ["count", "rate", "bytes", "byte_rate", "seconds", "share"])
def test_every_value_is_drawn_inside(unit: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(200):
        values = [chance.choice([0.0, 10 ** chance.uniform(1, 14)]) for _ in range(20)]
        times = [each * 1000 for each in range(20)]
        path = next(
            each.get("d") or ""
            for each in tree_of(line_chart("x", times, [ChartSeries("a", values)], unit)).iter("path")
            if each.get("class") == "line s1"
        )
        places = [float(each) for each in re.findall(r"[\d.]+", path)]
        assert len(places) == 40
        assert all(0 <= y <= HEIGHT for y in places[1::2])
        assert min(places[1::2]) < HEIGHT * 0.65 or max(values) == 0, "the chart uses its height"
