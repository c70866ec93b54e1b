"""The clocks of a node: the system's clocks plus an offset that tests can add.

`advance` in a test moves the wall clock and the clock of leases: messages become due, leases expire, delays end. The
monotonic clock of group members and sessions must not move, so that no member times out because of it. The same happens
when an operator sets the system clock ahead.
"""

import time
from pathlib import Path

NS_PER_MS = 1_000_000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClocks:
    """The current times of a node. `ahead_ms` is the offset that tests have added."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._boot_clock = _boot_clock()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // NS_PER_MS + self.ahead_ms

    def wall_ns(self) -> int:
        """The wall clock that timelines use, in nanoseconds since 1970, with the test offset."""
        return time.time_ns() + self.ahead_ms * NS_PER_MS

    def wall_ms(self) -> int:
        """The machine's wall clock without the test offset, for timestamps that outlive this run."""
        return time.time_ns() // NS_PER_MS

    def boot_ms(self) -> int:
        """A clock that cannot be set and keeps counting while the machine sleeps, without the test offset."""
        return time.clock_gettime_ns(self._boot_clock) // NS_PER_MS

    def boot_id(self) -> str:
        """An id that differs from boot to boot. Empty where the system does not provide one."""
        try:
            return BOOT_ID.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def passed_ns(self) -> int:
        """The monotonic clock by which leases of timelines expire, with the test offset."""
        return time.monotonic_ns() + self.ahead_ms * NS_PER_MS

    def steady_ms(self) -> int:
        """The monotonic clock in milliseconds. It cannot be set."""
        return time.monotonic_ns() // NS_PER_MS


def _boot_clock() -> int:
    """The clock that keeps counting during sleep, so that a laptop's wake-up does not look like a clock jump.

    Linux has CLOCK_BOOTTIME. macOS counts sleep in CLOCK_MONOTONIC, unlike `time.monotonic`, which stops there.
    """
    clock: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return clock
