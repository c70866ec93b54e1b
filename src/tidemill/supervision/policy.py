"""Decides when a failed task restarts, and how long it counts as failing.

This module is pure; the time is an argument. A task that fails again soon after a restart waits twice as long as
before. A task counts as failing from its failure until it has run for `STABLE_S` again, so that a probe every few
seconds sees it.
"""

from dataclasses import dataclass, replace

PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 5.0
"""Short, because the broker may need the failed loop to lead or follow again, and a restart is cheap."""
STABLE_S = 10.0
REASON_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class TaskState:
    """One supervised task."""

    started_s: float
    failures: int = 0
    """Consecutive failures without a stable run in between."""
    waiting: bool = False
    """Whether the task has failed and waits for its restart."""
    reason: str = ""

    def failed(self, error: BaseException, now_s: float) -> "TaskState":
        """Record that the task ended with an error."""
        in_row = self.failures + 1 if self.is_failing(now_s) else 1
        return replace(self, failures=in_row, waiting=True, reason=describe(error))

    def restarted(self, now_s: float) -> "TaskState":
        """Record that the task runs again."""
        return replace(self, started_s=now_s, waiting=False)

    def pause_s(self) -> float:
        """Return how long to wait before the next restart."""
        return float(min(PAUSE_S_MAX, PAUSE_S_MIN * 2 ** min(self.failures - 1, 20)))

    def is_failing(self, now_s: float) -> bool:
        """Whether the task is not running, or has not run long enough since its last failure."""
        return self.waiting or (self.failures > 0 and now_s - self.started_s < STABLE_S)


def describe(error: BaseException) -> str:
    """Return the error in one line."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:REASON_CHARS_MAX]
