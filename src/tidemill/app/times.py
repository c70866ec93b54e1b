"""The clocks of a node: those of the system, which a test may let run ahead.

Time that passes in a test is time of the calendar and of timelines: messages fall due, leases end, delays are over. The
steady clock of members and sessions stays as it is, so that they see what they see when somebody sets a clock ahead:
nobody is missed for it.
"""

import time
from pathlib import Path

NS_PER_MS = 1_000_000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux: goes on while the machine sleeps, so that a laptop that wakes up did not jump. Elsewhere there is none."""


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

    def wall_ms(self) -> int:
        """The same in milliseconds."""
        return self.wall_ns() // NS_PER_MS

    def boot_ms(self) -> int:
        """A clock that cannot be set and goes on while the machine sleeps."""
        now_ns = time.monotonic_ns() if BOOT_CLOCK is None else time.clock_gettime_ns(BOOT_CLOCK)
        return now_ns // NS_PER_MS + self.ahead_ms

    def boot_id(self) -> str:
        """What differs from boot to boot; empty where the system does not say."""
        try:
            return BOOT_ID.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def passed_ns(self) -> int:
        """The clock by which leases of timelines end."""
        return time.monotonic_ns() + self.ahead_ms * NS_PER_MS

    def steady_ms(self) -> int:
        """Milliseconds by a clock that nobody can set."""
        return time.monotonic_ns() // NS_PER_MS
