"""The backlog of a timeline: what is available now, what is leased, and what waits for how long.

Stores count all timelines in one call, because metrics ask for all of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.timelines.core.message import DUE_MS_MAX

WINDOWS_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
"""Waiting messages are counted by the first of these times within which they are due; the rest is due later."""
COUNTED_MAX = 1_000_000
"""The most messages that are counted for one number of one timeline: a count costs time in proportion."""

Ranges = list[tuple[int, int]]


class Backlog(NamedTuple):
    """The messages of one timeline. Each number is at most `COUNTED_MAX`."""

    available: int
    """Due, and not under a live lease."""
    leased: int
    waiting: tuple[int, ...]
    """By window; the last number is of those that are due after all windows."""

    @property
    def total(self) -> int:
        """All messages."""
        return self.available + self.leased + sum(self.waiting)


EMPTY = Backlog(0, 0, (0,) * (len(WINDOWS_MS) + 1))


def free_ranges(now_ms: int) -> Ranges:
    """The due times [from, to) of messages without a live lease: the available ones, then those of each window."""
    ends = [now_ms + 1, *(now_ms + window_ms + 1 for window_ms in WINDOWS_MS), DUE_MS_MAX + 1]
    starts = [0, *ends[:-1]]
    return [(start, max(start, end)) for start, end in zip(starts, ends, strict=True)]


def leased_range(now_ms: int) -> tuple[int, int]:
    """The positions [from, to) of messages under a live lease: the ends of leases are to come."""
    return now_ms + 1, DUE_MS_MAX + 1


def backlog_of(free: Sequence[int], leased: int) -> Backlog:
    """The backlog from the counts of `free_ranges` and of `leased_range`; stores add up several tables."""
    available, *waiting = (min(COUNTED_MAX, count) for count in free)
    return Backlog(available, min(COUNTED_MAX, leased), tuple(waiting))
