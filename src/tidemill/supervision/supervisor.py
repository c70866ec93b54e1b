"""Runs the background tasks of one broker, restarts those that fail, and knows which are failing.

`keep` is for loops that run as long as the broker does: an unexpected error is logged, the loop starts again after a
pause that grows, and `reasons` names it meanwhile, which makes `/health` degraded. `spawn` is for a job that ends by
itself and has no caller waiting for it: its error is logged, counted and named for a while. Both return a task;
cancelling that task cancels the work, also during a pause. `keep` calls its factory for each start, so a loop has to
bring its own state into order when it begins.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import structlog

from tidemill.supervision.policy import STABLE_S, TaskState, describe

FAILED_JOBS_MAX = 100
"""Failed jobs that are named at a time."""
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
        """Restarts by the name of the task."""
        self.failures: Counter[str] = Counter()
        """Jobs that failed, by name; a loop that failed is counted as restarted."""
        self._clock_s = clock_s
        self._sleep = sleep
        self._states: dict[asyncio.Task[None], tuple[str, str, TaskState]] = {}
        self._jobs: set[asyncio.Task[Any]] = set()
        self._failed_jobs: dict[tuple[str, str], tuple[float, str]] = {}

    def keep(self, name: str, work: Callable[[], Awaitable[None]], *, about: str = "") -> asyncio.Task[None]:
        """Run a loop until it is cancelled or returns; `about` tells tasks of one name apart."""
        task = asyncio.get_running_loop().create_task(self._keep(name, about, work))
        self._states[task] = (name, about, TaskState(self._clock_s()))
        task.add_done_callback(self._forget)
        return task

    def repeat(self, name: str, interval_s: float, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Do the same again and again, with a pause before each time."""

        async def forever() -> None:
            while True:
                await asyncio.sleep(interval_s)
                await work()

        return self.keep(name, forever)

    def spawn(self, name: str, work: Coroutine[Any, Any, T], *, about: str = "") -> asyncio.Task[T]:
        """Run a job to its end; the supervisor keeps it alive and reports its failure."""
        task = asyncio.get_running_loop().create_task(work)
        self._jobs.add(task)
        task.add_done_callback(lambda done: self._job_ended(name, about, done))
        return task

    def note_failure(self, name: str, error: BaseException, *, about: str = "") -> None:
        """Log and count an unexpected error that was handled where it happened."""
        self.failures[name] += 1
        if len(self._failed_jobs) < FAILED_JOBS_MAX or (name, about) in self._failed_jobs:
            self._failed_jobs[name, about] = (self._clock_s(), describe(error))
        log.error("job failed", job=name, about=about, error=describe(error), exc_info=error)

    def reasons(self) -> list[str]:
        """What is failing now, and which jobs failed of late; without figures, because brokers publish these lines."""
        now_s = self._clock_s()
        self._failed_jobs = {job: last for job, last in self._failed_jobs.items() if now_s - last[0] < STABLE_S}
        tasks = [
            f"task {_shown(name, about)} failed and is restarted: {state.reason}"
            for name, about, state in self._states.values()
            if state.is_failing(now_s)
        ]
        jobs = [f"job {_shown(*job)} failed: {reason}" for job, (_, reason) in self._failed_jobs.items()]
        return tasks + jobs

    def failing(self) -> dict[str, int]:
        """How many tasks of each name are failing; every name that runs is there."""
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
            raise RuntimeError("a supervised loop runs in a task")
        while True:
            try:
                await work()
            except (Exception, asyncio.CancelledError) as error:
                if own.cancelling():
                    raise  # the loop itself is asked to end; anything else was cancelled below it
                state = self._states[own][2].failed(error, self._clock_s())
                self._states[own] = (name, about, state)
                log.exception("task failed", task=name, about=about, failures=state.failures, pause_s=state.pause_s())
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
