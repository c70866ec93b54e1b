"""Reads from PostgreSQL: the catalogue, messages in order, and counts."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from tidemill.timelines.core.message import (
    COUNT_MAX,
    FIND_BYTES_MAX,
    DueSpan,
    MessageStatus,
    Selection,
    TimedMessage,
    TimelinePosition,
    bar_ranges,
    resumed,
)
from tidemill.timelines.core.timeline import TimelineInfo, TimelineSettings, TimelineState, usable

COLUMNS = (
    "s.seq, s.id, s.due_ms, s.scheduled_ms, s.bucket, s.producer_group, s.holder, s.token, s.version, s.attempts,"
    " s.size, s.key"
)
RULE = "coalesce((SELECT r.rule FROM tidemill.recurring r WHERE r.seq = s.seq), '')"
"""The recurrence of a message `s`."""
TABLES = ("tidemill.fresh", "tidemill.sorted")
"""The tables that may contain the row of a message; it is in exactly one of them at any instant."""
AT = "m.timeline = {0} AND (m.due_ms, m.seq) >= ({1}, {2}) AND (m.due_ms, m.seq) <= ({1}, {2})"
"""Rows are looked up by their position on the timeline; there is no index of their numbers. In the index of positions,
messages that are due together are next to each other. The planner uses both columns only for a range.
"""
_ROWS = "(SELECT * FROM tidemill.fresh UNION ALL SELECT * FROM tidemill.sorted) m"
_PLACED = f"CROSS JOIN LATERAL (SELECT * FROM {_ROWS} WHERE {AT} OFFSET 0) m"  # noqa: S608 (own text)
# The few rows that are needed from another table are looked up one by one. With a join, the planner would read all of a
# long timeline. A body is returned with its row, so it is not looked up again.
_STATES = """(
    SELECT m.seq, m.timeline, m.id, coalesce(c.due_ms, m.due_ms) AS due_ms,
           coalesce(c.scheduled_ms, m.due_ms) AS scheduled_ms, m.bucket, m.producer_group, c.holder,
           coalesce(c.token, 0) AS token, coalesce(c.version, 1) AS version, coalesce(c.attempts, 0) AS attempts,
           m.size, m.key, m.body
    FROM {}
    LEFT JOIN LATERAL (SELECT * FROM tidemill.changed c WHERE c.seq = m.seq OFFSET 0) c ON true
) s"""
STATES = _STATES.format(_ROWS)
"""Messages in any state, for callers that know which ones they need."""
STATES_AT = _STATES.format(
    f"unnest($2::bigint[], $3::bigint[]) AS g (seq, row_ms) {_PLACED.format('$1', 'g.row_ms', 'g.seq')}"
)
"""Messages in any state by numbers and due times of their rows."""
_UNTOUCHED = """(
    SELECT m.seq, m.timeline, m.id, m.due_ms, m.due_ms AS scheduled_ms, m.bucket, m.producer_group,
           NULL::text AS holder, 0::bigint AS token, 1::bigint AS version, 0::bigint AS attempts, m.size, m.key,
           m.body
    FROM {} m WHERE {}
) s"""
_LOOKED_UP = "(SELECT c.seq FROM tidemill.changed c WHERE c.seq = m.seq) IS NULL"
_JOINED = "NOT EXISTS (SELECT FROM tidemill.changed c WHERE c.seq = m.seq)"
_CHANGED = f"""(
    SELECT c.seq, c.timeline, m.id, c.due_ms, c.scheduled_ms, c.bucket, m.producer_group, c.holder, c.token,
           c.version, c.attempts, m.size, m.key, m.body
    FROM tidemill.changed c {_PLACED.format("c.timeline", "c.row_ms", "c.seq")}
) s"""  # noqa: S608 (own text)
_LISTED = (*(_UNTOUCHED.format(table, _LOOKED_UP) for table in TABLES), _CHANGED)
COUNTED = (*(_UNTOUCHED.format(table, _JOINED) for table in TABLES), "tidemill.changed s")
_STATUS = {
    MessageStatus.AVAILABLE: "s.due_ms <= {now}",
    MessageStatus.WAITING: "s.due_ms > {now} AND s.holder IS NULL",
    MessageStatus.LEASED: "s.due_ms > {now} AND s.holder IS NOT NULL",
}
_ROW = "SELECT name, number, state, settings FROM tidemill.timelines"


async def timelines(connection: asyncpg.Connection) -> tuple[tuple[TimelineInfo, ...], int]:
    """All timelines by name, and the server's clock."""
    rows = await connection.fetch(f"{_ROW} ORDER BY name")
    now_ms = await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
    return tuple(_timeline(row) for row in rows), now_ms


async def timeline_named(connection: asyncpg.Connection, name: str, lock: str = "") -> TimelineInfo | None:
    """The timeline in any state; `lock` keeps it from changing until the end of the transaction."""
    row = await connection.fetchrow(f"{_ROW} WHERE name = $1 {lock}", name)
    return _timeline(row) if row else None


async def usable_timeline(connection: asyncpg.Connection, name: str, lock: str = "") -> TimelineInfo:
    """The timeline, if clients may use it."""
    return usable(await timeline_named(connection, name, lock), name)


