"""Limits how often events are logged that a client can repeat without end. The clock is an argument."""

from collections.abc import Callable

REPEAT_S = 60.0
"""The time in which the same event is logged once."""
EVENTS_PER_S = 50
REMEMBERED_EVENTS_MAX = 5000

EventKey = tuple[object, ...]


class EventLimiter:
    """Which events are logged: each once in a while, and not too many in all."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._recent: dict[EventKey, tuple[float, int]] = {}
        self._second = -1
        self._logged = 0
        self._left_out = 0

    def admit(self, key: EventKey) -> dict[str, int] | None:
        """The counts of events that were left out (`repeated` of this one, `left_out` of others); None: do not log."""
        now = self._clock_s()
        until, repeated = self._recent.get(key, (0.0, 0))
        if now < until:
            self._recent[key] = (until, repeated + 1)
            return None
        if int(now) != self._second:
            self._second, self._logged = int(now), 0
        if self._logged >= EVENTS_PER_S:
            self._left_out += 1
            return None
        self._logged += 1
        self._remember(key, now)
        counts = {"repeated": repeated, "left_out": self._left_out}
        self._left_out = 0
        return {name: count for name, count in counts.items() if count}

    def _remember(self, key: EventKey, now: float) -> None:
        if len(self._recent) >= REMEMBERED_EVENTS_MAX:
            self._recent = {each: known for each, known in self._recent.items() if now < known[0]}
        if len(self._recent) >= REMEMBERED_EVENTS_MAX:
            self._recent.clear()
        self._recent[key] = (now + REPEAT_S, 0)
