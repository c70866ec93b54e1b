"""What a twin must do, and which twin does it.

`python` is the reference: plain, slow, obviously right. `numba` does the same without any Python per record. Both pass
the same tests; whoever uses them sees only `Kernels`. Which one it is comes in from outside, since this package
knows no environment.
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
        """The batches that `selection` chooses; CorruptMessage when a header is damaged."""

    def read(
        self, data: memoryview, table: Table, start: int, end: int, wanted: AbstractSet[str]
    ) -> dict[str, pa.Array]:
        """The wanted columns of the records with offsets from `start` to before `end`; always also `offset`.

        CorruptMessage when any record of the table is damaged, wanted or not.
        """

    def prepare(self, columns: Columns) -> Any:
        """The columns in the form that `write` takes."""

    def write(self, prepared: Any, rows: npt.NDArray[np.int64], draft: Draft) -> tuple[int, int, int]:
        """Write these rows behind the records of a draft, as many as it takes.

        How many that are, where they end, and the latest time in the draft then.
        """

    def write_runs(self, prepared: Any, runs: Runs, capacity: int) -> list[bytes]:
        """The rows as the records of one batch for each run, in at most `capacity` bytes together."""

    def by_crc32(self, columns: Columns, count: int, unkeyed: int) -> npt.NDArray[np.int64]:
        """The CRC-32 of each key, modulo `count`; null and empty keys go to `unkeyed`."""

    def by_murmur2(self, columns: Columns, count: int, unkeyed: int) -> npt.NDArray[np.int64]:
        """The positive part of Kafka's murmur2 of each key, modulo `count`; null keys go to `unkeyed`."""

    def dealt(self, partitions: npt.NDArray[np.int64], count: int) -> dict[int, npt.NDArray[np.int64]]:
        """The rows of each partition of so many, in their order; partitions without rows are not there."""


def load_kernels(name: str | None = None) -> Kernels:
    """The twin of this name, or the fastest that is installed; ValueError when there is none of this name."""
    name = name or _fastest()
    if name not in NAMES:
        raise ValueError(f"there are no kernels {name!r}; choose one of {', '.join(NAMES)}")
    twin: Kernels = import_module(f"tidemill.records.arrow.{name}").KERNELS
    return twin


@cache
def _fastest() -> str:
    return "numba" if find_spec("numba") else "python"
