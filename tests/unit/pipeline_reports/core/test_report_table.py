"""The table of reports is bounded: in pipelines, in queries, and in the rate of each pipeline."""

import pytest
from tests.support.pipeline_reports import pipeline_report, query_report

from tidemill.model.errors import PolicyViolation, ThrottlingQuotaExceeded
from tidemill.pipeline_reports.core.pipeline_state import STALE_MS, query_state_of, state_of
from tidemill.pipeline_reports.core.report_table import (
    BURST,
    KEPT_MS,
    PIPELINES_MAX,
    QUERIES_MAX,
    REPORT_EVERY_MS,
    ReportTable,
)
from tidemill.wire.pipeline_report import StoredReport

NOW_MS = 1_000_000


def stored(name: str, state: str = "running", at_ms: int = NOW_MS, queries: int = 1) -> StoredReport:
    made = [query_report(f"q{number}") for number in range(queries)]
    report = pipeline_report(name, state=state, queries=made)
    return StoredReport(report=report, sent_by="User:ann", host="h", received_ms=at_ms)


def test_a_pipeline_is_stale_when_it_is_silent() -> None:
    running, stopped = stored("a"), stored("b", "stopped")
    assert state_of(running, NOW_MS + STALE_MS) == "running"
    assert state_of(running, NOW_MS + STALE_MS + 1) == "stale"
    assert state_of(stopped, NOW_MS + STALE_MS + 1) == "stopped"
    assert state_of(running, NOW_MS - 10_000) == "running", "the clock was set back"


def test_a_query_runs_only_while_its_pipeline_does() -> None:
    assert query_state_of(stored("a"), "running", NOW_MS) == "running"
    assert query_state_of(stored("a"), "failed", NOW_MS) == "failed"
    assert query_state_of(stored("a"), "running", NOW_MS + STALE_MS + 1) == "stale"
    assert query_state_of(stored("a", "failed"), "running", NOW_MS) == "failed"
    assert query_state_of(stored("a", "failed"), "stopped", NOW_MS) == "stopped"


def test_a_pipeline_may_send_a_burst_and_then_one_report_a_second() -> None:
    table = ReportTable()
    for _ in range(BURST):
        table.check_rate("a", NOW_MS)
    with pytest.raises(ThrottlingQuotaExceeded):
        table.check_rate("a", NOW_MS)
    table.check_rate("b", NOW_MS)
    table.check_rate("a", NOW_MS + REPORT_EVERY_MS)
    with pytest.raises(ThrottlingQuotaExceeded):
        table.check_rate("a", NOW_MS + REPORT_EVERY_MS)


def test_the_rate_survives_a_clock_that_is_set_back() -> None:
    table = ReportTable()
    for _ in range(BURST):
        table.check_rate("a", NOW_MS)
    earlier_ms = NOW_MS - 86_400_000
    with pytest.raises(ThrottlingQuotaExceeded):
        table.check_rate("a", earlier_ms)


def test_names_of_refused_reports_do_not_fill_the_memory() -> None:
    table = ReportTable()
    for number in range(5 * PIPELINES_MAX):
        table.check_rate(str(number), NOW_MS)
    assert len(table._spent_ms) <= 2 * PIPELINES_MAX + 1


def test_ended_pipelines_make_room_oldest_first() -> None:
    table = ReportTable()
    for number in range(PIPELINES_MAX - 2):
        table.put(stored(f"live {number}"))
    table.put(stored("newer", "stopped", NOW_MS - 1))
    table.put(stored("older", "failed", NOW_MS - 2))
    assert table.to_replace(pipeline_report("newer"), NOW_MS) == []
    assert table.to_replace(pipeline_report("next"), NOW_MS) == ["older"]
    for name in ("newer", "older"):
        table.put(stored(name))
    with pytest.raises(PolicyViolation, match=f"{PIPELINES_MAX} and {QUERIES_MAX} are accepted"):
        table.to_replace(pipeline_report("next"), NOW_MS)
    assert table.to_replace(pipeline_report("live 1"), NOW_MS) == [], "a known pipeline needs no room"


def test_queries_are_bounded_over_all_pipelines() -> None:
    table = ReportTable()
    for number in range(QUERIES_MAX // 50):
        table.put(stored(f"p{number}", "stopped" if number == 3 else "running", queries=50))
    assert table.to_replace(pipeline_report("next"), NOW_MS) == ["p3"]
    table.remove("p3")
    assert table.to_replace(pipeline_report("next"), NOW_MS) == []
    grown = pipeline_report("p3", queries=[query_report(f"q{number}") for number in range(50)])
    assert table.to_replace(grown, NOW_MS) == []


def test_ended_pipelines_are_replaced_until_pipelines_and_queries_have_room() -> None:
    table = ReportTable()
    for number in range(QUERIES_MAX // 50 - 1):
        table.put(stored(f"p{number}", queries=50))
    table.put(stored("small", "stopped", NOW_MS - 2))
    table.put(stored("large", "stopped", NOW_MS - 1, queries=49))
    large = pipeline_report("next", queries=[query_report(f"q{number}") for number in range(20)])
    assert table.to_replace(large, NOW_MS) == ["small", "large"]


def test_old_reports_expire() -> None:
    table = ReportTable()
    table.put(stored("old", at_ms=NOW_MS - KEPT_MS - 1))
    table.put(stored("new"))
    assert table.expired(NOW_MS) == ["old"]
    table.remove("old")
    assert [each.report.pipeline for each in table] == ["new"]
    assert len(table) == 1


def test_a_single_pipeline_or_query_too_many_needs_room() -> None:
    table = ReportTable()
    for number in range(1_000):
        table.put(stored(f"p{number}", "stopped" if number == 7 else "running"))
    assert table.to_replace(pipeline_report("p8"), NOW_MS) == []
    assert table.to_replace(pipeline_report("next"), NOW_MS) == ["p7"]
