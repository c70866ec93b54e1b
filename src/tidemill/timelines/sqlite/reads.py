"""What is read from a timeline file: the catalogue, messages in order, and counts."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidemill.timelines.core.message import Message, Place, Selection, Status, bar_ranges, resumed, within_bytes
from tidemill.timelines.core.timeline import State, Timeline, TimelineSettings, usable
from tidemill.timelines.sqlite.tables import BLOCK, INLINE_BYTES_MAX


class _Source(NamedTuple):
    """A table of places `s`, what is known of its messages there and in `messages m`, and which part of it counts."""

    table: str
    columns: str
    part: str = ""
    has_holders: bool = True


_PLACES = _Source(
    "places s",
    "s.seq, m.id, s.due_ms, s.due_ms, m.bucket, m.producer_group, NULL, 0, 1, 0, m.size, m.key",
    has_holders=False,
)
_CHANGED = _Source(
    "changed s",
    "s.seq, m.id, s.due_ms, s.scheduled_ms, m.bucket, m.producer_group, s.holder, s.token, s.version, s.attempts,"
    " m.size, m.key",
)
STATE = f"""
messages m LEFT JOIN changed c ON c.seq = m.seq
LEFT JOIN places p ON p.timeline = m.timeline AND p.due_ms = m.due_ms AND p.seq = m.seq
LEFT JOIN fresh f ON f.block = m.seq / {BLOCK} AND f.timeline = m.timeline AND f.due_ms = m.due_ms AND f.seq = m.seq
"""
"""Messages with their state; one that is gone has no due time in `changed c`, `fresh f` nor `places p`."""
_NAMED = _Source(
    f"""(
        SELECT m.timeline, m.seq, coalesce(c.due_ms, f.due_ms, p.due_ms) AS due_ms,
               coalesce(c.scheduled_ms, f.due_ms, p.due_ms) AS scheduled_ms, c.holder, coalesce(c.token, 0) AS token,
               coalesce(c.version, 1) AS version, coalesce(c.attempts, 0) AS attempts
        FROM {STATE} WHERE m.timeline = :timeline AND m.id IN (SELECT value FROM json_each(:ids))
    ) s""",  # noqa: S608 (own text; values are bound)
    _CHANGED.columns,
)
_MESSAGE = " CROSS JOIN messages m ON m.seq = s.seq"
_SMALL = "CASE WHEN {0} IS NULL OR length({0}) > :small THEN length({0}) ELSE hex({0}) END"
_ANSWER = f"""
WITH found (
    seq, id, due_ms, scheduled_ms, bucket, producer_group, holder, token, version, attempts, size, key, body
) AS ({{}} ORDER BY 3, 1 LIMIT :limit)
SELECT json_group_array(json_array(
    seq, id, due_ms, scheduled_ms, bucket, producer_group, holder, token, version, attempts, size,
    {_SMALL.format("key")}, hex(body)
)) FROM found
"""  # noqa: S608 (own text; values are bound)
_KEY = "SELECT key FROM messages WHERE seq = ?"
_BODY = "SELECT body FROM bodies WHERE seq = ?"
_BLOCKS = "SELECT (SELECT min(block) FROM fresh), (SELECT max(block) FROM fresh)"
_BLOCK = "block"  # of these there may be several; their values are `block0` and so on
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
    """The selected messages in order.

    The answer of SQLite is one text: for each row of many it would give the interpreter lock away and wait for it.
    """
    low, high = bar_ranges(resumed(selection, after), now_ms, 1)[0]
    values = {
        **_values(connection, name, selection),
        "low": low,
        "high": high,
        "limit": limit,
        "small": INLINE_BYTES_MAX,
    }
    further = "s.due_ms >= :low AND s.due_ms < :high"
    if after is not None:
        further += " AND (s.due_ms, s.seq) > (:after_ms, :after_seq)"
        values |= {"after_ms": after.due_ms, "after_seq": after.seq}
    body = "m.body" if bodies else "NULL"
    parts = (
        f"SELECT {one.columns}, {body} FROM {one.table}{_MESSAGE} WHERE {_conditions(one, selection)} AND {further}"  # noqa: S608 (own text; values are bound)
        for one in _sources(selection, values)
    )
    (rows,) = connection.execute(_ANSWER.format(" UNION ALL ".join(parts)), values).fetchone()
    messages = (_message(connection, row, bodies=bodies) for row in json.loads(rows))
    return list(within_bytes(messages)) if bodies else list(messages)


def tally(connection: sqlite3.Connection, name: str, selection: Selection, now_ms: int, bars: int) -> list[int]:
    """Count by due time: one walk of a short range for each bar (grouping would sort all entries first)."""
    ranges = json.dumps(bar_ranges(selection, now_ms, bars))
    values = {**_values(connection, name, selection), "ranges": ranges}
    counts = [0] * bars
    for source in _sources(selection, values):
        message = "" if selection.buckets is None else _MESSAGE
        statement = f"""
            SELECT (SELECT count(*) FROM {source.table}{message} WHERE {_conditions(source, selection)}
                    AND s.due_ms >= r.value ->> 0 AND s.due_ms < r.value ->> 1)
            FROM json_each(:ranges) AS r
        """  # noqa: S608 (own text; values are bound)
        found = connection.execute(statement, values)
        counts = [count + more for count, (more,) in zip(counts, found, strict=True)]
    return counts


def fresh_blocks(connection: sqlite3.Connection) -> range:
    """The blocks from the first to the last that is not empty."""
    first, last = connection.execute(_BLOCKS).fetchone()
    return range(0) if first is None else range(first, last + 1)


def _message(connection: sqlite3.Connection, row: list[Any], *, bodies: bool) -> Message:
    """A message of an answer, with its key and body if they are too large for it."""
    *_, size, key, body = row
    if isinstance(key, int):
        (row[-2],) = connection.execute(_KEY, row[:1]).fetchone()
    elif key is not None:
        row[-2] = bytes.fromhex(key)
    if not bodies:
        row[-1] = None
    elif size > INLINE_BYTES_MAX:
        (row[-1],) = connection.execute(_BODY, row[:1]).fetchone()
    else:
        row[-1] = bytes.fromhex(body)
    return Message(*row)


def _sources(selection: Selection, values: Mapping[str, Any]) -> list[_Source]:
    """Where the selected messages can stand."""
    if selection.ids is not None:
        return [_NAMED]
    if selection.status is Status.LEASED:
        return [_CHANGED]
    blocks = (name for name in values if name.startswith(_BLOCK))
    return [_PLACES, _CHANGED, *(_PLACES._replace(table="fresh s", part=f"s.block = :{name} AND ") for name in blocks)]


def _conditions(source: _Source, selection: Selection) -> str:
    """What holds for the selected messages apart from their due time."""
    conditions = f"{source.part}s.timeline = :timeline"
    if selection.buckets is not None:
        conditions += f" AND ({_any_range(selection.buckets)})"
    if selection.status is Status.LEASED:
        conditions += " AND s.holder IS NOT NULL"
    elif selection.status is Status.WAITING and source.has_holders:
        conditions += " AND s.holder IS NULL"
    return conditions


def _values(connection: sqlite3.Connection, name: str, selection: Selection) -> dict[str, Any]:
    values: dict[str, Any] = {"timeline": usable_timeline(connection, name).number}
    if selection.ids is not None:
        return {**values, "ids": json.dumps(selection.ids)}
    return values | {f"{_BLOCK}{place}": block for place, block in enumerate(fresh_blocks(connection))}


def _any_range(ranges: Sequence[tuple[int, int]]) -> str:
    return " OR ".join(f"m.bucket BETWEEN {int(low)} AND {int(high)}" for low, high in ranges) or "FALSE"


def _timeline(row: tuple[str, int, str, str]) -> Timeline:
    name, number, state, settings = row
    return Timeline(name, number, State(state), TimelineSettings.from_json(settings))
