"""The aborted transactions of a partition, which a read_committed reader must skip.

An entry is added when an abort marker is applied, so entries are ordered by their last offset. Each entry keeps the
last stable offset at that time. No transaction that ends later can start below it, so a search can stop early.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class AbortedTransaction(NamedTuple):
    """A transaction whose records the reader drops, from `first_offset` to its abort marker."""

    producer_id: int
    first_offset: int


class AbortedRange(NamedTuple):
    """An aborted transaction as the index stores it."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


class AbortedIndex:
    """Aborted transactions by the offset of their marker."""

    __slots__ = ("_ranges",)

    def __init__(self, saved: Iterable[Sequence[int]] = ()) -> None:
        self._ranges = [AbortedRange(*numbers) for numbers in saved]

    def __len__(self) -> int:
        return len(self._ranges)

    def add(self, producer_id: int, first_offset: int, last_offset: int, stable_offset: int) -> None:
        """Add a transaction whose abort marker is at `last_offset`."""
        self._ranges.append(AbortedRange(producer_id, first_offset, last_offset, stable_offset))

    def drop_last(self) -> None:
        """Remove the newest entry, because its marker could not be written."""
        self._ranges.pop()

    def overlapping(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the transactions with records in [start_offset, end_offset)."""
        found = []
        for entry in self._ranges[self._first_ending_at(start_offset) :]:
            if entry.first_offset < end_offset:
                found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
            if entry.stable_offset >= end_offset:
                break
        return found

    def trim(self, start_offset: int) -> None:
        """Remove transactions that ended before the log's start."""
        del self._ranges[: self._first_ending_at(start_offset)]

    def ranges(self) -> list[AbortedRange]:
        """Return all entries, ordered by the offset of their marker."""
        return list(self._ranges)

    def forget(self, gone: Iterable[AbortedRange]) -> None:
        """Remove transactions of which compaction has left no record."""
        doomed = set(gone)
        self._ranges = [entry for entry in self._ranges if entry not in doomed]

    def save(self) -> list[list[int]]:
        """Return the index as plain numbers, for the checkpoint."""
        return [list(entry) for entry in self._ranges]

    def _first_ending_at(self, offset: int) -> int:
        return bisect_left(self._ranges, offset, key=lambda entry: entry.last_offset)
