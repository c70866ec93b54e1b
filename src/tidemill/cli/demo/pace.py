"""The rate of a growing count: over the last second during the run, over the whole time at the end."""

SPAN_S = 1.0
"""The shortest time for which a rate is computed."""


class Pace:
    """The rate of one count that starts at 0."""

    def __init__(self, began_s: float) -> None:
        self._began_s = self._marked_s = began_s
        self._marked = 0
        self._rate = 0.0

    def lately(self, now_s: float, count: int) -> float:
        """The rate per second over about the last second."""
        if now_s - self._marked_s >= SPAN_S:
            self._rate = _rate(count - self._marked, now_s - self._marked_s)
            self._marked_s, self._marked = now_s, count
        return self._rate

    def overall(self, ended_s: float, count: int) -> float:
        """The rate per second from start to end."""
        return _rate(count, ended_s - self._began_s)


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0
