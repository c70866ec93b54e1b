"""Counts the backlog of all timelines of a file, in one snapshot.

Each number is one scan of a short range of an index. Timelines without messages in a table are left out first: with
thousands of them, most have none.
"""

import json
import sqlite3
from collections.abc import Sequence

from tidemill.timelines.core.backlog import COUNTED_MAX, Backlog, Ranges, backlog_of, free_ranges, leased_range
from tidemill.timelines.core.timeline import TimelineState
from tidemill.timelines.sqlite.reads import fresh_blocks, timelines

_COUNTS = """
WITH used AS MATERIALIZED (
    SELECT t.number FROM timelines t WHERE EXISTS (SELECT 1 FROM {table} s WHERE {part} s.timeline = t.number)
)
SELECT t.number, r.key, (SELECT count(*) FROM (
    SELECT 1 FROM {table} s WHERE {part} s.timeline = t.number
    AND s.due_ms >= r.value ->> 0 AND s.due_ms < r.value ->> 1 {condition} LIMIT :counted_max
)) FROM used t CROSS JOIN json_each(:ranges) AS r
"""


def backlogs(connection: sqlite3.Connection, now_ms: int) -> dict[str, Backlog]:
    """The backlog of each timeline that clients may use."""
    known = [one for one in timelines(connection) if one.state is TimelineState.READY]
    available, *waiting = free_ranges(now_ms)
    free = {one.number: [0] * (1 + len(waiting)) for one in known}
    leased = {one.number: [0] for one in known}
    # A holder whose lease has ended is still stored, so only messages that wait have none.
    _add(connection, free, 0, [available], "changed")
    _add(connection, free, 1, waiting, "changed", condition="AND s.holder IS NULL")
    _add(connection, leased, 0, [leased_range(now_ms)], "changed", condition="AND s.holder IS NOT NULL")
    _add(connection, free, 0, [available, *waiting], "places")
    for block in fresh_blocks(connection):
        _add(connection, free, 0, [available, *waiting], "fresh", part=f"s.block = {block} AND")
    return {one.name: backlog_of(free[one.number], *leased[one.number]) for one in known}


def _add(
    connection: sqlite3.Connection,
    counts: dict[int, list[int]],
    first: int,
    ranges: Ranges,
    table: str,
    *,
    part: str = "",
    condition: str = "",
) -> None:
    """Add the messages of a table in these ranges, from the `first` number on."""
    statement = _COUNTS.format(table=table, part=part, condition=condition)
    values = {"ranges": json.dumps(ranges), "counted_max": COUNTED_MAX}
    rows: Sequence[tuple[int, int, int]] = connection.execute(statement, values).fetchall()
    for number, place, count in rows:
        if number in counts:
            counts[number][first + place] += count
