"""The one clock of a timeline store: it follows the calendar, but never jumps and never goes back.

Due times are calendar times, yet a lease is a length of time, and both are compared with one clock. If that clock
jumped forward by two minutes, all leases would end at once while their holders still work: two live leases on one
message. If it jumped back, leases that had ended would be live again. So:

- time goes on with the steady clock of the machine (the one that nobody can set);
- small differences from the wall clock are made up slowly, by at most SLEW_PER_MILLE of the time that passes;
- a large difference is a *drift*: the clock goes on steadily and says so (`drifting`), its user stops what would do
  harm: giving or extending leases, deleting by time. When the wall clock has stayed there for `hold_ms` (longer than
  the leases that are live), it is believed. A jump forward is taken over; after a jump back the clock stands still, and
  is said to drift, until the wall clock has caught up: what it calls due is not due yet by the calendar.

A broker that starts has nothing but the wall clock to go by: it believes it.
The clock reads nothing itself: both times come in with each call.
"""

SLEW_PER_MILLE = 5
DRIFT_MS_MAX = 500
HOLD_MS = 30_000


class StoreClock:
    """Monotone calendar time in ms, from a wall clock that may be set and a steady clock that may not."""

    def __init__(
        self, wall_ms: int, steady_ms: int, *, drift_ms_max: int = DRIFT_MS_MAX, hold_ms: int = HOLD_MS
    ) -> None:
        self.drift_ms = 0
        self._now_ms = float(wall_ms)
        self._told_ms = wall_ms
        self._steady_ms = steady_ms
        self._drift_ms_max = drift_ms_max
        self._hold_ms = hold_ms
        self._drifting_since_ms: int | None = None

    @property
    def drifting(self) -> bool:
        """Whether the wall clock differs from this clock by more than it may, or this clock stands still."""
        return abs(self.drift_ms) > self._drift_ms_max or self._told_ms > self._now_ms

    def now(self, wall_ms: int, steady_ms: int, *, trusted: bool = True) -> int:
        """The time of the store; never less than before. A wall clock that is not trusted is not taken over."""
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
        self._told_ms = max(self._told_ms, int(self._now_ms))
        self.drift_ms = wall_ms - self._told_ms
        return self._told_ms
