"""Housekeeping of Spark's Python workers, which run one task after the other, or answer one question of the driver.

Two things take up to half of a task's processor time otherwise. The C library gives every freed buffer of a few MB back
to the system, which then hands out zeroed pages for the next one, a fault for each of them. And Spark's workers collect
garbage after each task and each answer: with Arrow, numba and the rest loaded, that is a walk over several hundred
thousand objects that live as long as the process, 40 ms of processor for each of the two that plan and commit a
micro-batch of a sink.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Freed memory that a worker keeps for its next buffers."""
KEPT_BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""Buffers above it come from the system and go back to it; the C library allows no more."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of mallopt(3)."""

_settled_modules = 0


@contextmanager
def settled() -> Iterator[None]:
    """Around a task: memory is kept for the next one, and what was loaded is none of the collector's business."""
    global _settled_modules  # noqa: PLW0603 - it is about the process
    if not _settled_modules:
        _keep_memory()
    try:
        yield
    finally:
        if len(sys.modules) > _settled_modules:
            gc.collect()
            gc.freeze()
            _settled_modules = len(sys.modules)


def _keep_memory() -> None:
    """Where the C library is not glibc, nothing is changed."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(_MMAP_THRESHOLD, KEPT_BUFFER_BYTES_MAX)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES_MAX)
