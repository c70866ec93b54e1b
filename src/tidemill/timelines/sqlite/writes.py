"""What is written to a timeline file. Each function runs inside the writer's transaction.

A batch is one statement, however long: the entries go in as one JSON array, keys and bodies as one blob that SQL cuts
up. That is cheaper than a statement for each, and the interpreter lock changes hands once instead of once per row.

Changes are read, decided by `core.lease`, and written under the condition that the version is still the one decided
on; a number of changed rows other than expected means a broken file, and the transaction is rolled back. The two
batches that make up nearly all of the traffic, claims and completions that all hold, are told apart by one question and
written by one statement that says the rules of `core.lease` in SQL: no message of them is carried into Python and back.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence

from tidemill.timelines.core.changes import Change, answer_schedule, plan_commands, plan_leases, plan_schedule, targets
from tidemill.timelines.core.lease import Bury, Claim, Command, Complete, Lease, Outcome, check_claims, check_commands
from tidemill.timelines.core.message import Message, NewMessage, Scheduled, check_new
from tidemill.timelines.core.timeline import Purge, State, Step, Timeline, after
from tidemill.timelines.sqlite.reads import timeline_named, usable_timeline
from tidemill.timelines.sqlite.schema import INLINE_BYTES_MAX

_STATES = """
SELECT json_group_array(json_array(seq, id, due_ms, scheduled_ms, bucket, producer_group, holder, token, version,
                                   attempts, size, NULL))
FROM messages WHERE {} IN (SELECT value FROM json_each(?2))
"""
# The plus keeps the planner from walking the whole timeline in one of its indexes instead of looking up the numbers.
_BY_SEQ = _STATES.format("+timeline = ?1 AND seq")
_BY_ID = _STATES.format("timeline = ?1 AND id")
_INSERT = """
INSERT INTO messages
SELECT ?1 + key, ?2, value ->> 0, value ->> 1, value ->> 1, value ->> 2, value ->> 3, NULL, 0, 1, 0, value ->> 5,
       CASE WHEN value ->> 6 >= 0 THEN substr(?4, 1 + (value ->> 4) + (value ->> 5), value ->> 6) END,
       CASE WHEN value ->> 5 <= ?5 THEN substr(?4, 1 + (value ->> 4), value ->> 5) END
FROM json_each(?3)
"""
_INSERT_BODIES = """
INSERT INTO bodies
SELECT ?1 + key, substr(?3, 1 + (value ->> 4), value ->> 5) FROM json_each(?2) WHERE value ->> 5 > ?4
"""
_UPDATE = """
UPDATE messages
SET due_ms = c.value ->> 2, scheduled_ms = c.value ->> 3, holder = c.value ->> 4, token = c.value ->> 5,
    version = c.value ->> 6, attempts = c.value ->> 7
FROM json_each(?) AS c
WHERE messages.seq = c.value ->> 0 AND messages.version = c.value ->> 1
"""
_BURY = "UPDATE messages SET timeline = ?, id = ? WHERE seq = ? AND version = ?"
_DELETE = """
DELETE FROM messages WHERE seq IN (
    SELECT m.seq FROM json_each(?) AS c CROSS JOIN messages AS m ON m.seq = c.value ->> 0 AND m.version = c.value ->> 1
)
"""
# Claims are [seq, version, holder, until_ms], completions [seq, token].
_CLAIMED = """
SELECT json_group_array(attempts) FROM (
    SELECT m.attempts FROM json_each(?2) AS c LEFT JOIN messages AS m
    ON m.seq = c.value ->> 0 AND m.version = c.value ->> 1 AND +m.timeline = ?1
    AND (m.due_ms <= ?3 OR (m.holder IS NULL AND m.due_ms <= ?4))
    ORDER BY c.key
)
"""
_TAKE = """
UPDATE messages
SET due_ms = c.value ->> 3, holder = c.value ->> 2, token = messages.version + 1, version = messages.version + 1,
    attempts = attempts + 1
