"""Allows one writer for a folder, by a lock file.

The kernel releases the lock when the process ends, even by a crash.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.pipelines.errors import PipelineError


class Busy(PipelineError):
    """Another process writes to the same folder."""


@contextmanager
def hold(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file exclusively. `what` names the locked thing in the error message."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            raise Busy(f"process {holder or 'unknown'} is working on {what}; stop it or wait until it ends") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
