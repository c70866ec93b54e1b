"""The clocks of a node: those of the system, which a test may let run ahead.

Time that passes in a test is time of the calendar and of timelines: messages fall due, leases end, delays are over. The
steady clock of members and sessions stays as it is, so that they see what they see when somebody sets a clock ahead:
nobody is missed for it.
"""

import time

NS_PER_MS = 1_000_000


class Times:
    """What time it is; `ahead_ms` is how much has passed that did not."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // NS_PER_MS + self.ahead_ms

    def wall_ns(self) -> int:
        """The calendar by which timelines go."""
        return time.time_ns() + self.ahead_ms * NS_PER_MS

    def passed_ns(self) -> int:
        """The clock by which leases of timelines end."""
        return time.monotonic_ns() + self.ahead_ms * NS_PER_MS

    def steady_ms(self) -> int:
        """Milliseconds by a clock that nobody can set."""
        return time.monotonic_ns() // NS_PER_MS
