"""Reports: numbers, files and plots."""

import csv
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tidemill.pipelines.run.core.report import GroupLag, TrafficReport, step_s
from tidemill.pipelines.run.plots import draw
from tidemill.pipelines.run.report_files import write_tables

PNG = b"\x89PNG\r\n\x1a\n"


def point(topic: str, at: int, records: int, partition: int = 0) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "at": at, "records": records, "bytes": records * 100}


TRAFFIC = [point("orders", 0, 50), point("orders", 0, 50, 1), point("orders", 20_000, 20), point("clicks", 10_000, 300)]
LAGS = (
    GroupLag("a", "orders", 0, 10, 40, 3.5),
    GroupLag("a", "orders", 1, 5, 7, 9.0),
    GroupLag("b", "clicks", 0, 9, 9, 0.0),
)
REPORT = TrafficReport(0, 30_000, 10, TRAFFIC, LAGS)


@pytest.mark.parametrize(
    ("span_s", "step"), [(1, 1), (240, 1), (241, 2), (3600, 30), (86_400, 900), (100 * 86_400, 86_400)]
)
def test_a_plot_has_at_most_so_many_points(span_s: int, step: int) -> None:
    assert step_s(span_s * 1000) == step


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
    assert REPORT.moments == [0, 10_000, 20_000]
    assert REPORT.groups() == [
        {"group": "a", "topic": "orders", "lag": 32, "lag_s": 9.0},
        {"group": "b", "topic": "clicks", "lag": 0, "lag_s": 0.0},
    ]
    empty = TrafficReport(0, 1, 1, [], ())
    assert (empty.topics, empty.moments, empty.groups()) == ([], [], [])


def test_tables_are_written_twice_and_read_back(tmp_path: Path) -> None:
    assert [path.name for path in write_tables(REPORT, tmp_path)] == [
        "traffic.parquet",
        "traffic.csv",
        "lag.parquet",
        "lag.csv",
    ]
    assert sum(pq.read_table(tmp_path / "traffic.parquet")["records"].to_pylist()) == 420
    with (tmp_path / "lag.csv").open() as file:
        assert [row["lag"] for row in csv.DictReader(file)] == ["30", "2", "0"]


def test_plots_are_pictures_and_nothing_is_no_picture(tmp_path: Path) -> None:
    many = [point(f"topic{n}", at, n) for n in range(12) for at in (0, 10_000)]
    drawn = draw(TrafficReport(0, 30_000, 10, many, LAGS), tmp_path)
    assert [path.name for path in drawn] == ["throughput.png", "lag.png"]
    assert all(path.read_bytes().startswith(PNG) and path.stat().st_size > 10_000 for path in drawn)
    assert draw(TrafficReport(0, 1, 1, [], ()), tmp_path) == []
