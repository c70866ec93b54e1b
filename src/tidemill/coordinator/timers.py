"""One timer for many names (groups, for example): each name has a time, and the earliest time wins.

Asking for a later time than before changes nothing; the called party checks its deadline and asks again. So a
heartbeat, which only moves a deadline away, costs nothing here.
"""

import asyncio
import heapq
from collections.abc import Callable

NEVER_MS = 1 << 62


class Timers:
    """Calls `on_due(name)` when a name's time has come; `clock` returns milliseconds."""

    def __init__(self, clock: Callable[[], int], on_due: Callable[[str], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._heap: list[tuple[int, str]] = []
        self._asked: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self._closed = False

    def set(self, name: str, at_ms: int) -> None:
        """Call for this name at `at_ms` or earlier."""
        if at_ms < self._asked.get(name, NEVER_MS):
            self._asked[name] = at_ms
            heapq.heappush(self._heap, (at_ms, name))
            self._start_timer()

    def shift(self, by_ms: int) -> None:
        """Move all times after the clock was set, so that every remaining wait stays the same.

        The running timer is right.
        """
        self._heap = [(at_ms + by_ms, name) for at_ms, name in self._heap]
        self._asked = {name: at_ms + by_ms for name, at_ms in self._asked.items()}
        if self._timer is not None:
            self._timer_ms += by_ms

    def close(self) -> None:
        """Stop calling."""
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
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        now_ms = self._clock()
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, name = heapq.heappop(self._heap)
            if self._asked.get(name) == at_ms:  # otherwise an earlier call has replaced it
                del self._asked[name]
                self._on_due(name)
        self._start_timer()
