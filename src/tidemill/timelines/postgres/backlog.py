"""Counts the backlog of all timelines of a PostgreSQL server, in one statement.

Each number is one scan of a short range of an index. Timelines without messages are left out first: with thousands of
them, most have none.
"""

import asyncpg

from tidemill.timelines.core.backlog import COUNTED_MAX, Backlog, backlog_of, free_ranges, leased_range
from tidemill.timelines.core.timeline import TimelineState
from tidemill.timelines.postgres.reads import COUNTED, TABLES

_USED = " OR ".join(
    f"EXISTS (SELECT FROM {table} s WHERE s.timeline = t.number)" for table in (*TABLES, "tidemill.changed")
)
_FREE = " + ".join(
    f"""(SELECT count(*) FROM (
        SELECT FROM {source} WHERE s.timeline = t.number AND s.due_ms >= r.low AND s.due_ms < r.high
        AND (s.due_ms <= $3::bigint OR s.holder IS NULL) LIMIT $4::bigint
    ) s)"""  # noqa: S608 (own text; values are bound)
    for source in COUNTED
)
# `timelines` is joined from the outside, so that each timeline has a row, also without messages.
_BACKLOGS = f"""
SELECT t.name, u.free, u.leased FROM tidemill.timelines t
LEFT JOIN LATERAL (
    SELECT ARRAY(
        SELECT {_FREE} FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS r (low, high, place) ORDER BY r.place
    ) AS free, (SELECT count(*) FROM (
        SELECT FROM tidemill.changed s WHERE s.timeline = t.number AND s.due_ms >= $5::bigint AND s.due_ms < $6::bigint
        AND s.holder IS NOT NULL LIMIT $4::bigint
    ) s) AS leased
    WHERE {_USED}
) u ON true
WHERE t.state = $7::text
"""  # noqa: S608 (own text; values are bound)


async def backlogs(connection: asyncpg.Connection, now_ms: int) -> dict[str, Backlog]:
    """The backlog of each timeline that clients may use."""
    ranges = free_ranges(now_ms)
    lows, highs = ([each[end] for each in ranges] for end in (0, 1))
    rows = await connection.fetch(
        _BACKLOGS, lows, highs, now_ms, COUNTED_MAX, *leased_range(now_ms), TimelineState.READY.value
    )
    return {name: backlog_of(free or [0] * len(ranges), leased or 0) for name, free, leased in rows}
