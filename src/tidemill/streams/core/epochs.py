"""The start offset of each leader epoch in the log.

A reader or follower asks where an epoch ended. Where the logs differ it truncates to that offset, not to a high
watermark (KIP-101). The answer describes the largest epoch that is not above the requested one (KIP-279). Epochs and
their start offsets only increase.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

UNKNOWN = (-1, -1)


class Epochs:
    """The first offset of every leader epoch that has records."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self, saved: Iterable[Sequence[int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in saved:
            self.assign(epoch, start)

    @property
    def last(self) -> int:
        """The newest epoch with records, or -1."""
        return self._epochs[-1] if self._epochs else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record a batch of `epoch` at `start_offset`. Only the first batch of a newer epoch is kept."""
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(start_offset)

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """Return the largest epoch not above `epoch`, and its end offset in a log that ends at `end_offset`."""
        if epoch < 0:
            return UNKNOWN
        place = bisect_right(self._epochs, epoch)
        if place == 0:
            return UNKNOWN
        return self._epochs[place - 1], self._starts[place] if place < len(self._starts) else end_offset

    def truncate(self, end_offset: int) -> None:
        """Remove epochs that start at or after the log's new end."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()

    def trim(self, start_offset: int) -> None:
        """Remove epochs that ended before the log's new start. The epoch that contains the start now begins there."""
        keep = max(bisect_right(self._starts, start_offset) - 1, 0)
        del self._epochs[:keep], self._starts[:keep]
        if self._starts and self._starts[0] < start_offset:
            self._starts[0] = start_offset

    def save(self) -> list[list[int]]:
        """Return the epochs as plain numbers, for the checkpoint."""
        return [list(pair) for pair in zip(self._epochs, self._starts, strict=True)]
