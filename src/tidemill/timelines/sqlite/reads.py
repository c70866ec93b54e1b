"""Reads from a timeline file: the catalogue, messages in order, and counts."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tidemill.timelines.core.errors import StoreCorrupt
from tidemill.timelines.core.message import (
    COUNT_MAX,
    EVERYTHING,
    DueSpan,
    MessageStatus,
    Selection,
    TimedMessage,
    TimelinePosition,
    bar_ranges,
    resumed,
    within_bytes,
)
from tidemill.timelines.core.timeline import TimelineInfo, TimelineSettings, TimelineState, usable
from tidemill.timelines.sqlite.tables import BLOCK, INLINE_BYTES_MAX


class _Source(NamedTuple):
    """A table of places `s`, its columns for the state of a message, and the part of it to read."""

    table: str
    columns: str
    part: str = ""
    has_holders: bool = True


_COLUMNS = ("due_ms", "seq", "scheduled_ms", "holder", "token", "version", "attempts")
"""The position of a message and its holder; the first two are its place in the order of the timeline."""
_PLACES = _Source("places s", "s.due_ms, s.seq, s.due_ms, NULL, 0, 1, 0", has_holders=False)
_CHANGED = _Source("changed s", ", ".join(f"s.{column}" for column in _COLUMNS))
STATE = f"""
messages m LEFT JOIN changed c ON c.seq = m.seq
LEFT JOIN places p ON p.timeline = m.timeline AND p.due_ms = m.due_ms AND p.seq = m.seq
LEFT JOIN fresh f ON f.block = m.seq / {BLOCK} AND f.timeline = m.timeline AND f.due_ms = m.due_ms AND f.seq = m.seq
"""
"""Messages with their state; a removed one has no due time in `changed c`, `fresh f` nor `places p`."""
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
_STATES = f"""
WITH found ({", ".join(_COLUMNS)}) AS ({{}} ORDER BY 1, 2 LIMIT :limit)
SELECT {", ".join(f"json_group_array({column})" for column in _COLUMNS)} FROM found
"""  # noqa: S608 (own text; values are bound)
# Rows are looked up in the order of the file, so rows of one page, or of adjacent pages, are read together.
_ROWS = f"""
SELECT json_group_array(m.seq), json_group_array(m.id), json_group_array(m.bucket), json_group_array(m.producer_group),
       json_group_array(m.size), json_group_array(
           CASE WHEN length(m.key) > {INLINE_BYTES_MAX} THEN length(m.key) WHEN m.key NOT NULL THEN hex(m.key) END
       ), json_group_array({{}})
