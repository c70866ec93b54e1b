"""A JVM comes up as a whole, or is gone.

PySpark, interrupted (Ctrl-C) while it waits for the JVM to say where it listens, removes the folder in which it is to
be said. The JVM then fails to say it, and stays for ever: it looks for the end of its parent only later on.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_or_gone() -> Iterator[None]:
    """Processes that were started in here end when this is left by an exception."""
    before = _children()
    try:
        yield
    except BaseException:
        for pid in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise


def _children() -> set[int]:
    """The processes that this one started and that still run; none where the kernel does not say."""
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread may end meanwhile
            found.update(map(int, task.read_text(encoding="ascii").split()))
    return found