FROM json_each(?1) AS c
WHERE messages.seq = c.value ->> 0 AND messages.version = c.value ->> 1
AND (messages.due_ms <= ?2 OR (messages.holder IS NULL AND messages.due_ms <= ?3))
"""
_HELD = "m.seq = c.value ->> 0 AND m.token = c.value ->> 1 AND m.holder IS NOT NULL AND m.due_ms > "
_HELD_BY_ALL = f"""
SELECT count(*) FROM json_each(?2) AS c CROSS JOIN messages AS m ON {_HELD} ?3 AND +m.timeline = ?1
"""  # noqa: S608 (own text; values are bound)
_COMPLETE = f"""
DELETE FROM messages WHERE seq IN (SELECT m.seq FROM json_each(?1) AS c CROSS JOIN messages AS m ON {_HELD} ?2)
"""  # noqa: S608 (own text; values are bound)
_COMPLETE_BODIES = "DELETE FROM bodies WHERE seq IN (SELECT value ->> 0 FROM json_each(?))"
_DELETE_BODIES = "DELETE FROM bodies WHERE seq IN (SELECT value FROM json_each(?))"
_PURGE = "DELETE FROM messages WHERE seq IN (SELECT value FROM json_each(?))"


def govern(connection: sqlite3.Connection, step: Step) -> Timeline | None:
    """Take one step in the life of a timeline."""
    before = timeline_named(connection, step.name)
    timeline = after(before, step, 0)
    if isinstance(step, Purge):
        return _purge(connection, timeline, step.limit)
    if before is None:
        cursor = connection.execute(
            "INSERT INTO timelines (name, state, settings) VALUES (?, ?, ?)",
            (timeline.name, timeline.state.value, timeline.settings.to_json()),
        )
        return Timeline(timeline.name, cursor.lastrowid or 0, State.CREATING, timeline.settings)
    if timeline != before:
        connection.execute(
            "UPDATE timelines SET state = ?, settings = ? WHERE number = ?",
            (timeline.state.value, timeline.settings.to_json(), timeline.number),
        )
    return timeline


def schedule(connection: sqlite3.Connection, name: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
    """Keep the messages that are not there yet."""
    timeline = usable_timeline(connection, name)
    check_new(messages, timeline.settings.body_bytes_max)
    known = _states(connection, _BY_ID, timeline.number, [message.id for message in messages])
    there, fresh = plan_schedule(known, messages)
    first = _last_seq(connection) + 1
    if fresh:
        _insert(connection, timeline.number, first, fresh)
    return answer_schedule(there, {message.id: first + place for place, message in enumerate(fresh)}, messages)


def acquire(
    connection: sqlite3.Connection, name: str, claims: Sequence[Claim], now_ms: int, early_ms: int
) -> list[Lease | None]:
    """Lease the claimed messages."""
    timeline = usable_timeline(connection, name)
    check_claims(claims, now_ms, early_ms)
    if leases := _take_all(connection, timeline.number, claims, now_ms, early_ms):
        return leases
    messages = _states(connection, _BY_SEQ, timeline.number, [claim.seq for claim in claims])
    leases, changes = plan_leases(name, messages, claims, now_ms, early_ms)
    _write(connection, changes, {})
    return leases


def _take_all(
    connection: sqlite3.Connection, timeline: int, claims: Sequence[Claim], now_ms: int, early_ms: int
) -> list[Lease | None]:
    """Lease all the claimed messages, or none when one of the claims does not hold."""
    if len({claim.seq for claim in claims}) < len(claims):
        return []
    text = json.dumps(claims)
    (found,) = connection.execute(_CLAIMED, (timeline, text, now_ms, now_ms + early_ms)).fetchone()
    attempts = json.loads(found)
    if None in attempts:
        return []
    _expect(connection.execute(_TAKE, (text, now_ms, now_ms + early_ms)), len(claims))
    return [
        Lease(claim.seq, claim.version + 1, claim.holder, claim.until_ms, before + 1)
        for claim, before in zip(claims, attempts, strict=True)
    ]


def settle(connection: sqlite3.Connection, name: str, commands: Sequence[Command], now_ms: int) -> list[Outcome]:
    """Carry out the commands that still hold, in their order."""
    timeline = usable_timeline(connection, name)
    check_commands(commands, now_ms)
    if _complete_all(connection, timeline.number, commands, now_ms):
        return [Outcome.DONE] * len(commands)
    graves = {one.to: usable_timeline(connection, one.to).number for one in commands if isinstance(one, Bury)}
    numbers, ids = targets(commands)
    messages = _states(connection, _BY_SEQ, timeline.number, numbers)
    if ids:
        messages += _states(connection, _BY_ID, timeline.number, ids)
    outcomes, changes = plan_commands(name, messages, commands, now_ms)
    _write(connection, changes, graves)
    return outcomes


def _complete_all(connection: sqlite3.Connection, timeline: int, commands: Sequence[Command], now_ms: int) -> bool:
    """Whether the commands were completions that all hold, and were carried out."""
    if any(type(command) is not Complete for command in commands) or len(set(commands)) < len(commands):
        return False
    text = json.dumps(commands)
    (held,) = connection.execute(_HELD_BY_ALL, (timeline, text, now_ms)).fetchone()
    if held != len(commands):
        return False
    _expect(connection.execute(_COMPLETE, (text, now_ms)), len(commands))
    connection.execute(_COMPLETE_BODIES, (text,))
    return True


def _states(connection: sqlite3.Connection, statement: str, timeline: int, keys: Sequence[int | str]) -> list[Message]:
    (rows,) = connection.execute(statement, (timeline, json.dumps(keys))).fetchone()
    return [Message(*row) for row in json.loads(rows)]


def _insert(connection: sqlite3.Connection, timeline: int, first: int, messages: Iterable[NewMessage]) -> None:
    entries = []
    blob = bytearray(1)  # never empty: Python binds an empty blob as NULL
    for new in messages:
        key_size = -1 if new.key is None else len(new.key)
        entries.append((new.id, new.due_ms, new.bucket, new.group, len(blob), len(new.body), key_size))
        blob += new.body
        if new.key:
            blob += new.key
    text = json.dumps(entries)
    connection.execute(_INSERT, (first, timeline, text, blob, INLINE_BYTES_MAX))
    if any(entry[5] > INLINE_BYTES_MAX for entry in entries):
        connection.execute(_INSERT_BODIES, (first, text, blob, INLINE_BYTES_MAX))


def _write(connection: sqlite3.Connection, changes: Iterable[Change], graves: dict[str, int]) -> None:
    gone, kept, bodies = [], [], []
    for before, now, timeline in changes:
        if now is None:
            gone.append((before.seq, before.version))
            if before.size > INLINE_BYTES_MAX:
                bodies.append(before.seq)
            continue
        position = (now.due_ms, now.scheduled_ms, now.holder, now.token, now.version, now.attempts)
        kept.append((before.seq, before.version, *position))
        if now.id != before.id:
            _expect(connection.execute(_BURY, (graves[timeline], now.id, now.seq, before.version)), 1)
    if kept:
        _expect(connection.execute(_UPDATE, (json.dumps(kept),)), len(kept))
    if gone:
        _expect(connection.execute(_DELETE, (json.dumps(gone),)), len(gone))
    if bodies:
        connection.execute(_DELETE_BODIES, (json.dumps(bodies),))


def _expect(cursor: sqlite3.Cursor, rows: int) -> None:
    if cursor.rowcount != rows:
        raise sqlite3.IntegrityError(f"{cursor.rowcount} rows changed where {rows} were decided on")


def _last_seq(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").fetchone()
    return row[0] if row else 0


def _purge(connection: sqlite3.Connection, timeline: Timeline, limit: int) -> Timeline | None:
    rows = connection.execute("SELECT seq FROM messages WHERE timeline = ? LIMIT ?", (timeline.number, limit))
    numbers = json.dumps([seq for (seq,) in rows])
    connection.execute(_PURGE, (numbers,))
    connection.execute(_DELETE_BODIES, (numbers,))
    left = connection.execute("SELECT 1 FROM messages WHERE timeline = ? LIMIT 1", (timeline.number,)).fetchone()
    if left:
        return timeline
    connection.execute("DELETE FROM timelines WHERE number = ?", (timeline.number,))
    return None
