"""Spark's reports on micro-batches, added up."""

import json
from typing import Any

from tests.unit.pipelines.run.scripted_queries import report

from tidemill.pipelines.run.core.progress import SinkProgress, keyless, line


def test_records_without_a_key_are_added_up_over_reports() -> None:
    reports: list[dict[str, Any]] = [
        {"observedMetrics": {"keys": {"keyless": 3}}},
        {"observedMetrics": {"keys": {"keyless": None}}},
        {"observedMetrics": None},
        {"observedMetrics": {"source_orders": {"newest": 5}, "keys": {"keyless": 2}}},
        {},
    ]
    assert keyless(reports) == 5


def test_reports_are_added_up() -> None:
    standing = SinkProgress("out").after([report(10, 10, 40, newest=5_000, broken=2)], 9_000)
    assert (standing.rows, standing.rows_per_s, standing.lag_records, standing.lag_s) == (10, 20.0, 30, 4.0)
    assert dict(standing.broken) == {"sane": 2}
    standing = standing.after([report(30, 40, 40, broken=1), report(0, 40, 40)], 9_000)
    assert (standing.rows, standing.rows_per_s, standing.batches) == (40, 0.0, 2)
    assert (standing.lag_records, standing.lag_s, dict(standing.broken)) == (0, 0.0, {"sane": 3})
    assert line(standing, report(30, 40, 40)) == "18:00:00  out  30 rows  0 rows/s  lag 0  sane broken 3"


def test_the_lag_in_time_is_that_of_the_newest_row_of_all_sources() -> None:
    found = report(10, 10, 40, newest=5_000)
    found["observedMetrics"]["source_returns"] = {"newest": 7_000}
    found["observedMetrics"]["source_refunds"] = {"newest": 6_000}
    assert SinkProgress("out").after([found], 9_000).lag_s == 2.0


def test_reports_without_anything_known_change_nothing() -> None:
    standing = SinkProgress("out").after([{"sources": [{"endOffset": None, "latestOffset": None}]}], 1)
    assert standing == SinkProgress("out")


def test_offsets_that_are_given_as_text_are_understood() -> None:
    """Spark Connect does that."""
    found = SinkProgress("out").after([report(10, 10, 17)], 1)
    reported = report(10, 10, 17)
    for source in reported["sources"]:
        source |= {name: json.dumps(source[name]) for name in ("endOffset", "latestOffset")}
    assert SinkProgress("out").after([reported], 1) == found
    assert found.lag_records == 7
