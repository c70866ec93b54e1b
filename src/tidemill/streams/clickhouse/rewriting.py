"""Compaction of rows: deletions and marks instead of rewritten files.

Compaction only removes records, sets delete horizons and empties batches. So offsets describe its result for a range:
which stay, which get a delete horizon, which batches stay without records. The statements may stop at any point. The
deleted and the remaining rows are both correct then, because a pass goes from old to new.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tidemill.model.errors import CorruptMessage, UnsupportedCompressionType
from tidemill.records.header import Buffer, read_header
from tidemill.records.read import read_records
from tidemill.streams.clickhouse.statements import bits

CHUNK_OFFSETS = 1 << 19
"""The offsets that one statement covers: 128 KiB of text."""


class Kept:
    """The rows that stay between two offsets."""

    def __init__(self, base_offset: int, end_offset: int) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.size_bytes = 0
        self.largest_timestamp = -1
        self.emptied: list[int] = []
        self.horizon_ms = -1
        self._offsets: list[int] = []
        self._dated: list[int] = []

    def learn(self, batches: Sequence[Buffer]) -> None:
        """Record batches that stay."""
        for batch in batches:
            header = read_header(batch)
            self.size_bytes += header.size
            self.largest_timestamp = max(self.largest_timestamp, header.max_timestamp)
            offsets = _offsets(batch, header.base_offset)
            if not offsets:
                self.emptied.append(header.base_offset)
            self._offsets += offsets
            if header.delete_horizon_ms is not None:
                self.horizon_ms = max(self.horizon_ms, header.delete_horizon_ms)
                self._dated += offsets

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The rows that stay."""
        return np.array(self._offsets, np.int64)

    @property
    def dated(self) -> npt.NDArray[np.int64]:
        """The rows of batches with a delete horizon."""
        return np.array(self._dated, np.int64)


def _offsets(batch: Buffer, base_offset: int) -> list[int]:
    try:
        return [record.offset for record in read_records(batch)]
    except (CorruptMessage, UnsupportedCompressionType):
        return [base_offset]  # an opaque batch is one row


class Replacement:
    """The statements that reduce a range of rows to the rows that stay."""

    def __init__(self, where: str, kept: Kept, emptied_rows: Sequence[int]) -> None:
        self._where = where
        self._kept = kept
        self._emptied_rows = np.array(emptied_rows, np.int64)

    def statements(self) -> Iterator[str]:
        """Yield the statements in the order in which they must run."""
        kept = self._kept
        if len(self._emptied_rows):
            listed = ", ".join(map(str, self._emptied_rows.tolist()))
            yield (
                "ALTER TABLE messages UPDATE mark = 'empty', key = NULL, value = NULL, headers = [] "
                f"WHERE {self._where} AND offset IN ({listed})"
            )
        offsets, dated = np.concatenate([kept.offsets, self._emptied_rows]), kept.dated
        for first in range(kept.base_offset, kept.end_offset, CHUNK_OFFSETS):
            end = min(first + CHUNK_OFFSETS, kept.end_offset)
            within = f"{self._where} AND offset >= {first} AND offset < {end}"
            if ((dated >= first) & (dated < end)).any():
                yield (
                    f"ALTER TABLE messages UPDATE delete_horizon = {kept.horizon_ms} "
                    f"WHERE {within} AND delete_horizon < 0 AND {bits(first, end, dated)}"
                )
            yield f"DELETE FROM messages WHERE {within} AND NOT ({bits(first, end, offsets)})"
