"""Callables that a partition calls when readers may see more: long polls, deliveries and followers.

A waiter must return quickly and must not raise. It ends its registration by calling the function that `add` returned.
"""

from collections.abc import Callable

WAITERS_MAX = 100_000


class Waiters:
    """The registered callables of one partition."""

    __slots__ = ("_next", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, Callable[[], None]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` on every change from now on. The returned function ends that and may be called repeatedly."""
        if len(self._waiting) >= WAITERS_MAX:
            raise OverflowError(f"more than {WAITERS_MAX} readers wait for one partition; retry later")
        token = self._next
        self._next += 1
        self._waiting[token] = wake

        def leave() -> None:
            self._waiting.pop(token, None)

        return leave

    def wake(self) -> None:
        """Call every waiter. Waiters may be added or removed meanwhile."""
        if self._waiting:
            for wake in tuple(self._waiting.values()):
                wake()
