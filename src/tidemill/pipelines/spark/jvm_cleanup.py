"""Kills the JVM if its start is interrupted.

While PySpark waits for the JVM's port, Ctrl-C makes it remove the folder in which the JVM announces the port. The JVM
then cannot announce it and runs forever, because it checks for the end of its parent only later.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def kill_children_on_error() -> Iterator[None]:
    """Kill the child processes that were started inside if an exception leaves the block."""
    before = _children()
    try:
        yield
    except BaseException:
        for pid in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise


def _children() -> set[int]:
    """The running child processes of this process; empty where the kernel does not list them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread may have ended
            found.update(map(int, task.read_text(encoding="ascii").split()))
    return found
