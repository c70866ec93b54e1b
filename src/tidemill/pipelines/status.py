"""How a running pipeline gets on, kept in its folder for whoever asks."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidemill.pipelines.core.progress import Standing, Status, line
from tidemill.pipelines.folder import Folder, read_status, write_status
from tidemill.pipelines.runner import Reports

WRITE_EVERY_MS = 1_000


class Reporter:
    """Adds up what the queries report, tells it line by line, and keeps the status file."""

    def __init__(self, folder: Folder, say: Callable[[str], None], clock: Callable[[], int]) -> None:
        self._folder = folder
        self._say = say
        self._clock = clock
        self._started_ms = clock()
        self._written_ms = 0
        self._standings = {sink.name: Standing(sink.name) for sink in folder.spec.sinks}

    def __call__(self, reports: Reports) -> None:
        """What `runner.tend` calls."""
        now_ms = self._clock()
        for name, batches in reports.items():
            for batch in batches:
                self._standings[name] = self._standings[name].after([batch], now_ms)
                if batch.get("numInputRows"):
                    self._say(line(self._standings[name], batch))
        if now_ms - self._written_ms >= WRITE_EVERY_MS:
            self.keep("running")

    def keep(self, state: str, error: str | None = None) -> None:
        """Write the status file."""
        self._written_ms = self._clock()
        status = Status(
            pipeline=self._folder.spec.name,
            state=state,
            pid=os.getpid(),
            started_ms=self._started_ms,
            updated_ms=self._written_ms,
            error=error,
            sinks=tuple(self._standings.values()),
        )
        write_status(self._folder.root, status)


def wall_ms() -> int:
    """The time of day."""
    return time.time_ns() // 1_000_000


def status_of(root: Path) -> Mapping[str, Any] | None:
    """The status file; a runner that was killed cannot say so itself."""
    found = read_status(root)
    if found is not None and found["state"] == "running" and not _alive(int(found["pid"])):
        return {**found, "state": "killed"}
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
