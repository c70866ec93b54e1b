"""When a failed task starts again, and how long it counts as failing.

Pure: the time is an argument. A task that fails again soon after a restart waits twice as long as before. A task counts
as failing from its failure until it has run for `STABLE_S` again, so that a probe that asks every few seconds sees it.
"""

from dataclasses import dataclass, replace

PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 5.0
"""Short: a failed loop may be what makes a broker lead or follow again, and a start costs little."""
STABLE_S = 10.0
REASON_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class TaskState:
    """One supervised task."""

    started_s: float
    failures: int = 0
    """Failures in a row, without a stable run in between."""
    waiting: bool = False
    """The task has failed and has not started again."""
    reason: str = ""

    def failed(self, error: BaseException, now_s: float) -> "TaskState":
        """The task ended with an error."""
        in_row = self.failures + 1 if self.is_failing(now_s) else 1
        return replace(self, failures=in_row, waiting=True, reason=describe(error))

    def restarted(self, now_s: float) -> "TaskState":
        """The task runs again."""
        return replace(self, started_s=now_s, waiting=False)

    def pause_s(self) -> float:
        """How long to wait before the next start."""
        return float(min(PAUSE_S_MAX, PAUSE_S_MIN * 2 ** min(self.failures - 1, 20)))

    def is_failing(self, now_s: float) -> bool:
        """Whether the task does not run, or has not run long enough since its last failure."""
        return self.waiting or (self.failures > 0 and now_s - self.started_s < STABLE_S)


def describe(error: BaseException) -> str:
    """The error in one line."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:REASON_CHARS_MAX]
