"""The load of a timeline: what waits for its consumers, so that they can react to a spike.

Arrivals are not counted one by one, because a message may become due while it is not in memory. What has arrived since
the last measurement is what was pushed, plus the growth of what is available. A broker that shares the timeline with
others knows only its own pushes, and scales them by its part of the buckets.
"""

import math
from typing import NamedTuple

AVAILABLE_MAX = 100_000
"""Available messages are counted up to this number: a count costs time in proportion."""
SMOOTHING_S = 5.0
"""After a spike of this length the rate shows about two thirds of it."""
SHARE_MIN = 0.01
MS_PER_S = 1_000


class LoadFigures(NamedTuple):
    """The load of a timeline at a time."""

    available: int
    """Due and not leased; at most `AVAILABLE_MAX`."""
    arrivals_per_s: float
    """Messages that become available per second, smoothed: due ones, and those whose lease ended or was released."""
    late_ms: int
    """How late the latest message was pushed since the last measurement, or how long the oldest one waits by now."""


class TimelineLoadMeter:
    """Computes the load from counts."""

    def __init__(self) -> None:
        self._pushed = 0
        self._late_ms = 0
        self._available = 0
        self._rate: float | None = None
        self._measured_ms: int | None = None

    def pushed(self, count: int, late_ms: int) -> None:
        """Note a push, and how late the latest of its messages is."""
        self._pushed += count
        self._late_ms = max(self._late_ms, late_ms)

    def measure(self, available: int, oldest_ms: int | None, share: float, now_ms: int) -> LoadFigures:
        """The load now; `oldest_ms`: since when the first queued message waits; `share`: our part of the buckets."""
        rate = self._rate_at(available, share, now_ms)
        waiting_ms = 0 if oldest_ms is None else now_ms - oldest_ms
        load = LoadFigures(available, round(rate, 1), max(0, self._late_ms, waiting_ms))
        self._available, self._measured_ms = available, now_ms
        self._pushed = self._late_ms = 0
        return load

    def restart(self) -> None:
        """Forget the rate: nothing was measured for a while."""
        self._pushed = self._late_ms = 0
        self._rate = self._measured_ms = None

    def _rate_at(self, available: int, share: float, now_ms: int) -> float:
        if self._measured_ms is None or now_ms <= self._measured_ms:
            return self._rate or 0.0
        passed_s = (now_ms - self._measured_ms) / MS_PER_S
        arrived = max(0.0, self._pushed / max(share, SHARE_MIN) + available - self._available)
        newest = arrived / passed_s
        if self._rate is None:
            self._rate = newest
        else:
            self._rate += (newest - self._rate) * (1 - math.exp(-passed_s / SMOOTHING_S))
        return self._rate
