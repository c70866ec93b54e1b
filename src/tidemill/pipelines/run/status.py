"""Writes and reads the status file of a running pipeline, in the pipeline's folder."""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidemill.durable_files import replace_file
from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.run.core.progress import PipelineStatus, SinkProgress, line
from tidemill.pipelines.run.runner import Reports
from tidemill.pipelines.spec.folder import STATE, Folder

STATUS = "status.json"
WRITE_EVERY_MS = 1_000
SILENT_MS = 60_000
"""A runner writes its status every second. One that has been silent for so long hangs."""
ALIVE = ("starting", "running")
STARTTIME = 19
"""The field index of the start time, counted after the process name; see proc(5)."""


class Reporter:
    """Adds up the reports of the queries, prints a line for each, and writes the status file."""

    def __init__(self, folder: Folder, say: Callable[[str], None], clock: Callable[[], int]) -> None:
        self._folder = folder
        self._say = say
        self._clock = clock
        self._started_ms = clock()
        self._written_ms = 0
        self._state = ""
        self._progress = {sink.name: SinkProgress(sink.name) for sink in folder.spec.sinks}

    def __enter__(self) -> Self:
        self.keep("starting")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Write the final state: stopped, or failed with its reason."""
        if error is None or isinstance(error, KeyboardInterrupt):
            self.keep("stopped")
        else:
            self.keep("failed", " ".join(str(error).split()) or type(error).__name__)

    def __call__(self, reports: Reports) -> None:
        """Take reports; `runner.tend` calls this."""
        now_ms = self._clock()
        for name, batches in reports.items():
            for batch in batches:
                self._progress[name] = self._progress[name].after([batch], now_ms)
                if batch.get("numInputRows"):
                    self._say(line(self._progress[name], batch))
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
            born=_started_ticks(os.getpid()),
            host=socket.gethostname(),
            started_ms=self._started_ms,
            updated_ms=self._written_ms,
            error=error,
            sinks=tuple(self._progress.values()),
        )
        write_status(self._folder.root, status)


def write_status(root: Path, status: PipelineStatus) -> None:
    """Replace the status file. Readers always see a complete status."""
    root.joinpath(STATE).mkdir(parents=True, exist_ok=True)
    replace_file(root / STATE / STATUS, json.dumps(status.to_json()).encode() + b"\n")


def read_status(root: Path) -> Mapping[str, Any] | None:
    """The last status that the runner wrote; None when it never ran."""
    path = root / STATE / STATUS
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PipelineError(f"{path} is damaged: {error}; the next run replaces it") from None
    if not isinstance(found, dict) or "state" not in found:
        raise PipelineError(f"{path} is damaged: it has no state; the next run replaces it")
    return found


def wall_ms() -> int:
    """The wall clock time."""
    return time.time_ns() // 1_000_000


def status_of(root: Path, now_ms: int) -> Mapping[str, Any] | None:
    """The status file, corrected for a runner that was killed or hangs, which cannot report that itself.

    A runner on another machine (or in a pod) shares the folder but not its processes. Only its silence can be seen.
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
    """Whether the process exists and is not a later one with the same pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return born is None or _started_ticks(pid) == born


def _started_ticks(pid: int) -> str | None:
    """When a process started, in kernel ticks since boot; None where the kernel does not provide it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[STARTTIME]
