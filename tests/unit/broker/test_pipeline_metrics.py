"""The metrics and the history of pipelines come from their last reports, and are bounded."""

from tests.support.pipeline_reports import START_MS, pipeline_report, query_report
from tests.support.readings import values_of
from tests.unit.transactions.world import MemoryJournal

from tidemill.broker.pipeline_metrics import (
    LAG,
    QUERIES_SHOWN_MAX,
    ROWS,
    history_key,
    pipeline_readings,
    pipeline_source,
)
from tidemill.coordinator.placement import take_over
from tidemill.pipeline_reports.coordinator import PARTITION, PipelineReports, ReportSender
from tidemill.pipeline_reports.core.pipeline_state import STALE_MS
from tidemill.wire.pipeline_report import PipelineReport

SENDER = ReportSender("User:ann", "h", lambda _: None)


async def reports_of(*reports: PipelineReport) -> PipelineReports:
    made = PipelineReports(MemoryJournal(), clock_ms=lambda: START_MS)
    await take_over(made, {PARTITION: 0})
    for each in reports:
        await made.take(each, SENDER)
    return made


async def test_a_query_has_its_numbers() -> None:
    reports = await reports_of(pipeline_report(), pipeline_report("old", state="failed", queries=[]))
    found = values_of(pipeline_readings(reports, lambda: START_MS)())
    assert found['tidemill_pipelines{state="running"}'] == 1
    assert found['tidemill_pipelines{state="failed"}'] == 1
    assert found['tidemill_pipeline_state{pipeline="shop",state="running"}'] == 1
    assert found['tidemill_pipeline_state{pipeline="shop",state="stale"}'] == 0
    assert found['tidemill_pipeline_last_report_timestamp_seconds{pipeline="shop"}'] == START_MS / 1000
    of_query = '{pipeline="shop",query="revenue"}'
    shown = {key.removesuffix(of_query): value for key, value in found.items() if key.endswith(of_query)}
    assert shown == {
        "tidemill_pipeline_rows_in": 1_000,
        "tidemill_pipeline_rows_out": 40,
        "tidemill_pipeline_input_rows_per_second": 250.0,
        "tidemill_pipeline_broken_rows": 0,
        "tidemill_pipeline_lag_records": 7,
        "tidemill_pipeline_lag_seconds": 1.5,
        "tidemill_pipeline_batches": 11,
        "tidemill_pipeline_batch_seconds": 9.5,
        "tidemill_pipeline_last_batch_seconds": 0.8,
        "tidemill_pipeline_last_progress_timestamp_seconds": START_MS / 1000 + 60,
        "tidemill_pipeline_state_rows": 3,
        "tidemill_pipeline_state_bytes": 4_096,
        "tidemill_pipeline_query_failed": 0,
    }


async def test_a_query_without_progress_has_no_made_up_numbers() -> None:
    bare = query_report(
        rows_out=None, lag=None, lag_s=None, batch_s=None, progress_ms=None, state_rows=None, state_bytes=None
    )
    found = values_of(pipeline_readings(await reports_of(pipeline_report(queries=[bare])), lambda: START_MS)())
    assert not [key for key in found if "lag" in key or "state_" in key or "rows_out" in key or "last_b" in key]


async def test_a_silent_pipeline_is_stale_and_has_no_history() -> None:
    reports = await reports_of(pipeline_report())
    key = history_key("shop", "revenue")
    now = pipeline_source(reports, lambda: START_MS).read(5.0)
    assert (now[ROWS][key], now[LAG][key]) == (250.0, 7.0)
    later_ms = START_MS + STALE_MS + 1
    found = values_of(pipeline_readings(reports, lambda: later_ms)())
    assert found['tidemill_pipeline_state{pipeline="shop",state="stale"}'] == 1
    assert pipeline_source(reports, lambda: later_ms).read(5.0)[ROWS] == {}


async def test_the_number_of_lines_is_bounded_and_running_pipelines_come_first() -> None:
    many = [query_report(f"q{number}") for number in range(50)]
    reports = await reports_of(
        *(pipeline_report(f"a{number}", queries=many, state="stopped") for number in range(15)),
        pipeline_report("z"),
    )
    found = values_of(pipeline_readings(reports, lambda: START_MS)())
    rows = [key for key in found if key.startswith("tidemill_pipeline_rows_in{")]
    assert 400 < len(rows) <= QUERIES_SHOWN_MAX
    assert 'tidemill_pipeline_rows_in{pipeline="z",query="revenue"}' in found


async def test_a_broker_without_the_reports_has_no_metrics() -> None:
    reports = await reports_of(pipeline_report())
    await take_over(reports, {})
    assert list(pipeline_readings(reports, lambda: START_MS)()) == []
