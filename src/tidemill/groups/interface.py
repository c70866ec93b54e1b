"""The dependencies of the group coordinator besides a journal: timers for the deadlines of groups."""

from collections.abc import Callable
from typing import Protocol, TypeAlias


class GroupTimers(Protocol):
    """Reports the groups whose time has come."""

    def set(self, name: str, at_ms: int, /) -> None:
        """Report this group at `at_ms` or earlier."""

    def shift(self, by_ms: int, /) -> None:
        """Move all times after the clock was set."""

    def close(self) -> None:
        """Stop reporting."""


MakeTimers: TypeAlias = Callable[[Callable[[], int], Callable[[str], None]], GroupTimers]
"""Makes timers from a clock in milliseconds and a function that is called with each group that is due."""
