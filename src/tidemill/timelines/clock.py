"""The clock of a broker's timelines on a real machine: `core/clock.py` with the two clocks of the system.

Leases are judged by `now_ms`, which never jumps and never goes back. Messages are released by `due_ms`, which is also
never ahead of the wall clock. While a small difference is corrected, `now_ms` may be some milliseconds ahead, and a
consumer with an accurate clock would receive its message early.
"""

import time
from collections.abc import Callable

from tidemill.timelines.core.clock import HOLD_MS, StoreClock

NS_PER_MS = 1_000_000
NS_PER_US = 1_000


class Clock:
    """Reads the system's clocks, or those that a test passes."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = time.monotonic_ns,
        *,
        real_ns: Callable[[], int] | None = None,
        hold_ms: int = HOLD_MS,
        trusted: Callable[[], bool] = lambda: True,
        start_ms: int | None = None,
    ) -> None:
        self._wall_ns = wall_ns
        self._real_ns = real_ns or wall_ns
        self._steady_ns = steady_ns
        self._trusted = trusted
        started_ms = wall_ns() // NS_PER_MS if start_ms is None else start_ms
        self._core = StoreClock(started_ms, steady_ns() // NS_PER_MS, hold_ms=hold_ms)

    def now_ms(self) -> int:
        """The time by which leases are judged."""
        wall_ms, steady_ms = self._wall_ns() // NS_PER_MS, self._steady_ns() // NS_PER_MS
        return self._core.now(wall_ms, steady_ms, trusted=self._trusted())

    def due_ms(self) -> int:
        """The time up to which messages may be sent: never ahead of the wall clock while that is trusted."""
        now_ms = self.now_ms()
        return now_ms if self._core.drifting else min(now_ms, self._wall_ns() // NS_PER_MS)

    def wall_us(self) -> int:
        """The real time of day in microseconds, for the timestamps of a ping, also when a test advances the clock."""
        return self._real_ns() // NS_PER_US

    def delay_s(self, at_ms: int) -> float:
        """The time until `at_ms`; 0 when it has passed."""
        if self._core.drifting:
            return max(0, at_ms - self.now_ms()) / 1_000
        return max(0, at_ms * NS_PER_MS - self._wall_ns()) / 1_000_000_000

    def late_ms(self, at_ms: int) -> float:
        """How long ago `at_ms` was, with fractions, for lateness."""
        return (self._wall_ns() - at_ms * NS_PER_MS) / NS_PER_MS

    @property
    def drift_ms(self) -> int:
        """How far the wall clock has jumped away; 0 while it is followed."""
        self.now_ms()
        return self._core.drift_ms if self._core.drifting else 0
