"""Memory settings of Spark's Python workers, which run task after task, or answer one call of the driver.

Two things would otherwise take up to half of a task's processor time. First, freed memory is returned to the system
(see `allocator`). Second, Spark's workers collect garbage after each task and each call. With Arrow, numba and other
modules loaded, a collection visits several hundred thousand objects that live as long as the process. This costs 40 ms
of processor time in each of the two workers that plan and commit a micro-batch of a sink.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tidemill.allocator import keep_memory

_settled_modules = 0


@contextmanager
def settled() -> Iterator[None]:
    """Run a task: keep its memory for the next one, and exclude loaded modules from garbage collection."""
    global _settled_modules  # noqa: PLW0603 - the state belongs to the process
    if not _settled_modules:
        keep_memory()
    try:
        yield
    finally:
        if len(sys.modules) > _settled_modules:
            gc.collect()
            gc.freeze()
            _settled_modules = len(sys.modules)