FROM json_each(?) AS c CROSS JOIN messages m ON m.seq = c.value
"""  # noqa: S608 (own text; values are bound)
_HEADS = _ROWS.format("NULL")
_WHOLE = _ROWS.format(f"CASE WHEN m.size > {INLINE_BYTES_MAX} THEN m.size ELSE hex(m.body) END")
_KEY = "SELECT key FROM messages WHERE seq = ?"
_BODY = "SELECT body FROM bodies WHERE seq = ?"
RULE = "coalesce((SELECT r.rule FROM recurring r WHERE r.seq = m.seq), '')"
"""The recurrence of a message `m`."""
_RULES = "SELECT r.seq, r.rule FROM json_each(?) AS c CROSS JOIN recurring r ON r.seq = c.value"
_ANY_RULE = "SELECT EXISTS (SELECT 1 FROM recurring)"
_BLOCKS = "SELECT (SELECT min(block) FROM fresh), (SELECT max(block) FROM fresh)"
_BLOCK = "block"  # there may be several; their values are `block0` and so on
_ROW = "SELECT name, number, state, settings FROM timelines"


def timelines(connection: sqlite3.Connection) -> tuple[TimelineInfo, ...]:
    """All timelines by name."""
    return tuple(_timeline(row) for row in connection.execute(f"{_ROW} ORDER BY name"))


def timeline_named(connection: sqlite3.Connection, name: str) -> TimelineInfo | None:
    """The timeline in any state."""
    row = connection.execute(f"{_ROW} WHERE name = ?", (name,)).fetchone()
    return _timeline(row) if row else None


def usable_timeline(connection: sqlite3.Connection, name: str) -> TimelineInfo:
    """The timeline, if clients may use it."""
    return usable(timeline_named(connection, name), name)


def find(
    connection: sqlite3.Connection,
    name: str,
    selection: Selection,
    now_ms: int,
    limit: int,
    after: TimelinePosition | None,
    *,
    bodies: bool,
) -> list[TimedMessage]:
    """The selected messages in order: first their positions, and then their content.

    SQLite returns the columns as JSON texts. Row by row, it would release and wait for the interpreter lock each time.
    """
    low, high = bar_ranges(resumed(selection, after), now_ms, 1)[0]
    values = {**_values(connection, name, selection), "low": low, "high": high, "limit": limit}
    further = "s.due_ms >= :low AND s.due_ms < :high"
    if after is not None:
        further += " AND (s.due_ms, s.seq) > (:after_ms, :after_seq)"
        values |= {"after_ms": after.due_ms, "after_seq": after.seq}
    message = "" if selection.buckets is None else _MESSAGE
    parts = (
        f"SELECT {one.columns} FROM {one.table}{message} WHERE {_conditions(one, selection)} AND {further}"  # noqa: S608 (own text; values are bound)
        for one in _sources(selection, values)
    )
    found = connection.execute(_STATES.format(" UNION ALL ".join(parts)), values).fetchone()
    messages = _messages(connection, [json.loads(column) for column in found], bodies=bodies)
    return list(within_bytes(messages)) if bodies else list(messages)


def tally(
    connection: sqlite3.Connection, name: str, selection: Selection, now_ms: int, bars: int, bar_max: int = COUNT_MAX
) -> list[int]:
    """Count by due time: one scan of a short range per bar, because grouping would sort all entries first."""
    ranges = json.dumps(bar_ranges(selection, now_ms, bars))
    values = {**_values(connection, name, selection), "ranges": ranges, "bar_max": bar_max}
    counts = [0] * bars
    for source in _sources(selection, values):
        message = "" if selection.buckets is None else _MESSAGE
        statement = f"""
            SELECT (SELECT count(*) FROM (
                SELECT 1 FROM {source.table}{message} WHERE {_conditions(source, selection)}
                AND s.due_ms >= r.value ->> 0 AND s.due_ms < r.value ->> 1 LIMIT :bar_max
            )) FROM json_each(:ranges) AS r
        """  # noqa: S608 (own text; values are bound)
        found = connection.execute(statement, values)
        counts = [min(bar_max, count + more) for count, (more,) in zip(counts, found, strict=True)]
    return counts


def span(connection: sqlite3.Connection, name: str) -> DueSpan | None:
    """The due times of the first and of the last message: two lookups in each table."""
    values = _values(connection, name, EVERYTHING)
    ends = ", ".join(
        f"(SELECT {end}(s.due_ms) FROM {one.table} WHERE {_conditions(one, EVERYTHING)})"  # noqa: S608 (own text; values are bound)
        for one in _sources(EVERYTHING, values)
        for end in ("min", "max")
    )
    found = [due_ms for due_ms in connection.execute(f"SELECT {ends}", values).fetchone() if due_ms is not None]
    return DueSpan(min(found), max(found)) if found else None


def fresh_blocks(connection: sqlite3.Connection) -> range:
    """The blocks from the first to the last that is not empty."""
    first, last = connection.execute(_BLOCKS).fetchone()
    return range(0) if first is None else range(first, last + 1)


def _messages(connection: sqlite3.Connection, states: list[list[Any]], *, bodies: bool) -> Iterator[TimedMessage]:
    """The messages of these states; columns become messages with as little Python code per message as possible."""
    due_ms, seqs, scheduled_ms, *leases = states
    rows = connection.execute(_WHOLE if bodies else _HEADS, (json.dumps(sorted(seqs)),)).fetchone()
    numbers, *carried = (json.loads(column) for column in rows)
    if len(numbers) < len(seqs):
        raise StoreCorrupt(f"{len(seqs) - len(numbers)} messages have a place on the timeline, but no row")
    rules = _rules(connection, seqs)
    place_of = {seq: place for place, seq in enumerate(numbers)}
    order = [place_of[seq] for seq in seqs]
    ids, buckets, groups, sizes, keys, texts = ([column[place] for place in order] for column in carried)
    whole_keys = (
        key if key is None else bytes.fromhex(key) if isinstance(key, str) else _large(connection, _KEY, seq)
        for seq, key in zip(seqs, keys, strict=True)
    )
    whole_bodies = (
        bytes.fromhex(text) if isinstance(text, str) else _large(connection, _BODY, seq)
        for seq, text in zip(seqs, texts, strict=True)
    )
    columns = (
        seqs,
        ids,
        due_ms,
        scheduled_ms,
        buckets,
        groups,
        *leases,
        sizes,
        whole_keys,
        whole_bodies if bodies else texts,
        [rules.get(seq, "") for seq in seqs],
    )
    return map(TimedMessage._make, zip(*columns, strict=True))


def _rules(connection: sqlite3.Connection, seqs: Sequence[int]) -> dict[int, str]:
    """The recurrences of those messages that have one."""
    (there,) = connection.execute(_ANY_RULE).fetchone()
    return dict(connection.execute(_RULES, (json.dumps(seqs),))) if there else {}


def _large(connection: sqlite3.Connection, question: str, seq: int) -> bytes:
    """A key or a body of which only the size is in the result."""
    (value,) = connection.execute(question, (seq,)).fetchone()
    return bytes(value)


def _sources(selection: Selection, values: Mapping[str, Any]) -> list[_Source]:
    """The tables that can contain the selected messages."""
    if selection.ids is not None:
        return [_NAMED]
    if selection.status is MessageStatus.LEASED:
        return [_CHANGED]
    blocks = (name for name in values if name.startswith(_BLOCK))
    return [_PLACES, _CHANGED, *(_PLACES._replace(table="fresh s", part=f"s.block = :{name} AND ") for name in blocks)]


def _conditions(source: _Source, selection: Selection) -> str:
    """The conditions on the selected messages, except their due time."""
    conditions = f"{source.part}s.timeline = :timeline"
    if selection.buckets is not None:
        conditions += f" AND ({_any_range(selection.buckets)})"
    if selection.status is MessageStatus.LEASED:
        conditions += " AND s.holder IS NOT NULL"
    elif selection.status is MessageStatus.WAITING and source.has_holders:
        conditions += " AND s.holder IS NULL"
    return conditions


def _values(connection: sqlite3.Connection, name: str, selection: Selection) -> dict[str, Any]:
    values: dict[str, Any] = {"timeline": usable_timeline(connection, name).number}
    if selection.ids is not None:
        return {**values, "ids": json.dumps(selection.ids)}
    return values | {f"{_BLOCK}{place}": block for place, block in enumerate(fresh_blocks(connection))}


def _any_range(ranges: Sequence[tuple[int, int]]) -> str:
    return " OR ".join(f"m.bucket BETWEEN {int(low)} AND {int(high)}" for low, high in ranges) or "FALSE"


def _timeline(row: tuple[str, int, str, str]) -> TimelineInfo:
    name, number, state, settings = row
    return TimelineInfo(name, number, TimelineState(state), TimelineSettings.from_json(settings))
