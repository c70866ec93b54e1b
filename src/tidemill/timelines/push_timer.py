"""Holds leases that were written early until their messages are due.

Writing a lease takes a store some milliseconds, so it is done just before the due time. The lease then waits here for
the due time. If the consumer holds early messages back, it waits only until the message can arrive in time. One timer
is set for the earliest lease. When it fires, all leases that are due go out in one push per consumer. A timer that
fires slightly too soon is set again: nothing is ever pushed too early.
"""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from tidemill.timelines.clock import Clock
from tidemill.timelines.consumer import Granted, TimelineConsumer
from tidemill.timelines.core.message_queue import LeaseOrder

TIMER_S_MIN = 0.001
"""The resolution of event loops; anything less would spin."""
TIMER_BUSY_S = 0.003
TIMER_BUSY_MESSAGES = 4
"""After a push of this many messages the next one waits a little longer: few large pushes instead of many small."""
TIMER_S_MAX = 0.1
"""The timer fires at least this often, in case the clock was set."""


class PushTimer:
    """A heap of granted leases by the due time of their messages."""

    def __init__(self, clock: Clock, pushed: Callable[[TimelineConsumer, list[Granted]], None]) -> None:
        self._clock = clock
        self._pushed = pushed
        self._heap: list[tuple[int, int, TimelineConsumer, Granted]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, consumer: TimelineConsumer, granted: Granted) -> None:
        """Hold the lease until its message is due; `flush` sends what is due already."""
        send_ms = granted.message.due_ms - consumer.lead_ms
        if consumer.terms.order is not LeaseOrder.LEASE_END and send_ms <= self._clock.due_ms():
            send_ms = 0  # due already: in the order in which the consumer gets them
        heapq.heappush(self._heap, (send_ms, next(self._order), consumer, granted))

    def flush(self) -> None:
        """Push what is due, and set the timer for the rest."""
        self._disarm()
        now_ms = self._clock.due_ms()
        batches: dict[TimelineConsumer, list[Granted]] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, consumer, granted = heapq.heappop(self._heap)
            batches.setdefault(consumer, []).append(granted)
        if self._heap:  # set before the pushes: an error in one of them must not stop the rest
            busy = sum(map(len, batches.values())) >= TIMER_BUSY_MESSAGES
            least_s = TIMER_BUSY_S if busy else TIMER_S_MIN
            delay_s = min(max(self._clock.delay_s(self._heap[0][0]), least_s), TIMER_S_MAX)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.flush)
        for consumer, batch in batches.items():
            self._pushed(consumer, batch)

    def close(self) -> None:
        """Send nothing more; held messages return when their leases end."""
        self._disarm()
        self._heap.clear()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
