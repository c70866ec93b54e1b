"""Measures the load of one timeline while it has consumers: at most once per `PAUSE_S`.

The store counts what is available. Counting takes at most one part in `REST_SHARE` of the time, so a long backlog does
not slow the delivery down.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tidemill.model.timeline_errors import TimelineError
from tidemill.timelines.clock import Clock
from tidemill.timelines.consumer import Granted
from tidemill.timelines.core.load import LoadFigures, TimelineLoadMeter

PAUSE_S = 1.0
REST_SHARE = 20


class LoadReader:
    """The newest load of a timeline; None before the first measurement, and while the store does not answer."""

    def __init__(
        self,
        clock: Clock,
        count: Callable[[], Awaitable[int]],
        oldest_ms: Callable[[], int | None],
        share: Callable[[], float],
    ) -> None:
        self.newest: LoadFigures | None = None
        self._clock = clock
        self._count = count
        self._oldest_ms = oldest_ms
        self._share = share
        self._meter = TimelineLoadMeter()
        self._wanted = asyncio.Event()

    def want(self, *, wanted: bool) -> None:
        """Measure from now on, or stop: whether there are consumers that get the load."""
        if wanted:
            self._wanted.set()
            return
        self._wanted.clear()
        self.newest = None

    def pushed(self, granted: list[Granted], now_ms: float) -> None:
        """Note a push; its first message has waited for longest."""
        self._meter.pushed(len(granted), int(now_ms - granted[0].message.due_ms))

    async def run(self) -> None:
        """Measure, without end."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._wanted.is_set():
                await self._wanted.wait()
                self._meter.restart()
            started_s = loop.time()
            try:
                available = await self._count()
            except TimelineError:  # the health monitor reports a failing store
                self.newest = None
            else:
                if not self._wanted.is_set():
                    continue
                self.newest = self._meter.measure(available, self._oldest_ms(), self._share(), self._clock.now_ms())
            await asyncio.sleep(max(PAUSE_S, REST_SHARE * (loop.time() - started_s)))
