"""The interface of the kernels, and the choice of an implementation.

`python` is the reference: plain, slow and obviously correct. `numba` does the same without any Python code per record.
Both pass the same tests, and callers use only `Kernels`. The caller chooses, because this package does not read the
environment.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.records.arrow.batch_builder import Draft
from tidemill.records.arrow.columns import Columns, Runs
from tidemill.records.arrow.table import Table

NAMES = ("numba", "python")


class Kernels(Protocol):
    """The work that is done per record."""

    name: str

    def scan(self, data: memoryview, start: int, end: int, aborted: Sequence[tuple[int, int]]) -> Table:
        """Return the batches that `selection` chooses. Raise CorruptMessage when a header is damaged."""

    def read(
        self, data: memoryview, table: Table, start: int, end: int, wanted: AbstractSet[str]
    ) -> dict[str, pa.Array]:
        """Return the requested columns of the records with offsets from `start` to before `end`, and always `offset`.

        Raise CorruptMessage when any record of the table is damaged, requested or not.
        """

    def prepare(self, columns: Columns) -> Any:
        """Return the columns in the form that `write` takes."""

    def write(self, prepared: Any, rows: npt.NDArray[np.int64], draft: Draft) -> tuple[int, int, int]:
        """Append as many of these rows to a draft as it takes.

        Return how many were written, where they end, and the latest timestamp in the draft.
        """

    def write_runs(self, prepared: Any, runs: Runs, capacity: int) -> list[bytes]:
        """Return the rows as the records of one batch for each run, in at most `capacity` bytes together."""

    def by_crc32(self, columns: Columns, count: int, unkeyed: int) -> npt.NDArray[np.int64]:
        """Return the CRC-32 of each key, modulo `count`. Null and empty keys get `unkeyed`."""

    def by_murmur2(self, columns: Columns, count: int, unkeyed: int) -> npt.NDArray[np.int64]:
        """Return the positive part of Kafka's murmur2 of each key, modulo `count`. Null keys get `unkeyed`."""

    def dealt(self, partitions: npt.NDArray[np.int64], count: int) -> dict[int, npt.NDArray[np.int64]]:
        """Return the rows of each of `count` partitions, in order. Partitions without rows are left out."""


def load_kernels(name: str | None = None) -> Kernels:
    """Return the kernels of this name, or the fastest that are installed. Raise ValueError for an unknown name."""
    name = name or _fastest()
    if name not in NAMES:
        raise ValueError(f"there are no kernels {name!r}; choose one of {', '.join(NAMES)}")
    found: Kernels = import_module(f"tidemill.records.arrow.{name}_kernels").KERNELS
    return found


@cache
def _fastest() -> str:
    return "numba" if find_spec("numba") else "python"
