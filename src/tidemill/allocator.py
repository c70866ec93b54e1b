"""What the C library does with memory that is freed, for processes through which buffers of megabytes go.

It gives every such buffer back to the system, which hands out zeroed pages for the next one, a fault for each of them.
That is a tenth of what a large batch costs the broker, and up to half of what it costs a worker of Spark.
"""

import ctypes
import sys

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Freed memory that a process keeps for its next buffers."""
KEPT_BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""Buffers above it come from the system and go back to it; the C library allows no more."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of mallopt(3)."""


def keep_memory() -> None:
    """Use freed memory again. Where the C library is not glibc, nothing is changed."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(_MMAP_THRESHOLD, KEPT_BUFFER_BYTES_MAX)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES_MAX)
