"""How fast a count grows: over the last second while it does, over all of the time when it is over."""

SPAN_S = 1.0
"""A moment is too short to tell a rate."""


class Pace:
    """The rate of one count that began at 0."""

    def __init__(self, began_s: float) -> None:
        self._began_s = self._marked_s = began_s
        self._marked = 0
        self._rate = 0.0

    def lately(self, now_s: float, count: int) -> float:
        """Per second over the last second or so."""
        if now_s - self._marked_s >= SPAN_S:
            self._rate = _rate(count - self._marked, now_s - self._marked_s)
            self._marked_s, self._marked = now_s, count
        return self._rate

    def overall(self, ended_s: float, count: int) -> float:
        """Per second from the beginning to the end."""
        return _rate(count, ended_s - self._began_s)


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0
