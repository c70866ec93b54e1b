"""The clock of a timeline store: it follows the calendar, but never jumps and never goes back.

Due times are calendar times, but a lease is a duration, and both are compared with one clock. If that clock jumped
forward by two minutes, all leases would end while their holders still work: two live leases on one message. If it
jumped back, leases that had ended would be live again. So:

- time advances with the monotonic clock of the machine, which cannot be set;
- small differences from the wall clock are corrected slowly, by at most SLEW_PER_MILLE of the elapsed time;
- a large difference is a *drift*. The clock continues steadily and reports it (`drifting`). Its user stops what would
  do harm: granting or extending leases, deleting by time. When the difference has lasted for `hold_ms` (longer than
  the live leases), the wall clock is accepted. After a jump forward the clock jumps too. After a jump back the clock
  stops, and still reports a drift, until the wall clock has caught up, because its due messages are not due by the
  calendar.

A broker that starts has no other time than the wall clock, and accepts it. The clock reads nothing itself: both times
are arguments of each call.
"""

SLEW_PER_MILLE = 5
DRIFT_MS_MAX = 500
HOLD_MS = 30_000


class StoreClock:
    """Monotonic calendar time in ms, from a wall clock that can be set and a monotonic clock that cannot."""

    def __init__(
        self, wall_ms: int, steady_ms: int, *, drift_ms_max: int = DRIFT_MS_MAX, hold_ms: int = HOLD_MS
    ) -> None:
        self.drift_ms = 0
        self._now_ms = float(wall_ms)
        self._reported_ms = wall_ms
        self._steady_ms = steady_ms
        self._drift_ms_max = drift_ms_max
        self._hold_ms = hold_ms
        self._drifting_since_ms: int | None = None

    @property
    def drifting(self) -> bool:
        """Whether the wall clock differs by more than is allowed, or this clock is stopped."""
        return abs(self.drift_ms) > self._drift_ms_max or self._reported_ms > self._now_ms

    def now(self, wall_ms: int, steady_ms: int, *, trusted: bool = True) -> int:
        """The time of the store; never less than before. A wall clock that is not trusted is not accepted."""
        passed_ms = max(0, steady_ms - self._steady_ms)
        self._steady_ms += passed_ms
        self._now_ms += passed_ms
        difference_ms = wall_ms - self._now_ms
        if abs(difference_ms) <= self._drift_ms_max:
            self._drifting_since_ms = None
            most = passed_ms * SLEW_PER_MILLE / 1000
            self._now_ms += max(-most, min(most, difference_ms))
        elif self._drifting_since_ms is None:
            self._drifting_since_ms = self._steady_ms
        elif trusted and self._steady_ms - self._drifting_since_ms >= self._hold_ms:
            self._now_ms = float(wall_ms)
            self._drifting_since_ms = None
        self._reported_ms = max(self._reported_ms, int(self._now_ms))
        self.drift_ms = wall_ms - self._reported_ms
        return self._reported_ms
