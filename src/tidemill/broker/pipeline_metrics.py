"""The metrics and the history of pipelines, from their last reports, at the broker that leads their partition.

Counts begin with the process of a pipeline. Labels are names that clients made up, so their number is bounded.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tidemill.broker.history import HistorySeries, HistorySource, Readings
from tidemill.model.metrics import CounterReading, Gauge, MetricReading
from tidemill.pipeline_reports.coordinator import PipelineReports
from tidemill.pipeline_reports.core.pipeline_state import ALIVE, STATES, state_of

if TYPE_CHECKING:
    from tidemill.wire.pipeline_report import QueryReport, StoredReport

QUERIES_SHOWN_MAX = 500
"""The most queries that have metrics: those of pipelines that run first."""
HISTORY_MAX = 200
"""The most queries that have a history."""
ROWS, LAG, BATCH, STATE = SERIES = (
    "pipeline_rows_per_s",
    "pipeline_lag_records",
    "pipeline_batch_s",
    "pipeline_state_bytes",
)


def history_key(pipeline: str, query: str) -> str:
    """The key of a query in the history. Names are printable, so a line break separates them."""
    return f"{pipeline}\n{query}"


def pipeline_readings(reports: PipelineReports, clock_ms: Callable[[], int]) -> Callable[[], Iterator[MetricReading]]:
    """The state of each pipeline, and the progress of its queries."""

    def read() -> Iterator[MetricReading]:
        now_ms = clock_ms()
        known = sorted(reports.all(), key=lambda each: (state_of(each, now_ms) not in ALIVE, each.report.pipeline))
        if reports.has_loaded():
            yield from _counts(known, now_ms)
        shown = 0
        for stored in known:
            shown += max(1, len(stored.report.queries))
            if shown > QUERIES_SHOWN_MAX:
                return
            yield from _of_pipeline(stored, now_ms)
            for query in stored.report.queries:
                yield from _rows_of(stored.report.pipeline, query)
                yield from _batches_of(stored.report.pipeline, query)

    return read


def pipeline_source(reports: PipelineReports, clock_ms: Callable[[], int]) -> HistorySource:
    """Rows, lag, duration and state of the queries that run."""

    def read(_: float) -> Readings:
        found: dict[str, dict[str, float]] = {name: {} for name in SERIES}
        now_ms = clock_ms()
        for stored in reports.all():
            if state_of(stored, now_ms) in ALIVE:
                for query in stored.report.queries:
                    key = history_key(stored.report.pipeline, query.query)
                    found[ROWS][key] = query.rows_in_per_s
                    found[LAG][key] = float(query.lag or 0)
                    found[BATCH][key] = query.batch_s or 0.0
                    found[STATE][key] = float(query.state_bytes or 0)
        return found

    # Clients see the history of one pipeline with its page, after their rights on its topics were checked.
    return HistorySource([HistorySeries(name, keys_max=HISTORY_MAX) for name in SERIES], read)


def _counts(known: "Iterable[StoredReport]", now_ms: int) -> Iterator[MetricReading]:
    counts = Counter(state_of(each, now_ms) for each in known)
    for state in STATES:
        yield Gauge(
            "tidemill_pipelines",
            "Pipelines by state, at the broker that keeps their reports.",
            counts[state],
            (("state", state),),
        )


def _of_pipeline(stored: "StoredReport", now_ms: int) -> Iterator[MetricReading]:
    name, now = stored.report.pipeline, state_of(stored, now_ms)
    for state in STATES:
        yield Gauge(
            "tidemill_pipeline_state",
            "1 for the state that a pipeline is in. A stale one has sent no report for a minute.",
            int(state == now),
            (("pipeline", name), ("state", state)),
        )
    yield Gauge(
        "tidemill_pipeline_last_report_timestamp_seconds",
        "When the last report of a pipeline came, since 1970.",
        stored.received_ms / 1000,
        (("pipeline", name),),
    )


def _rows_of(pipeline: str, query: "QueryReport") -> Iterator[MetricReading]:
    labels = (("pipeline", pipeline), ("query", query.query))
    yield CounterReading(
        "tidemill_pipeline_rows_in", "Rows that a query has read since its process started.", query.rows_in, labels
    )
    if query.rows_out is not None:
        yield CounterReading(
            "tidemill_pipeline_rows_out", "Rows that a query has written, for sinks that count.", query.rows_out, labels
        )
    yield Gauge(
        "tidemill_pipeline_input_rows_per_second",
        "Rows per second that arrived for the last micro-batch.",
        query.rows_in_per_s,
        labels,
    )
    broken = sum(query.broken.values())
    yield CounterReading(
        "tidemill_pipeline_broken_rows", "Rows that violate an expectation of the pipeline.", broken, labels
    )
    if query.lag is not None:
        yield Gauge("tidemill_pipeline_lag_records", "Records that a query has not read.", query.lag, labels)
    if query.lag_s is not None:
        yield Gauge(
            "tidemill_pipeline_lag_seconds",
            "Age of the newest record that a query has read; 0 without lag.",
            query.lag_s,
            labels,
        )


def _batches_of(pipeline: str, query: "QueryReport") -> Iterator[MetricReading]:
    labels = (("pipeline", pipeline), ("query", query.query))
    yield CounterReading(
        "tidemill_pipeline_batches", "Micro-batches with rows since the process started.", query.batches, labels
    )
    yield CounterReading(
        "tidemill_pipeline_batch_seconds", "Time that micro-batches with rows took.", query.batches_s, labels
    )
    if query.batch_s is not None:
        yield Gauge(
            "tidemill_pipeline_last_batch_seconds", "Duration of the last micro-batch with rows.", query.batch_s, labels
        )
    if query.progress_ms is not None:
        yield Gauge(
            "tidemill_pipeline_last_progress_timestamp_seconds",
            "When Spark reported progress of a query last, since 1970.",
            query.progress_ms / 1000,
            labels,
        )
    if query.state_rows is not None:
        yield Gauge("tidemill_pipeline_state_rows", "Rows that the state of a query has.", query.state_rows, labels)
    if query.state_bytes is not None:
        yield Gauge(
            "tidemill_pipeline_state_bytes", "Memory that the state of a query uses.", query.state_bytes, labels
        )
    yield Gauge(
        "tidemill_pipeline_query_failed",
        "1 for a query that ended with an error.",
        int(query.state == "failed"),
        labels,
    )
