"""Those who wait for a partition to have more: long polls, deliveries, followers.

A waiter is a callable that is called every time readers may see more. It must be quick and must not raise; it says
itself when it has seen enough, by calling what `add` gave it.
"""

from collections.abc import Callable

WAITERS_MAX = 100_000


class Waiters:
    """The callables to call when the partition moves."""

    __slots__ = ("_next", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, Callable[[], None]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` on every move from now on; the answer ends that, and may be called more than once."""
        if len(self._waiting) >= WAITERS_MAX:
            raise OverflowError(f"more than {WAITERS_MAX} readers wait for one partition")
        token = self._next
        self._next += 1
        self._waiting[token] = wake

        def leave() -> None:
            self._waiting.pop(token, None)

        return leave

    def wake(self) -> None:
        """Call all who wait; they may leave or join while this runs."""
        if self._waiting:
            for wake in tuple(self._waiting.values()):
                wake()
