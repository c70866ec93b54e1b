"""One timer for many names: each asks to be called at some time, the earliest wins.

Asking for a later time than before changes nothing; whoever is called looks again and asks anew. So members that keep
being heard of, which only moves deadlines away, cost nothing here.
"""

import asyncio
import heapq
from collections.abc import Callable

NEVER_MS = 1 << 62


class Timers:
    """Calls `ring(name)` when a name's time has come; `clock` gives milliseconds."""

    def __init__(self, clock: Callable[[], int], ring: Callable[[str], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._heap: list[tuple[int, str]] = []
        self._asked: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._closed = False

    def set(self, name: str, at_ms: int) -> None:
        """Call for this name not later than then."""
        if at_ms < self._asked.get(name, NEVER_MS):
            self._asked[name] = at_ms
            heapq.heappush(self._heap, (at_ms, name))
            self._start_timer()

    def shift(self, by_ms: int) -> None:
        """The clock was set: everybody is called after as long as before, which the timer that runs is right about."""
        self._heap = [(at_ms + by_ms, name) for at_ms, name in self._heap]
        self._asked = {name: at_ms + by_ms for name, at_ms in self._asked.items()}
        if self._timer is not None:
            self._timer_ms += by_ms

    def close(self) -> None:
        """Call nobody any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _start_timer(self) -> None:
        now_ms = self._clock()
        if not self._heap or self._closed or self._heap[0][0] >= self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = self._heap[0][0]
        delay_ms = max(self._timer_ms - now_ms, 0)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        now_ms = self._clock()
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, name = heapq.heappop(self._heap)
            if self._asked.get(name) == at_ms:  # else an earlier call came first
                del self._asked[name]
                self._ring(name)
        self._start_timer()
