"""The progress of a pipeline: Spark's reports on micro-batches, added up."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from tidemill.pipelines.source.core.offsets import QueryProgress

NEWEST = "newest"
"""The observed metric with the timestamp of the newest row, in ms."""
BROKEN = "broken_"
"""Observed metrics with this prefix count the rows that violate an expectation."""

KEYLESS = "keyless"
"""The observed metric that counts records without a key, where a key is required."""


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """The progress of one sink. Lag is None until it is known."""

    sink: str
    rows: int = 0
    rows_per_s: float = 0.0
    batches: int = 0
    lag_records: int | None = None
    lag_s: float | None = None
    broken: Mapping[str, int] = field(default_factory=dict)

    def after(self, reports: Iterable[Mapping[str, Any]], now_ms: int) -> "SinkProgress":
        """The progress including these reports of Spark."""
        progress = self
        for report in reports:
            progress = progress._after(report, now_ms)
        return progress

    def _after(self, report: Mapping[str, Any], now_ms: int) -> "SinkProgress":
        rows = int(report.get("numInputRows") or 0)
        observed = report.get("observedMetrics") or {}
        lag = _lag(report.get("sources") or [])
        return replace(
            self,
            rows=self.rows + rows,
            rows_per_s=round(float(report.get("processedRowsPerSecond") or 0.0), 1) if rows else 0.0,
            batches=self.batches + (1 if rows else 0),
            lag_records=self.lag_records if lag is None else lag,
            lag_s=self._lag_s(lag, _newest(observed.values()), now_ms),
            broken=_added(self.broken, observed.values()),
        )

    def _lag_s(self, lag_records: int | None, newest_ms: int | None, now_ms: int) -> float | None:
        if lag_records == 0:
            return 0.0
        return self.lag_s if newest_ms is None else round(max(0, now_ms - newest_ms) / 1000, 1)


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """The content of the status file."""

    pipeline: str
    state: str
    pid: int
    born: str | None
    host: str
    started_ms: int
    updated_ms: int
    error: str | None
    sinks: tuple[SinkProgress, ...]

    def to_json(self) -> dict[str, Any]:
        """The status as it is stored."""
        return asdict(self)


def line(progress: SinkProgress, report: Mapping[str, Any]) -> str:
    """One line about one micro-batch."""
    lag = "" if progress.lag_records is None else f"  lag {progress.lag_records:,}"
    broken = "".join(f"  {name} broken {count:,}" for name, count in sorted(progress.broken.items()) if count)
    time = str(report.get("timestamp", ""))[11:19]
    rows = int(report.get("numInputRows") or 0)
    return f"{time}  {progress.sink}  {rows:,} rows  {progress.rows_per_s:,.0f} rows/s{lag}{broken}"


def _lag(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """The records between the positions of the sources and the ends of their topics."""
    lags = [
        max(0, latest.offsets[part] - offset)
        for source in sources
        if (end := position_of(source.get("endOffset"))) and (latest := position_of(source.get("latestOffset")))
        for part, offset in end.offsets.items()
        if part in latest.offsets
    ]
    return sum(lags) if lags else None


def position_of(reported: Any) -> QueryProgress | None:
    """The position of a source. Spark Connect reports it as text."""
    found = json.loads(reported) if isinstance(reported, str) else reported
    return QueryProgress.from_json(found) if isinstance(found, Mapping) else None


def _newest(observed: Iterable[Mapping[str, Any]]) -> int | None:
    found = [int(metrics[NEWEST]) for metrics in observed if metrics.get(NEWEST) is not None]
    return max(found, default=None)


def _added(before: Mapping[str, int], observed: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    total = dict(before)
    for metrics in observed:
        for name, count in metrics.items():
            if name.startswith(BROKEN):
                key = name.removeprefix(BROKEN)
                total[key] = total.get(key, 0) + int(count or 0)
    return total


def keyless(reports: Iterable[Mapping[str, Any]]) -> int:
    """How many records had no key."""
    observed = (metrics for report in reports for metrics in (report.get("observedMetrics") or {}).values())
    return sum(int(metrics.get(KEYLESS) or 0) for metrics in observed)


def time_text(ms: int) -> str:
    """A time in UTC, for people."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
