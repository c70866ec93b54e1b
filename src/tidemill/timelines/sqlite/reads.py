"""What is read from a timeline file: the catalogue, messages in order, and counts."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from tidemill.timelines.core.message import Message, Place, Selection, Status, bar_width_ms, resumed, within_bytes
from tidemill.timelines.core.timeline import State, Timeline, TimelineSettings, usable

_COLUMNS = (
    "m.seq, m.id, m.due_ms, m.scheduled_ms, m.bucket, m.producer_group, m.holder, m.token, m.version, m.attempts,"
    " m.size, m.key"
)
_STATUS = {
    Status.AVAILABLE: "m.due_ms <= :now",
    Status.WAITING: "m.due_ms > :now AND m.holder IS NULL",
    Status.LEASED: "m.due_ms > :now AND m.holder IS NOT NULL",
}
_ROW = "SELECT name, number, state, settings FROM timelines"


def timelines(connection: sqlite3.Connection) -> tuple[Timeline, ...]:
    """All timelines by name."""
    return tuple(_timeline(row) for row in connection.execute(f"{_ROW} ORDER BY name"))


def timeline_named(connection: sqlite3.Connection, name: str) -> Timeline | None:
    """The timeline in any state."""
    row = connection.execute(f"{_ROW} WHERE name = ?", (name,)).fetchone()
    return _timeline(row) if row else None


def usable_timeline(connection: sqlite3.Connection, name: str) -> Timeline:
    """The timeline, if clients may use it."""
    return usable(timeline_named(connection, name), name)


def find(
    connection: sqlite3.Connection,
    name: str,
    selection: Selection,
    now_ms: int,
    limit: int,
    after: Place | None,
    *,
    bodies: bool,
) -> list[Message]:
    """The selected messages in order."""
    where, values = _where(connection, name, resumed(selection, after), now_ms)
    if selection.status is not None:
        where += f" AND {_STATUS[selection.status]}"
    if after is not None:
        where += " AND (m.due_ms, m.seq) > (:after_ms, :after_seq)"
        values |= {"after_ms": after.due_ms, "after_seq": after.seq}
    body, join = (", b.body", "LEFT JOIN bodies b USING (seq)") if bodies else ("", "")
    statement = f"SELECT {_COLUMNS}{body} FROM messages m {join} WHERE {where} ORDER BY m.due_ms, m.seq LIMIT :limit"  # noqa: S608 (own text; values are bound)
    rows = connection.execute(statement, values | {"limit": limit})
    messages = (Message(*row) for row in rows)
    return list(within_bytes(messages)) if bodies else list(messages)


def tally(connection: sqlite3.Connection, name: str, selection: Selection, now_ms: int, bars: int) -> list[int]:
    """Count by due time, from the indexes alone: waiting ones are those in the future that are not leased."""
    width_ms = bar_width_ms(selection, bars)
    where, values = _where(connection, name, selection, now_ms)
    values["width"] = width_ms
    match selection.status:
        case None:
            return _count(connection, where, values, bars)
        case Status.AVAILABLE:
            return _count(connection, f"{where} AND m.due_ms <= :now", values, bars)
    leased = _count(connection, f"{where} AND m.due_ms > :now AND m.holder IS NOT NULL", values, bars)
    if selection.status is Status.LEASED:
        return leased
    future = _count(connection, f"{where} AND m.due_ms > :now", values, bars)
    return [all_of_them - held for all_of_them, held in zip(future, leased, strict=True)]


def _count(connection: sqlite3.Connection, where: str, values: dict[str, Any], bars: int) -> list[int]:
    statement = f"SELECT (m.due_ms - :start) / :width AS bar, count(*) FROM messages m WHERE {where} GROUP BY bar"  # noqa: S608 (own text; values are bound)
    counts = [0] * bars
    for bar, count in connection.execute(statement, values):
        counts[bar] = count
    return counts


def _where(connection: sqlite3.Connection, name: str, selection: Selection, now_ms: int) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {
        "timeline": usable_timeline(connection, name).number,
        "start": selection.start_ms,
        "end": selection.end_ms,
        "now": now_ms,
    }
    where = "m.timeline = :timeline AND m.due_ms >= :start AND m.due_ms < :end"
    if selection.buckets is not None:
        where += f" AND ({_any_range(selection.buckets)})"
    if selection.ids is not None:
        where += " AND m.id IN (SELECT value FROM json_each(:ids))"
        values["ids"] = json.dumps(selection.ids)
    return where, values


def _any_range(ranges: Sequence[tuple[int, int]]) -> str:
    return " OR ".join(f"m.bucket BETWEEN {int(low)} AND {int(high)}" for low, high in ranges) or "FALSE"


def _timeline(row: tuple[str, int, str, str]) -> Timeline:
    name, number, state, settings = row
    return Timeline(name, number, State(state), TimelineSettings.from_json(settings))
