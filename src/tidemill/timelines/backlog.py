"""Reads the backlog of all timelines when metrics ask for it, and not too often.

The store counts, so the numbers are right after a restart, and with a store that other brokers write to. A count of a
long timeline takes time, so one count serves all who ask until it is older than `PAUSE_MS` or `REST_SHARE` times the
time that it took. A question waits for a new count for at most `WAIT_S` and then gets the one before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import structlog

from tidemill.model.timeline_errors import TimelineError
from tidemill.timelines.clock import Clock
from tidemill.timelines.core.backlog import Backlog

log = structlog.get_logger(__name__)

PAUSE_MS = 2_000
REST_SHARE = 20
"""Counting takes at most about a twentieth of the time of one thread of the store."""
WAIT_S = 1.0


class BacklogCount(NamedTuple):
    """The backlog of each timeline at a time."""

    at_ms: int
    by_name: Mapping[str, Backlog]


class BacklogReader:
    """The newest count of the backlog of a broker's timelines."""

    def __init__(self, clock: Clock, count: Callable[[int], Awaitable[Mapping[str, Backlog]]]) -> None:
        self._clock = clock
        self._count = count
        self._newest: BacklogCount | None = None
        self._rest_ms = PAUSE_MS
        self._running: asyncio.Task[None] | None = None

    async def read(self) -> BacklogCount | None:
        """The newest count; None when there is none yet: the store does not answer, or counts for the first time."""
        if self._running is None and self._is_old():
            self._running = asyncio.create_task(self._refresh())
            self._running.add_done_callback(self._ended)
        if self._running is not None:
            await asyncio.wait([self._running], timeout=WAIT_S)
        return self._newest

    async def close(self) -> None:
        """Stop a running count."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _is_old(self) -> bool:
        return self._newest is None or not 0 <= self._clock.now_ms() - self._newest.at_ms < self._rest_ms

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        now_ms, began_s = self._clock.now_ms(), loop.time()
        with suppress(TimelineError):  # the health monitor reports a failing store; the age of the count grows
            self._newest = BacklogCount(now_ms, await self._count(now_ms))
        self._rest_ms = max(PAUSE_MS, round(REST_SHARE * 1_000 * (loop.time() - began_s)))

    def _ended(self, running: asyncio.Task[None]) -> None:
        self._running = None
        if not running.cancelled() and (error := running.exception()) is not None:
            log.error("backlog_count_failed", exc_info=error)
