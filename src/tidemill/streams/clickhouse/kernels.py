"""Which kernels turn records into rows: compiled ones are worth loading only for many records.

numba takes a second to load and a hundred megabytes to keep. A broker whose blocks are small (journals, a few records
now and then) never loads it; from the first large block on everything goes through it.
"""

from threading import Lock

from tidemill.records.arrow import Kernels, load_kernels

SMALL_ROWS_MAX = 2_000


class RowKernels:
    """The kernels of a process; may be asked from several threads."""

    def __init__(self) -> None:
        self._loading = Lock()
        self._small = load_kernels("python")
        self._large: Kernels | None = None

    def for_rows(self, rows: int) -> Kernels:
        """Kernels for about so many rows."""
        if self._large is None and rows <= SMALL_ROWS_MAX:
            return self._small
        with self._loading:
            if self._large is None:
                self._large = load_kernels()
        return self._large


CHOICE = RowKernels()
