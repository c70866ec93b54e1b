"""One writer for a folder: the kernel forgets the lock when its process dies, however it dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.pipelines.core.errors import PipelineError


class Busy(PipelineError):
    """Another process writes there."""


@contextmanager
def hold(path: Path, what: str) -> Iterator[None]:
    """Be the only one who has the lock file; `what` it is about is for the message."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            raise Busy(f"process {holder or 'unknown'} is at work on {what}; stop it first, or wait for it") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