async def find(
    connection: asyncpg.Connection,
    name: str,
    selection: Selection,
    now_ms: int,
    limit: int,
    after: TimelinePosition | None,
    *,
    bodies: bool,
) -> list[TimedMessage]:
    """The selected messages in order."""
    where = await _Where.of(connection, name, resumed(selection, after), now_ms)
    if after is not None:
        where.add(f"(s.due_ms, s.seq) > ({where.bind(after.due_ms)}, {where.bind(after.seq)})")
    end = f"WHERE {where} ORDER BY s.due_ms, s.seq LIMIT {where.bind(limit)}"
    sources = _LISTED if selection.ids is None else (STATES,)
    columns = f"{COLUMNS}, s.body" if bodies else COLUMNS
    parts = " UNION ALL ".join(f"(SELECT {columns} FROM {source} {end})" for source in sources)  # noqa: S608 (own text; values are bound)
    rows = f"SELECT * FROM ({parts}) s ORDER BY s.due_ms, s.seq LIMIT {where.bind(limit)}"  # noqa: S608 (own text; values are bound)
    if bodies:
        rows = f"""
            SELECT {columns}, {RULE}
            FROM (SELECT s.*, sum(s.size) OVER (ORDER BY s.due_ms, s.seq) AS total FROM ({rows}) s) s
            WHERE s.total <= {FIND_BYTES_MAX} OR s.total = s.size
            ORDER BY s.due_ms, s.seq
        """  # noqa: S608 (own text; values are bound)
    else:
        rows = f"SELECT s.*, NULL, {RULE} FROM ({rows}) s ORDER BY s.due_ms, s.seq"  # noqa: S608 (own text; values are bound)
    return [TimedMessage(*row) for row in await connection.fetch(rows, *where.values)]


async def tally(
    connection: asyncpg.Connection, name: str, selection: Selection, now_ms: int, bars: int, bar_max: int = COUNT_MAX
) -> list[int]:
    """Count the selected messages by due time: one short range of each index per bar, and no more than `bar_max`."""
    where = await _Where.of(connection, name, selection, now_ms)
    ranges = bar_ranges(selection, now_ms, bars)
    lows, highs = (where.bind([each[end] for each in ranges], "bigint[]") for end in (0, 1))
    limit = where.bind(bar_max)
    sources = COUNTED if selection.ids is None else (STATES,)
    in_bar = f"{where} AND s.due_ms >= r.low AND s.due_ms < r.high"
    # One statement: between two of them messages may change places.
    counts = " + ".join(
        f"(SELECT count(*) FROM (SELECT FROM {source} WHERE {in_bar} LIMIT {limit}) s)"  # noqa: S608 (own text; values are bound)
        for source in sources
    )
    counted = f"SELECT {counts} FROM unnest({lows}, {highs}) WITH ORDINALITY AS r (low, high, bar) ORDER BY bar"  # noqa: S608 (own text; values are bound)
    return [min(bar_max, count) for (count,) in await connection.fetch(counted, *where.values)]


async def span(connection: asyncpg.Connection, name: str) -> DueSpan | None:
    """The due times of the first and of the last message, from the ends of the indexes."""
    timeline = (await usable_timeline(connection, name)).number
    sources = (*(_UNTOUCHED.format(table, _LOOKED_UP) for table in TABLES), "tidemill.changed s")
    ends = ", ".join(
        f"(SELECT s.due_ms FROM {source} WHERE s.timeline = $1 ORDER BY s.due_ms {order} LIMIT 1)"  # noqa: S608 (own text; values are bound)
        for source in sources
        for order in ("ASC", "DESC")
    )
    found = [due_ms for due_ms in await connection.fetchrow(f"SELECT {ends}", timeline) if due_ms is not None]
    return DueSpan(min(found), max(found)) if found else None


class _Where:
    """A condition under construction, with the values bound so far."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._parts: list[str] = []

    def __str__(self) -> str:
        return " AND ".join(self._parts)

    @classmethod
    async def of(cls, connection: asyncpg.Connection, name: str, selection: Selection, now_ms: int) -> "_Where":
        """The condition that a message is one of the selection."""
        where = cls()
        timeline = await usable_timeline(connection, name)
        where.add(f"s.timeline = {where.bind(timeline.number)}")
        where.add(f"s.due_ms >= {where.bind(selection.start_ms)} AND s.due_ms < {where.bind(selection.end_ms)}")
        if selection.status is not None:
            where.add(_STATUS[selection.status].format(now=where.bind(now_ms)))
        if selection.buckets is not None:
            where.add(f"({_any_range(selection.buckets)})")
        if selection.ids is not None:
            where.add(f"s.id = ANY({where.bind(list(selection.ids), 'text[]')})")
        return where

    def add(self, condition: str) -> None:
        """One more thing that must hold."""
        self._parts.append(condition)

    def bind(self, value: object, kind: str = "bigint") -> str:
        """The place of a value in the statement."""
        self.values.append(value)
        return f"${len(self.values)}::{kind}"


def _any_range(ranges: Sequence[tuple[int, int]]) -> str:
    return " OR ".join(f"s.bucket BETWEEN {int(low)} AND {int(high)}" for low, high in ranges) or "FALSE"


def _timeline(row: Sequence[Any]) -> TimelineInfo:
    name, number, state, settings = row
    return TimelineInfo(name, number, TimelineState(state), TimelineSettings.from_json(settings))
