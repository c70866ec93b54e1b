"""What is read from a timeline file: the catalogue, messages in order, and counts."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from tidemill.timelines.core.message import Message, Place, Selection, Status, bar_ranges, resumed, within_bytes
from tidemill.timelines.core.timeline import State, Timeline, TimelineSettings, usable

_COLUMNS = (
    "m.seq, m.id, m.due_ms, m.scheduled_ms, m.bucket, m.producer_group, m.holder, m.token, m.version, m.attempts,"
    " m.size, m.key"
)
_BODY = "coalesce(m.body, (SELECT b.body FROM bodies b WHERE b.seq = m.seq))"
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
    conditions, values = _conditions(connection, name, selection)
    conditions += " AND m.due_ms >= :start AND m.due_ms < :end"
    values |= {"start": resumed(selection, after).start_ms, "end": selection.end_ms, "now": now_ms, "limit": limit}
    if selection.status is not None:
        conditions += f" AND {_STATUS[selection.status]}"
    if after is not None:
        conditions += " AND (m.due_ms, m.seq) > (:after_ms, :after_seq)"
        values |= {"after_ms": after.due_ms, "after_seq": after.seq}
    body = f", {_BODY}" if bodies else ""
    statement = f"""
        SELECT {_COLUMNS}{body} FROM {_table(selection)}
        WHERE {conditions} ORDER BY m.due_ms, m.seq LIMIT :limit
    """  # noqa: S608 (own text; values are bound)
    messages = (Message(*row) for row in connection.execute(statement, values))
    return list(within_bytes(messages)) if bodies else list(messages)


def tally(connection: sqlite3.Connection, name: str, selection: Selection, now_ms: int, bars: int) -> list[int]:
    """Count by due time, from the indexes alone: waiting ones are those in the future that are not leased."""
    ranges = json.dumps(bar_ranges(selection, now_ms, bars))
    conditions, values = _conditions(connection, name, selection)
    values["ranges"] = ranges
    if selection.status is Status.LEASED:
        return _count(connection, selection, f"{conditions} AND m.holder IS NOT NULL", values)
    counts = _count(connection, selection, conditions, values)
    if selection.status is not Status.WAITING:
        return counts
    leased = _count(connection, selection, f"{conditions} AND m.holder IS NOT NULL", values)
    return [future - held for future, held in zip(counts, leased, strict=True)]


def _count(connection: sqlite3.Connection, selection: Selection, conditions: str, values: dict[str, Any]) -> list[int]:
    """One walk of an index for each range: grouping would sort all entries first."""
    statement = f"""
        SELECT (SELECT count(*) FROM {_table(selection)}
                WHERE {conditions} AND m.due_ms >= r.value ->> 0 AND m.due_ms < r.value ->> 1)
        FROM json_each(:ranges) AS r
    """  # noqa: S608 (own text; values are bound)
    return [count for (count,) in connection.execute(statement, values)]


def _table(selection: Selection) -> str:
    """The planner would rather walk the timeline in order than look up ids; it is told when it must not."""
    return "messages m" if selection.ids is None else "messages m INDEXED BY message_ids"


def _conditions(connection: sqlite3.Connection, name: str, selection: Selection) -> tuple[str, dict[str, Any]]:
    """What holds for the selected messages apart from due time and state."""
    values: dict[str, Any] = {"timeline": usable_timeline(connection, name).number}
    conditions = "m.timeline = :timeline"
    if selection.buckets is not None:
        conditions += f" AND ({_any_range(selection.buckets)})"
    if selection.ids is not None:
        conditions += " AND m.id IN (SELECT value FROM json_each(:ids))"
        values["ids"] = json.dumps(selection.ids)
    return conditions, values


def _any_range(ranges: Sequence[tuple[int, int]]) -> str:
    return " OR ".join(f"m.bucket BETWEEN {int(low)} AND {int(high)}" for low, high in ranges) or "FALSE"


def _timeline(row: tuple[str, int, str, str]) -> Timeline:
    name, number, state, settings = row
    return Timeline(name, number, State(state), TimelineSettings.from_json(settings))
