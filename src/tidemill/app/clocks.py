"""The clocks of a node: those of the system, which a test may let run ahead.

Time that passes in a test is time of the calendar and of timelines: messages fall due, leases end, delays are over. The
steady clock of members and sessions stays as it is, so that they see what they see when somebody sets a clock ahead:
nobody is missed for it.
"""

import time
from pathlib import Path

NS_PER_MS = 1_000_000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClocks:
    """What time it is; `ahead_ms` is how much has passed that did not."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._boot_clock = _boot_clock()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // NS_PER_MS + self.ahead_ms

    def wall_ns(self) -> int:
        """The calendar by which timelines go."""
        return time.time_ns() + self.ahead_ms * NS_PER_MS

    def wall_ms(self) -> int:
        """The wall clock of the machine, for what is kept beyond this run: time that a test lets pass is not in it."""
        return time.time_ns() // NS_PER_MS

    def boot_ms(self) -> int:
        """A clock that cannot be set and goes on while the machine sleeps; without the time that a test lets pass."""
        return time.clock_gettime_ns(self._boot_clock) // NS_PER_MS

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


def _boot_clock() -> int:
    """The clock that goes on while the machine sleeps, so that a laptop that wakes up did not jump.

    Linux has CLOCK_BOOTTIME. macOS counts sleep in CLOCK_MONOTONIC, unlike `time.monotonic`, which stops there.
    """
    clock: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return clock
