"""Housekeeping of Spark's Python workers, which run one task after the other, or answer one question of the driver.

Two things take up to half of a task's processor time otherwise. Freed memory goes back to the system (`allocator`). And
Spark's workers collect garbage after each task and each answer: with Arrow, numba and the rest loaded, that is a walk
over several hundred thousand objects that live as long as the process, 40 ms of processor for each of the two that
plan and commit a micro-batch of a sink.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tidemill.allocator import keep_memory

_settled_modules = 0


@contextmanager
def settled() -> Iterator[None]:
    """Around a task: memory is kept for the next one, and what was loaded is none of the collector's business."""
    global _settled_modules  # noqa: PLW0603 - it is about the process
    if not _settled_modules:
        keep_memory()
    try:
        yield
    finally:
        if len(sys.modules) > _settled_modules:
            gc.collect()
            gc.freeze()
            _settled_modules = len(sys.modules)
