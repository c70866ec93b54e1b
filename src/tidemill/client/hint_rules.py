"""When a client follows a hint to use another broker: at most once in a window, and not to one that failed."""

from collections.abc import Sequence

WINDOW_MS_MIN = 1_000
"""A client moves at most once a second, whatever the broker says."""
AVOID_WINDOWS = 10
"""After so many windows an address that could not be used is tried again."""
AVOIDED_MAX = 100


class HintRules:
    """The moves of one client. Times are of a clock that cannot be set."""

    def __init__(self, *, follows: bool) -> None:
        self.moves = 0
        self._follows = follows
        self._moved_ms: int | None = None
        self._window_ms = WINDOW_MS_MIN
        self._avoided: dict[str, int] = {}

    def target(self, addresses: Sequence[str], window_ms: int, now_ms: int, current: str) -> str | None:
        """The address to move to now; None to stay."""
        self._window_ms = max(WINDOW_MS_MIN, window_ms)
        if not self._follows or (self._moved_ms is not None and now_ms - self._moved_ms < self._window_ms):
            return None
        self._avoided = {name: until_ms for name, until_ms in self._avoided.items() if until_ms > now_ms}
        return next((one for one in addresses if one and one != current and one not in self._avoided), None)

    def moved(self, now_ms: int) -> None:
        """The client moves now."""
        self.moves += 1
        self._moved_ms = now_ms

    def failed(self, address: str, now_ms: int) -> None:
        """The client could not use this address."""
        if len(self._avoided) < AVOIDED_MAX:
            self._avoided[address] = now_ms + AVOID_WINDOWS * self._window_ms
