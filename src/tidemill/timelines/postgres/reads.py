"""What is read from PostgreSQL: the catalogue, messages in order, and counts."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from tidemill.timelines.core.message import FIND_BYTES_MAX, Message, Place, Selection, Status, bar_width_ms, resumed
from tidemill.timelines.core.timeline import State, Timeline, TimelineSettings, usable

COLUMNS = (
    "m.seq, m.id, m.due_ms, m.scheduled_ms, m.bucket, m.producer_group, m.holder, m.token, m.version, m.attempts,"
    " m.size, m.key"
)
_STATUS = {
    Status.AVAILABLE: "m.due_ms <= {now}",
    Status.WAITING: "m.due_ms > {now} AND m.holder IS NULL",
    Status.LEASED: "m.due_ms > {now} AND m.holder IS NOT NULL",
}
_ROW = "SELECT name, number, state, settings FROM tidemill.timelines"


async def timelines(connection: asyncpg.Connection) -> tuple[tuple[Timeline, ...], int]:
    """All timelines by name, and the server's clock."""
    rows = await connection.fetch(f"{_ROW} ORDER BY name")
    now_ms = await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
    return tuple(_timeline(row) for row in rows), now_ms


async def timeline_named(connection: asyncpg.Connection, name: str, lock: str = "") -> Timeline | None:
    """The timeline in any state; `lock` keeps it from changing until the end of the transaction."""
    row = await connection.fetchrow(f"{_ROW} WHERE name = $1 {lock}", name)
    return _timeline(row) if row else None


async def usable_timeline(connection: asyncpg.Connection, name: str, lock: str = "") -> Timeline:
    """The timeline, if clients may use it."""
    return usable(await timeline_named(connection, name, lock), name)


async def find(
    connection: asyncpg.Connection,
    name: str,
    selection: Selection,
    now_ms: int,
    limit: int,
    after: Place | None,
    *,
    bodies: bool,
) -> list[Message]:
    """The selected messages in order."""
    where = await _Where.of(connection, name, resumed(selection, after), now_ms)
    if after is not None:
        where.add(f"(m.due_ms, m.seq) > ({where.bind(after.due_ms)}, {where.bind(after.seq)})")
    rows = f"SELECT {COLUMNS} FROM tidemill.messages m WHERE {where} ORDER BY m.due_ms, m.seq LIMIT {where.bind(limit)}"  # noqa: S608 (own text; values are bound)
    if bodies:  # looked up one by one: joined, the planner of a long timeline would rather read all bodies there are
        rows = f"""
            SELECT {COLUMNS}, (SELECT b.body FROM tidemill.bodies b WHERE b.seq = m.seq)
            FROM (SELECT m.*, sum(m.size) OVER (ORDER BY m.due_ms, m.seq) AS total FROM ({rows}) m) m
            WHERE m.total <= {FIND_BYTES_MAX} OR m.total = m.size
            ORDER BY m.due_ms, m.seq
        """  # noqa: S608 (own text; values are bound)
    return [Message(*row) for row in await connection.fetch(rows, *where.values)]


async def tally(connection: asyncpg.Connection, name: str, selection: Selection, now_ms: int, bars: int) -> list[int]:
    """Count the selected messages by due time."""
    width_ms = bar_width_ms(selection, bars)
    where = await _Where.of(connection, name, selection, now_ms)
    bar = f"(m.due_ms - {where.bind(selection.start_ms)}) / {where.bind(width_ms)}"
    rows = await connection.fetch(
        f"SELECT {bar} AS bar, count(*) FROM tidemill.messages m WHERE {where} GROUP BY bar",  # noqa: S608 (own text; values are bound)
        *where.values,
    )
    counts = [0] * bars
    for number, count in rows:
        counts[number] = count
    return counts


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
        where.add(f"m.timeline = {where.bind(timeline.number)}")
        where.add(f"m.due_ms >= {where.bind(selection.start_ms)} AND m.due_ms < {where.bind(selection.end_ms)}")
        if selection.status is not None:
            where.add(_STATUS[selection.status].format(now=where.bind(now_ms)))
        if selection.buckets is not None:
            where.add(f"({_any_range(selection.buckets)})")
        if selection.ids is not None:
            where.add(f"m.id = ANY({where.bind(list(selection.ids), 'text[]')})")
        return where

    def add(self, condition: str) -> None:
        """One more thing that must hold."""
        self._parts.append(condition)

    def bind(self, value: object, kind: str = "bigint") -> str:
        """The place of a value in the statement."""
        self.values.append(value)
        return f"${len(self.values)}::{kind}"


def _any_range(ranges: Sequence[tuple[int, int]]) -> str:
    return " OR ".join(f"m.bucket BETWEEN {int(low)} AND {int(high)}" for low, high in ranges) or "FALSE"


def _timeline(row: Sequence[Any]) -> Timeline:
    name, number, state, settings = row
    return Timeline(name, number, State(state), TimelineSettings.from_json(settings))
