"""What the broker is shown of one query: Spark's reports on micro-batches as the query's part of a pipeline report."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from math import isfinite
from typing import Any, NamedTuple

from tidemill.pipelines.run.core.progress import SinkProgress, position_of
from tidemill.wire.pipeline_report import (
    AMOUNT_MAX,
    BEHIND_MAX,
    BROKEN_MAX,
    COUNT_MAX,
    ERROR_CHARS_MAX,
    NAME_CHARS_MAX,
    SOURCES_MAX,
    TIME_MS_MAX,
    PartitionBehind,
    QueryReport,
    RunState,
    SourceProgress,
)

_JAVA_NAME = re.compile(r"^(?:\w+\.)*(\w+)\$?@[0-9a-f]+$")
"""Some sinks are described by the name and the address of their object."""


class QueryFacts(NamedTuple):
    """What does not change while a query runs: its consumer group, and where it writes."""

    group: str = ""
    sink: str = ""


@dataclass(frozen=True, slots=True)
class QueryMeasurements:
    """The sums and the last values of one query."""

    progress: SinkProgress
    rows_in_per_s: float = 0.0
    rows_out: int | None = None
    batch: int = -1
    batch_s: float | None = None
    batches_s: float = 0.0
    state_rows: int | None = None
    state_bytes: int | None = None
    watermark_ms: int | None = None
    progress_ms: int | None = None
    sources: tuple[SourceProgress, ...] = ()
    sink: str = ""
    """Where it writes, as Spark describes it."""

    def after(self, reports: Iterable[Mapping[str, Any]], now_ms: int) -> "QueryMeasurements":
        """The measurements including these reports of Spark."""
        found = self
        for report in reports:
            found = found._after(report, now_ms)
        return found

    def report(self, facts: QueryFacts, state: RunState, error: str = "") -> QueryReport:
        """The query as the broker is shown it."""
        progress = self.progress
        return QueryReport(
            query=name_text(progress.sink),
            state=state,
            error=error[:ERROR_CHARS_MAX],
            group=facts.group[:NAME_CHARS_MAX],
            sink=(facts.sink or self.sink)[:NAME_CHARS_MAX],
            rows_in=progress.rows,
            rows_out=self.rows_out,
            rows_in_per_s=self.rows_in_per_s,
            rows_processed_per_s=progress.rows_per_s,
            batch=self.batch,
            batches=progress.batches,
            batch_s=self.batch_s,
            batches_s=self.batches_s,
            lag=progress.lag_records,
            lag_s=progress.lag_s,
            state_rows=self.state_rows,
            state_bytes=self.state_bytes,
            watermark_ms=self.watermark_ms,
            progress_ms=self.progress_ms,
            broken={name[:NAME_CHARS_MAX]: count for name, count in list(progress.broken.items())[:BROKEN_MAX]},
            sources=list(self.sources),
        )

    def _after(self, report: Mapping[str, Any], now_ms: int) -> "QueryMeasurements":
        operators = report.get("stateOperators") or []
        has_rows = bool(report.get("numInputRows"))
        seconds = _amount((report.get("durationMs") or {}).get("triggerExecution")) / 1000
        sink = report.get("sink") or {}
        return replace(
            self,
            progress=self.progress.after([report], now_ms),
            rows_in_per_s=round(_amount(report.get("inputRowsPerSecond")), 1) if has_rows else 0.0,
            rows_out=_written(self.rows_out, sink.get("numOutputRows")),
            batch=min(_count(report.get("batchId")), COUNT_MAX) if "batchId" in report else self.batch,
            batch_s=round(seconds, 3) if has_rows else self.batch_s,
            batches_s=round(self.batches_s + seconds, 3) if has_rows else self.batches_s,
            state_rows=_sum(operators, "numRowsTotal", self.state_rows),
            state_bytes=_sum(operators, "memoryUsedBytes", self.state_bytes),
            watermark_ms=_time_ms((report.get("eventTime") or {}).get("watermark"), self.watermark_ms),
            progress_ms=_time_ms(report.get("timestamp"), self.progress_ms),
            sources=tuple(_sources(report.get("sources") or [])) or self.sources,
            sink=_JAVA_NAME.sub(r"\1", str(sink.get("description") or self.sink)),
        )


def name_text(text: str) -> str:
    """A name that the broker accepts: printable, and not too long."""
    return "".join(each if each.isprintable() else "?" for each in text)[:NAME_CHARS_MAX] or "unnamed"


def _sources(sources: Iterable[Mapping[str, Any]]) -> Iterable[SourceProgress]:
    """The topics that a query reads. One that it reads twice counts twice, as its records do."""
    partitions: dict[str, set[int]] = {}
    lags: dict[str, dict[int, int]] = {}
    for source in sources:
        end, latest = position_of(source.get("endOffset")), position_of(source.get("latestOffset"))
        for part, offset in (end.offsets if end else {}).items():
            partitions.setdefault(part.topic, set()).add(part.partition)
            if latest is not None and part in latest.offsets:
                of_topic = lags.setdefault(part.topic, {})
                of_topic[part.partition] = of_topic.get(part.partition, 0) + max(0, latest.offsets[part] - offset)
    for topic in sorted(partitions)[:SOURCES_MAX]:
        lag = lags.get(topic)
        behind = sorted(((each, index) for index, each in (lag or {}).items() if each), key=lambda each: -each[0])
        yield SourceProgress(
            topic=topic,
            partitions=len(partitions[topic]),
            lag=None if lag is None else sum(lag.values()),
            behind=[PartitionBehind(partition=index, lag=each) for each, index in behind[:BEHIND_MAX]],
        )


def _sum(operators: Iterable[Mapping[str, Any]], key: str, known: int | None) -> int | None:
    """The sum over the operators with state; micro-batches without rows may report none."""
    counts = [_count(each.get(key)) for each in operators]
    return sum(counts) if counts else known


def _written(known: int | None, rows: Any) -> int | None:
    """Rows that the sink has written; Spark reports -1 for sinks that do not count."""
    return known if not isinstance(rows, int) or rows < 0 else (known or 0) + rows


def _count(value: Any) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _amount(value: Any) -> float:
    number = float(value) if isinstance(value, int | float) else 0.0
    return min(max(0.0, number), AMOUNT_MAX) if isfinite(number) else 0.0


def _time_ms(text: Any, known: int | None) -> int | None:
    """A time such as `2026-11-19T12:00:00.000Z`. Spark's watermark is 1970 until it knows one."""
    try:
        found = int(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return known
    return found if 0 < found <= TIME_MS_MAX else known
