"""Keeps freed memory in the process, for processes that handle buffers of several megabytes.

By default the C library returns every such buffer to the system, which provides zeroed pages for the next one, with a
fault for each page. That is a tenth of what a large batch costs the broker, and up to half of what it costs a Spark
worker.
"""

import ctypes
import sys

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Freed memory that a process keeps for its next buffers."""
KEPT_BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""Larger buffers come from the system and are returned to it. The C library allows no higher limit."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Constants of mallopt(3)."""


def keep_memory() -> None:
    """Reuse freed memory. Without glibc, nothing is changed."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(_MMAP_THRESHOLD, KEPT_BUFFER_BYTES_MAX)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES_MAX)
