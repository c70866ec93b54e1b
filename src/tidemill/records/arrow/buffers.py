"""Memory for the decompressed records of a group of batches, reused for the next group.

New memory costs more than decompressing into it, because each of its pages is a fault. The kernels copy what they keep,
so one buffer serves a whole partition. It grows when something does not fit, and is never larger than a group of
batches.
"""

import numpy as np

from tidemill.model.errors import CorruptMessage
from tidemill.records.arrow.table import END, START, Table
from tidemill.records.compression import DECOMPRESSED_BYTES_MAX, Codec, decompress, decompress_into
from tidemill.records.header import Buffer

FIRST_BYTES = 1024 * 1024
GROWTH = 4


class DecompressedRecords:
    """The decompressed records of a group of batches."""

    def __init__(self, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> None:
        self._memory = memoryview(b"")
        self._limit_bytes = limit_bytes
        self._ends: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._ends)

    @property
    def used(self) -> int:
        """The size of the group so far, in bytes."""
        return self._ends[-1] if self._ends else 0

    def clear(self) -> None:
        """Start a new group in the same memory."""
        self._ends = []

    def add(self, codec: Codec, data: Buffer) -> None:
        """Decompress one batch after the others. Raise CorruptMessage like `decompress`."""
        written = self._decompressed(codec, data)
        while written is None:
            if len(self._memory) - self.used >= self._limit_bytes:
                raise CorruptMessage(f"the records cannot be decompressed into {self._limit_bytes} bytes")
            self._grow()
            written = self._decompressed(codec, data)
        self._ends.append(self.used + written)

    def laid(self, table: Table) -> tuple[memoryview, Table]:
        """Return the memory, and the table with the positions of the batches' records in it."""
        moved = table.copy()
        moved[:, END] = np.array(self._ends)
        moved[0, START] = 0
        moved[1:, START] = moved[:-1, END]
        return self._memory[: self.used], moved

    def _decompressed(self, codec: Codec, data: Buffer) -> int | None:
        free = self._memory[self.used :][: self._limit_bytes]
        if codec in {Codec.LZ4, Codec.ZSTD}:
            return decompress_into(codec, data, free) if free else None
        found = decompress(codec, data, self._limit_bytes)
        if len(found) > len(free):
            self._grow(len(found))
        self._memory[self.used : self.used + len(found)] = found
        return len(found)

    def _grow(self, more_bytes: int = 0) -> None:
        """Replace the memory with a larger one. Readers may still use the last group, so it is not resized."""
        size = max(FIRST_BYTES, GROWTH * len(self._memory), self.used + more_bytes)
        larger = np.empty(min(size, self.used + max(self._limit_bytes, more_bytes)), np.uint8).data
        larger[: self.used] = self._memory[: self.used]
        self._memory = larger
