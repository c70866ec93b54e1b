"""Chooses the kernels that turn records into rows. Compiled kernels are loaded only for many records.

numba takes a second to load and uses a hundred megabytes. A broker with small blocks (journals, a few records) never
loads it. After the first large block, all blocks use it.
"""

from threading import Lock

from tidemill.records.arrow import Kernels, load_kernels

SMALL_ROWS_MAX = 2_000


class RowKernels:
    """The kernels of a process. Thread-safe."""

    def __init__(self) -> None:
        self._loading = Lock()
        self._small = load_kernels("python")
        self._large: Kernels | None = None

    def for_rows(self, rows: int) -> Kernels:
        """Return kernels for about this many rows."""
        if self._large is None and rows <= SMALL_ROWS_MAX:
            return self._small
        with self._loading:
            if self._large is None:
                self._large = load_kernels()
        return self._large


CHOICE = RowKernels()
