"""Rewrites new messages in the order of the timeline: late, and many at once.

Messages arrive in any order of their due times and leave in that order. Left where it was scheduled, each message of a
long timeline would be on another page of the file and of the index by due time when it is read, leased and removed. The
server logs a whole page when it is changed for the first time since a checkpoint. So when there are many fresh
messages, a pass reads them in the order of their timeline and moves each to `sorted`, after the one before it. Messages
that are due together are then stored together: in a few runs, each in order.

Messages that are due soon are not moved: they will be removed soon, and a row that is being moved cannot be leased.
Messages that were leased or moved in time are not moved either, because they may be due at another time than their rows
say. Every step is a transaction of its own, and a message is complete before and after it, so a crash loses nothing.
The next pass finds what was not sorted. One broker sorts at a time.
"""

import asyncio
from contextlib import suppress
from time import perf_counter

import asyncpg
import structlog

from tidemill.timelines.core.message import TimelinePosition

FRESH_MIN = 1_500_000
FRESH_MAX = 6_000_000
FRESH_PER_PAGE = 8
"""A pass starts when there are FRESH_MIN fresh messages. Fewer fit into memory, and are removed before moving them pays
off. Each pass writes to all pages of the index by due time, so on longer timelines it waits for FRESH_PER_PAGE messages
for each of these pages, at most FRESH_MAX.
"""
STEP_ROWS = 2_000
FEW_PAGES = 100
NEAR_MS = 60_000
SORT_LOCK = 0x544D5453  # one number for all brokers: "TMTS"

_LAST_SEQ = 2**63 - 1
# Each row is looked up by its position, one after the other. Other transactions have priority: a pass that would wait
# for a lock gives up, and a later one tries again. A step that is lost when the server crashes never happened.
_SESSION_SETTINGS = """
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET lock_timeout = '100ms';
SET synchronous_commit = off;
"""
_PAGES = """
SELECT pg_relation_size('tidemill.sorted') / size, pg_relation_size('tidemill.sorted_order') / size
FROM (SELECT current_setting('block_size')::bigint AS size) page
"""
_FRESH = "SELECT count(*) FROM (SELECT FROM tidemill.fresh WHERE timeline = $1 AND due_ms > $2 LIMIT $3) s"
_STEP = """
WITH left_over AS (
    DELETE FROM tidemill.fresh f
    USING (
        SELECT m.ctid AS place FROM tidemill.fresh m
        WHERE m.timeline = $1 AND (m.due_ms, m.seq) > ($2, $3)
            AND (SELECT c.seq FROM tidemill.changed c WHERE c.seq = m.seq) IS NULL
        ORDER BY m.due_ms, m.seq LIMIT $4
    ) next
    WHERE f.ctid = next.place
    RETURNING f.*
), moved AS (
    INSERT INTO tidemill.sorted SELECT * FROM left_over ORDER BY due_ms, seq RETURNING due_ms, seq
)
SELECT due_ms, seq FROM moved ORDER BY due_ms DESC, seq DESC LIMIT 1
"""

log = structlog.get_logger(__name__)


class Sorter:
    """Decides when to sort, and sorts concurrently with the calls of the store."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self.now_ms: int | None = None
        """The time of the last call that passed one; nothing is sorted before."""
        self._pool = pool
        self._left = FRESH_MIN
        """How many more messages must be scheduled here before the next check."""
        self._task: asyncio.Task[None] | None = None

    def scheduled(self, count: int) -> None:
        """Count messages that were scheduled."""
        self._left -= count
        if self._left <= 0 and self.now_ms is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._try(TimelinePosition(self.now_ms + NEAR_MS, _LAST_SEQ)))

    async def finish(self) -> None:
        """Wait for the end of a running pass."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Cancel a running pass."""
        if self._task is not None:
            self._task.cancel()
        await self.finish()

    async def _try(self, start: TimelinePosition) -> None:
        try:
            await self._pass(start)
        except Exception:  # the messages stay where they are, and the next pass tries again
            log.exception("timeline_sort_failed")

    async def _pass(self, start: TimelinePosition) -> None:
        self._left = FRESH_MIN
        # A failure loses nothing. Its cause also fails the calls of the store, which report it.
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            async with self._pool.acquire() as connection:
                if await connection.fetchval("SELECT pg_try_advisory_lock($1)", SORT_LOCK):
                    await self._sort(connection, start)

    async def _sort(self, connection: asyncpg.Connection, start: TimelinePosition) -> None:
        """Sort the fresh messages if there are enough; otherwise compute when to check again.

        The pool resets settings and lock of the connection when it gets it back.
        """
        pages, order_pages = map(int, await connection.fetchrow(_PAGES))
        left = min(FRESH_MAX, max(FRESH_MIN, FRESH_PER_PAGE * order_pages))
        timelines = [row[0] for row in await connection.fetch("SELECT number FROM tidemill.timelines")]
        for timeline in timelines:
            left -= int(await connection.fetchval(_FRESH, timeline, start.due_ms, left))
        if left > 0:
            self._left = left
            return
        await connection.execute(_SESSION_SETTINGS)
        for timeline in timelines:
            place: TimelinePosition | None = start
            while place is not None:
                place = await self._step(connection, timeline, place)
                if pages < FEW_PAGES:
                    # Plans that were made for an empty table have no reason to prefer the right index.
                    await connection.execute("ANALYZE tidemill.sorted")
                    pages = FEW_PAGES

    async def _step(
        self, connection: asyncpg.Connection, timeline: int, place: TimelinePosition
    ) -> TimelinePosition | None:
        """Move the next messages after the position; the position of the last one, None at the end.

        Then pause as long as the step took, unless enough messages have arrived meanwhile for another pass.
        """
        begun = perf_counter()
        last = await connection.fetchrow(_STEP, timeline, *place, STEP_ROWS)
        await asyncio.sleep(perf_counter() - begun if self._left > 0 else 0)
        return TimelinePosition(*last) if last is not None else None
