"""How a running pipeline gets on, kept in its folder for whoever asks."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidemill.pipelines.core.progress import PipelineStatus, SinkProgress, line
from tidemill.pipelines.folder import Folder, read_status, write_status
from tidemill.pipelines.runner import Reports

WRITE_EVERY_MS = 1_000
SILENT_MS = 60_000
"""A runner tells something every second; one that has not for so long hangs."""
ALIVE = ("starting", "running")
STARTTIME = 19
"""The place of the start time behind the name of the process; see proc(5)."""


class Reporter:
    """Adds up what the queries report, tells it line by line, and keeps the status file."""

    def __init__(self, folder: Folder, say: Callable[[str], None], clock: Callable[[], int]) -> None:
        self._folder = folder
        self._say = say
        self._clock = clock
        self._started_ms = clock()
        self._written_ms = 0
        self._state = ""
        self._standings = {sink.name: SinkProgress(sink.name) for sink in folder.spec.sinks}

    def __enter__(self) -> Self:
        self.keep("starting")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """What is in the file when the runner is gone: why it ended."""
        if error is None or isinstance(error, KeyboardInterrupt):
            self.keep("stopped")
        else:
            self.keep("failed", " ".join(str(error).split()) or type(error).__name__)

    def __call__(self, reports: Reports) -> None:
        """What `runner.tend` calls."""
        now_ms = self._clock()
        for name, batches in reports.items():
            for batch in batches:
                self._standings[name] = self._standings[name].after([batch], now_ms)
                if batch.get("numInputRows"):
                    self._say(line(self._standings[name], batch))
        if self._state != "running" or now_ms - self._written_ms >= WRITE_EVERY_MS:
            self.keep("running")

    def keep(self, state: str, error: str | None = None) -> None:
        """Write the status file."""
        self._state = state
        self._written_ms = self._clock()
        status = PipelineStatus(
            pipeline=self._folder.spec.name,
            state=state,
            pid=os.getpid(),
            born=_born(os.getpid()),
            host=socket.gethostname(),
            started_ms=self._started_ms,
            updated_ms=self._written_ms,
            error=error,
            sinks=tuple(self._standings.values()),
        )
        write_status(self._folder.root, status)


def wall_ms() -> int:
    """The time of day."""
    return time.time_ns() // 1_000_000


def status_of(root: Path, now_ms: int) -> Mapping[str, Any] | None:
    """The status file; a runner that was killed, or that hangs, cannot say so itself.

    A runner on another machine (or in a pod) shares the folder but not its processes: only its silence can be seen.
    """
    found = read_status(root)
    if found is None or found["state"] not in ALIVE:
        return found
    here = found.get("host", socket.gethostname()) == socket.gethostname()
    if here and not _alive(int(found["pid"]), found.get("born")):
        return {**found, "state": "killed"}
    if now_ms - int(found["updated_ms"]) > SILENT_MS:
        return {**found, "state": "silent"}
    return found


def _alive(pid: int, born: str | None) -> bool:
    """Whether the process is there, and is not another one that got the same number later."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return born is None or _born(pid) == born


def _born(pid: int) -> str | None:
    """When a process began, in ticks of the kernel since it started; None where the kernel does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[STARTTIME]
