"""The last report of each pipeline, bounded in pipelines and queries, and in the rate of reports of each pipeline."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tidemill.model.errors import PolicyViolation, ThrottlingQuotaExceeded
from tidemill.pipeline_reports.core.pipeline_state import ALIVE, state_of

if TYPE_CHECKING:
    from tidemill.wire.pipeline_report import PipelineReport, StoredReport

PIPELINES_MAX = 1_000
QUERIES_MAX = 2_000
"""The most queries of all pipelines."""
BURST = 5
REPORT_EVERY_MS = 1_000
"""A pipeline may send `BURST` reports at once, and then one in this time."""
KEPT_MS = 7 * 86_400_000
"""How long the last report of a pipeline that has ended is kept."""


class ReportTable:
    """The reports of one partition."""

    def __init__(self) -> None:
        self._reports: dict[str, StoredReport] = {}
        self._queries = 0
        self._spent_ms: dict[str, int] = {}
        """For each pipeline, the time at which its reports so far are paid for at the allowed rate."""

    def __len__(self) -> int:
        return len(self._reports)

    def __iter__(self) -> Iterator["StoredReport"]:
        return iter(self._reports.values())

    def get(self, pipeline: str) -> "StoredReport | None":
        """The last report of a pipeline."""
        return self._reports.get(pipeline)

    def put(self, stored: "StoredReport") -> None:
        """Replace the report of a pipeline."""
        self.remove(stored.report.pipeline)
        self._reports[stored.report.pipeline] = stored
        self._queries += len(stored.report.queries)

    def remove(self, pipeline: str) -> None:
        """Forget a pipeline."""
        stored = self._reports.pop(pipeline, None)
        if stored is not None:
            self._queries -= len(stored.report.queries)

    def check_rate(self, pipeline: str, now_ms: int) -> None:
        """Count a report; ThrottlingQuotaExceeded when the pipeline sends too many."""
        paid_ms = max(self._spent_ms.get(pipeline, 0), now_ms - BURST * REPORT_EVERY_MS)
        paid_ms = min(paid_ms, now_ms)  # the clock may have been set back
        if paid_ms + REPORT_EVERY_MS > now_ms:
            raise ThrottlingQuotaExceeded(f"pipeline {pipeline} sends more than one report a second; send fewer")
        self._spent_ms[pipeline] = paid_ms + REPORT_EVERY_MS
        if len(self._spent_ms) > 2 * PIPELINES_MAX:
            self._spent_ms = {name: at for name, at in self._spent_ms.items() if name in self._reports}

    def to_replace(self, report: "PipelineReport", now_ms: int) -> list[str]:
        """The ended pipelines that make room for a report, oldest first. PolicyViolation when that is not enough."""
        known = self._reports.get(report.pipeline)
        pipelines = len(self._reports) + (known is None) - PIPELINES_MAX
        queries = self._queries + len(report.queries) - (len(known.report.queries) if known else 0) - QUERIES_MAX
        gone: list[str] = []
        if pipelines <= 0 and queries <= 0:
            return gone
        for each in self._ended(now_ms):
            if each is not known:
                gone.append(each.report.pipeline)
                pipelines -= 1
                queries -= len(each.report.queries)
            if pipelines <= 0 and queries <= 0:
                return gone
        raise PolicyViolation(
            f"{len(self._reports)} pipelines with {self._queries} queries report already; "
            f"{PIPELINES_MAX} and {QUERIES_MAX} are accepted"
        )

    def expired(self, now_ms: int) -> Sequence[str]:
        """The pipelines whose last report is too old to be kept."""
        return [each.report.pipeline for each in self if now_ms - each.received_ms > KEPT_MS]

    def _ended(self, now_ms: int) -> "list[StoredReport]":
        ended = (each for each in self if state_of(each, now_ms) not in ALIVE)
        return sorted(ended, key=lambda each: each.received_ms)
