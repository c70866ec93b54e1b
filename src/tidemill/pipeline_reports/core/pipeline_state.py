"""The state of a pipeline: what its process reported last, unless it has been silent since."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.wire.pipeline_report import StoredReport

STALE_MS = 60_000
"""A process sends a report at least every 15 seconds. One that is silent for so long has ended, or cannot reach us."""
FAILED, STALE = "failed", "stale"
STATES = ("running", "starting", FAILED, STALE, "stopped")
ALIVE = ("running", "starting")


def state_of(stored: "StoredReport", now_ms: int) -> str:
    """The state of a pipeline at this time."""
    state = stored.report.state
    return STALE if state in ALIVE and now_ms - stored.received_ms > STALE_MS else state


def query_state_of(stored: "StoredReport", query_state: str, now_ms: int) -> str:
    """The state of one of its queries. A query runs only while its pipeline does."""
    state = state_of(stored, now_ms)
    return query_state if state in ALIVE or query_state not in ALIVE else state
