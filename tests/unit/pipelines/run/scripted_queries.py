"""Spark's reports as tests make them, and queries that give them."""

from typing import Any

from tidemill.pipelines.errors import PipelineError


def report(rows: int, end: int, latest: int, *, newest: int | None = None, broken: int = 0) -> dict[str, Any]:
    return {
        "timestamp": "2026-11-16T18:00:00.000Z",
        "batchId": 1,
        "numInputRows": rows,
        "processedRowsPerSecond": rows * 2.0,
        "sources": [{"endOffset": {"orders": {"0": end}, "$ids": {}}, "latestOffset": {"orders": {"0": latest}}}],
        "observedMetrics": {"source_orders": {"newest": newest}, "expectation_sane": {"broken_sane": broken}},
    }


class Script:
    """Queries that report what is written down, and end, fail or run on."""

    def __init__(self, reports: list[dict[str, Any]], failure: str | None = None) -> None:
        self._reports = reports
        self._failure = failure
        self.stopped = 0

    def ended(self) -> bool:
        if not self._reports and self._failure:
            raise PipelineError(self._failure)
        return not self._reports

    def progress(self) -> dict[str, list[dict[str, Any]]]:
        return {"revenue": [self._reports.pop(0)]} if self._reports else {}

    def stop(self) -> None:
        self.stopped += 1
