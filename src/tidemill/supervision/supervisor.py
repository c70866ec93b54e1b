"""Runs the background tasks of one broker, restarts failed ones, and reports which are failing.

`keep` is for loops that run as long as the broker does. An unexpected error is logged, and the loop restarts after a
growing pause. Meanwhile `reasons` lists it, which makes `/health` degraded. `spawn` is for a job that ends by itself
and has no waiting caller. Its error is logged, counted and listed for a while. Both return a task. Cancelling that task
cancels the work, also during a pause. `keep` calls its factory for each start, so a loop must restore its own state
when it starts.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import structlog

from tidemill.supervision.policy import STABLE_S, TaskState, describe

FAILED_JOBS_MAX = 100
"""The largest number of failed jobs that are listed."""
T = TypeVar("T")

log = structlog.get_logger("tidemill.tasks")


class Supervisor:
    """The background tasks of one broker."""

    def __init__(
        self,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.restarts: Counter[str] = Counter()
        """Restarts by task name."""
        self.failures: Counter[str] = Counter()
        """Failed jobs by name. A failed loop is counted as restarted."""
        self._clock_s = clock_s
        self._sleep = sleep
        self._states: dict[asyncio.Task[None], tuple[str, str, TaskState]] = {}
        self._jobs: set[asyncio.Task[Any]] = set()
        self._conditions: dict[str, tuple[str, ...]] = {}
        self._failed_jobs: dict[tuple[str, str], tuple[float, str]] = {}

    def keep(self, name: str, work: Callable[[], Awaitable[None]], *, about: str = "") -> asyncio.Task[None]:
        """Run a loop until it is cancelled or returns. `about` distinguishes tasks of one name."""
        task = asyncio.get_running_loop().create_task(self._keep(name, about, work))
        self._states[task] = (name, about, TaskState(self._clock_s()))
        task.add_done_callback(self._forget)
        return task

    def repeat(self, name: str, interval_s: float, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run the work repeatedly, with a pause before each run."""

        async def forever() -> None:
            while True:
                await asyncio.sleep(interval_s)
                await work()

        return self.keep(name, forever)

    def spawn(self, name: str, work: Coroutine[Any, Any, T], *, about: str = "") -> asyncio.Task[T]:
        """Run a job to its end. The supervisor holds a reference to it and reports its failure."""
        task = asyncio.get_running_loop().create_task(work)
        self._jobs.add(task)
        task.add_done_callback(lambda done: self._job_ended(name, about, done))
        return task

    def note_failure(self, name: str, error: BaseException, *, about: str = "") -> None:
        """Log and count an unexpected error that was handled where it occurred."""
        self.failures[name] += 1
        if len(self._failed_jobs) < FAILED_JOBS_MAX or (name, about) in self._failed_jobs:
            self._failed_jobs[name, about] = (self._clock_s(), describe(error))
        log.error("job_failed", job=name, about=about, error=describe(error), exc_info=error)

    def set_condition(self, name: str, reasons: Sequence[str]) -> None:
        """Report why some work cannot go on, until it reports something else. It needs an operator, not a restart."""
        self._conditions[name] = tuple(reasons)

    def reasons(self) -> list[str]:
        """Return what is failing now, and which jobs failed recently. It has no figures, as brokers publish it."""
        now_s = self._clock_s()
        self._failed_jobs = {job: last for job, last in self._failed_jobs.items() if now_s - last[0] < STABLE_S}
        tasks = [
            f"task {_shown(name, about)} failed and is restarted: {state.reason}"
            for name, about, state in self._states.values()
            if state.is_failing(now_s)
        ]
        jobs = [f"job {_shown(*job)} failed: {reason}" for job, (_, reason) in self._failed_jobs.items()]
        conditions = [reason for reasons in self._conditions.values() for reason in reasons]
        return tasks + jobs + conditions

    def failing(self) -> dict[str, int]:
        """Return how many tasks of each name are failing. Every running name is included."""
        now_s = self._clock_s()
        counts: Counter[str] = Counter()
        for name, _, state in self._states.values():
            counts[name] += state.is_failing(now_s)
        return dict(counts)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._states.pop(task, None)

    async def _keep(self, name: str, about: str, work: Callable[[], Awaitable[None]]) -> None:
        own = asyncio.current_task()
        if own is None:
            raise RuntimeError("a supervised loop must run in a task")
        while True:
            try:
                await work()
            except (Exception, asyncio.CancelledError) as error:
                if own.cancelling():
                    raise  # the loop itself was cancelled; otherwise something below it was
                state = self._states[own][2].failed(error, self._clock_s())
                self._states[own] = (name, about, state)
                log.exception("task_failed", task=name, about=about, failures=state.failures, pause_s=state.pause_s())
                await self._sleep(state.pause_s())
                self.restarts[name] += 1
                self._states[own] = (name, about, state.restarted(self._clock_s()))
            else:
                return

    def _job_ended(self, name: str, about: str, task: asyncio.Task[Any]) -> None:
        self._jobs.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.note_failure(name, error, about=about)


def _shown(name: str, about: str) -> str:
    return f'"{name}" ({about})' if about else f'"{name}"'
