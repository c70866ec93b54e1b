"""Writes to a timeline file. Each function runs inside the writer's transaction.

A batch of any length is one statement: the entries are one JSON array, keys and bodies one blob that SQL cuts up. This
is cheaper than a statement per entry, and the interpreter lock is passed once instead of once per row.

Changes are read, decided by `core.lease`, and written only if the version is still the one that was read. Any other
number of changed rows than expected means a damaged file, and the transaction is rolled back.

Two kinds of batches make up nearly all of the traffic: claims and completions that all hold. One query recognizes them,
and one statement writes them with the rules of `core.lease` in SQL. No message of them is copied into Python and back.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tidemill.timelines.core.changes import (
    Change,
    answer_schedule,
    plan_commands,
    plan_leases,
    plan_schedule,
    targets,
    wanted_ids,
)
from tidemill.timelines.core.lease import (
    Claim,
    Command,
    CommandOutcome,
    Complete,
    LeaseGrant,
    check_claims,
    check_commands,
)
from tidemill.timelines.core.message import NewMessage, Scheduled, TimedMessage, check_new
from tidemill.timelines.core.timeline import Purge, Step, TimelineInfo, TimelineState, after
from tidemill.timelines.sqlite.reads import RULE, STATE, fresh_blocks, timeline_named, usable_timeline
from tidemill.timelines.sqlite.tables import BLOCK, INLINE_BYTES_MAX

_DUE = TimedMessage._fields.index("due_ms")

_STATES = f"""
SELECT json_group_array(json_array(
    m.seq, m.id, coalesce(c.due_ms, f.due_ms, p.due_ms),
    coalesce(c.scheduled_ms, f.due_ms, p.due_ms), m.bucket, m.producer_group,
    c.holder, coalesce(c.token, 0), coalesce(c.version, 1), coalesce(c.attempts, 0), m.size, NULL, NULL,
    {RULE}))
FROM {STATE} WHERE {{}} IN (SELECT value FROM json_each(?2))
"""  # noqa: S608 (own text; values are bound)
# The plus keeps the planner from scanning the ids of the whole timeline instead of looking up the numbers.
_BY_SEQ = _STATES.format("+m.timeline = ?1 AND m.seq")
_BY_ID = _STATES.format("m.timeline = ?1 AND m.id")
_INSERT = """
INSERT INTO messages
SELECT ?1 + key, ?2, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 5,
       CASE WHEN value ->> 6 >= 0 THEN substr(?4, 1 + (value ->> 4) + (value ->> 5), value ->> 6) END,
       CASE WHEN value ->> 5 <= ?5 THEN substr(?4, 1 + (value ->> 4), value ->> 5) END
FROM json_each(?3)
"""
_INSERT_BODIES = """
INSERT INTO bodies
SELECT ?1 + key, substr(?3, 1 + (value ->> 4), value ->> 5) FROM json_each(?2) WHERE value ->> 5 > ?4
"""
_INSERT_FRESH = f"INSERT INTO fresh SELECT (?1 + key) / {BLOCK}, ?2, value ->> 1, ?1 + key FROM json_each(?3)"  # noqa: S608 (own text; values are bound)
# Places are [seq, due_ms, ...]; first claims [seq, seen_ms, holder, until_ms].
_LEAVE_PLACES = """
DELETE FROM places WHERE (timeline, due_ms, seq) IN (SELECT ?1, value ->> 1, value ->> 0 FROM json_each(?2))
"""
_LEAVE_FRESH = f"""
DELETE FROM fresh WHERE (block, timeline, due_ms, seq) IN (
    SELECT (value ->> 0) / {BLOCK}, ?1, value ->> 1, value ->> 0 FROM json_each(?2)
)
"""  # noqa: S608 (own text; values are bound)
_THERE = "t.timeline = ?1 AND t.due_ms = c.value ->> 1 AND t.seq = c.value ->> 0"
_IN_PLACES = f"EXISTS (SELECT 1 FROM places t WHERE {_THERE})"  # noqa: S608 (own text; values are bound)
_IN_FRESH = f"EXISTS (SELECT 1 FROM fresh t WHERE t.block = (c.value ->> 0) / {BLOCK} AND {_THERE})"  # noqa: S608 (own text; values are bound)
_UNTOUCHED_OLD = f"SELECT count(*) FROM json_each(?2) AS c WHERE c.value ->> 1 <= ?3 AND {_IN_PLACES}"  # noqa: S608 (own text; values are bound)
_UNTOUCHED_NEW = f"""
SELECT count(*) FROM json_each(?2) AS c WHERE c.value ->> 1 <= ?3 AND ({_IN_FRESH} OR {_IN_PLACES})
"""  # noqa: S608 (own text; values are bound)
_TAKE = """
INSERT INTO changed SELECT ?1, value ->> 3, value ->> 0, value ->> 1, value ->> 2, 2, 2, 1 FROM json_each(?2)
"""
# States are [timeline, due_ms, seq, scheduled_ms, holder, token, version, attempts]; removed entries [seq, version].
_CHANGE = """
INSERT INTO changed
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
FROM json_each(?)
"""
_LEAVE_CHANGED = """
DELETE FROM changed WHERE seq IN (
    SELECT h.seq FROM json_each(?) AS c CROSS JOIN changed AS h ON h.seq = c.value ->> 0 AND h.version = c.value ->> 1
)
"""
_USED = "SELECT id FROM messages WHERE timeline = ? AND id IN (SELECT value FROM json_each(?))"
_MOVE_AWAY = "UPDATE messages SET timeline = ?, id = ? WHERE seq = ?"
# Completions are [seq, token].
_HELD = """
h.seq = c.value ->> 0 AND h.token = c.value ->> 1 AND h.holder IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM recurring r WHERE r.seq = h.seq) AND +h.due_ms >
"""
_HELD_BY_ALL = f"""
SELECT count(*) FROM json_each(?2) AS c CROSS JOIN changed AS h ON {_HELD} ?3 AND +h.timeline = ?1
"""  # noqa: S608 (own text; values are bound)
_COMPLETE = f"""
DELETE FROM changed WHERE seq IN (SELECT h.seq FROM json_each(?1) AS c CROSS JOIN changed AS h ON {_HELD} ?2)
"""  # noqa: S608 (own text; values are bound)
_GONE = "INSERT INTO gone (seq) SELECT value ->> 0 FROM json_each(?)"
_COMPLETE_BODIES = "DELETE FROM bodies WHERE seq IN (SELECT value ->> 0 FROM json_each(?))"
_REMOVE = "DELETE FROM {} WHERE seq IN (SELECT value FROM json_each(?))"
_REMOVE_MESSAGES = _REMOVE.format("messages")
_REMOVE_CHANGED = _REMOVE.format("changed")
_REMOVE_BODIES = _REMOVE.format("bodies")
_REMOVE_RULES = _REMOVE.format("recurring")
_ADD_RULES = "INSERT INTO recurring SELECT value ->> 0, value ->> 1 FROM json_each(?)"


class _BatchPart(NamedTuple):
    """A part of a batch: the number of entries, and their JSON text."""

    size: int
    text: str


def govern(connection: sqlite3.Connection, step: Step) -> TimelineInfo | None:
    """Take one step in the lifecycle of a timeline."""
    before = timeline_named(connection, step.name)
    timeline = after(before, step, 0)
    if isinstance(step, Purge):
        return _purge(connection, timeline, step.limit)
    if before is None:
        cursor = connection.execute(
            "INSERT INTO timelines (name, state, settings) VALUES (?, ?, ?)",
            (timeline.name, timeline.state.value, timeline.settings.to_json()),
        )
        return TimelineInfo(timeline.name, cursor.lastrowid or 0, TimelineState.CREATING, timeline.settings)
    if timeline != before:
        connection.execute(
            "UPDATE timelines SET state = ?, settings = ? WHERE number = ?",
            (timeline.state.value, timeline.settings.to_json(), timeline.number),
        )
    return timeline


def schedule(connection: sqlite3.Connection, name: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
    """Store the messages whose ids do not exist yet."""
    timeline = usable_timeline(connection, name)
    check_new(messages, timeline.settings.body_bytes_max)
    known = free_ids(connection, timeline.number, [message.id for message in messages])
    there, fresh = plan_schedule(known, messages)
    first = last_seq(connection) + 1
    if fresh:
        _insert(connection, timeline.number, first, fresh)
    return answer_schedule(there, {message.id: first + place for place, message in enumerate(fresh)}, messages)


def free_ids(connection: sqlite3.Connection, timeline: int, ids: Sequence[str]) -> list[TimedMessage]:
    """Remove the rows of messages that are gone, because their ids are used again; returns those that exist."""
    known = _rows(connection, _BY_ID, timeline, ids)
    if gone := [row[0] for row in known if row[_DUE] is None]:
        connection.execute(_REMOVE_MESSAGES, (json.dumps(gone),))
    return _alive(known)


def ids_in_use(connection: sqlite3.Connection, timeline: int, ids: Sequence[str]) -> list[str]:
    """The ids that messages of the timeline have, and those that are given twice."""
    twice = {one for one, count in Counter(ids).items() if count > 1}
    return sorted(twice.union(one.id for one in _states(connection, _BY_ID, timeline, ids)))


def insert_at(connection: sqlite3.Connection, timeline: int, first: int, messages: Sequence[NewMessage]) -> None:
    """Store messages that another replica has numbered from `first` on."""
    free_ids(connection, timeline, [message.id for message in messages])
    _insert(connection, timeline, first, messages)


def restore(connection: sqlite3.Connection, timeline: int, messages: Sequence[TimedMessage]) -> None:
    """Store messages with their numbers and states, as another replica has them."""
    free_ids(connection, timeline, [message.id for message in messages])
    rows = []
    for one in messages:
        body = one.body or b""
        inline = body if len(body) <= INLINE_BYTES_MAX else None
        due_ms = one.due_ms if one.version == 1 else one.scheduled_ms
        rows.append((one.seq, timeline, one.id, due_ms, one.bucket, one.group, len(body), one.key, inline))
    connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    connection.executemany(
        "INSERT INTO bodies VALUES (?, ?)",
        [(one.seq, one.body) for one in messages if one.body is not None and len(one.body) > INLINE_BYTES_MAX],
    )
    untouched = [(timeline, one.due_ms, one.seq) for one in messages if one.version == 1]
    connection.executemany("INSERT INTO places VALUES (?, ?, ?)", untouched)
    changed = [
        (timeline, one.due_ms, one.seq, one.scheduled_ms, one.holder, one.token, one.version, one.attempts)
        for one in messages
        if one.version > 1
    ]
    connection.execute(_CHANGE, (json.dumps(changed),))
    _write_rules(connection, {}, {one.seq: one.recurrence for one in messages})


def acquire(
    connection: sqlite3.Connection, name: str, claims: Sequence[Claim], now_ms: int, early_ms: int
) -> list[LeaseGrant | None]:
    """Lease the claimed messages."""
    timeline = usable_timeline(connection, name)
    check_claims(claims, now_ms, early_ms)
    first = [claim for claim in claims if claim.version == 1]
    taken = _take(connection, timeline.number, first, now_ms + early_ms)
    others = [claim for claim in claims if claim.seq not in taken]
    messages = _states(connection, _BY_SEQ, timeline.number, [claim.seq for claim in others])
    leases, changes = plan_leases(name, messages, others, now_ms, early_ms)
    _write(connection, timeline.number, changes, {})
    rest = iter(leases)
    return [taken[claim.seq] if claim.seq in taken else next(rest) for claim in claims]


def _take(connection: sqlite3.Connection, timeline: int, claims: Sequence[Claim], due_ms: int) -> dict[int, LeaseGrant]:
    """The leases of messages that were never leased or moved: of all, or of none when a claim does not hold."""
    entries = [(claim.seq, claim.seen_ms, claim.holder, claim.until_ms) for claim in claims]
    leases = {claim.seq: LeaseGrant(claim.seq, 2, claim.holder, claim.until_ms, 1) for claim in claims}
    old, new = _by_age(connection, entries)
    questions = ((_UNTOUCHED_OLD, old), (_UNTOUCHED_NEW, new))
    asked = [(question, part.text) for question, part in questions if part.size]
    untouched = sum(connection.execute(question, (timeline, text, due_ms)).fetchone()[0] for question, text in asked)
    if not leases or not untouched == len(leases) == len(claims):
        return {}
    _leave(connection, timeline, old, new)
    for _, text in asked:
        connection.execute(_TAKE, (timeline, text))
    return leases


def settle(connection: sqlite3.Connection, name: str, commands: Sequence[Command], now_ms: int) -> list[CommandOutcome]:
    """Apply the commands that still hold, in their order."""
    timeline = usable_timeline(connection, name)
    check_commands(commands, now_ms)
    if _complete_all(connection, timeline.number, commands, now_ms):
        return [CommandOutcome.DONE] * len(commands)
    wanted = wanted_ids(commands)
    others = {to: usable_timeline(connection, to).number for to in wanted}
    used = {to: _used(connection, others[to], ids) for to, ids in wanted.items() if ids}
    numbers, ids = targets(commands)
    messages = _states(connection, _BY_SEQ, timeline.number, numbers)
    if ids:
        messages += _states(connection, _BY_ID, timeline.number, ids)
    outcomes, changes = plan_commands(name, messages, commands, now_ms, used)
    _write(connection, timeline.number, changes, others)
    return outcomes


def _used(connection: sqlite3.Connection, timeline: int, ids: Sequence[str]) -> list[str]:
    """The ids that rows of the timeline have, also of messages that are gone."""
    return [one for (one,) in connection.execute(_USED, (timeline, json.dumps(ids)))]


def _complete_all(connection: sqlite3.Connection, timeline: int, commands: Sequence[Command], now_ms: int) -> bool:
    """Whether the commands were completions that all hold, and were applied."""
    if any(type(command) is not Complete for command in commands) or len(set(commands)) < len(commands):
        return False
    text = json.dumps(commands)
    (held,) = connection.execute(_HELD_BY_ALL, (timeline, text, now_ms)).fetchone()
    if held != len(commands):
        return False
    _expect(connection.execute(_COMPLETE, (text, now_ms)), len(commands))
    connection.execute(_GONE, (text,))
    connection.execute(_COMPLETE_BODIES, (text,))
    return True


def _states(
    connection: sqlite3.Connection, statement: str, timeline: int, keys: Sequence[int | str]
) -> list[TimedMessage]:
    return _alive(_rows(connection, statement, timeline, keys)) if keys else []


def _rows(connection: sqlite3.Connection, statement: str, timeline: int, keys: Sequence[int | str]) -> list[list[Any]]:
    """Messages in any state; a removed one has no due time."""
    (rows,) = connection.execute(statement, (timeline, json.dumps(keys))).fetchone()
    found: list[list[Any]] = json.loads(rows)
    return found


def _alive(rows: Iterable[list[Any]]) -> list[TimedMessage]:
    return [TimedMessage(*row) for row in rows if row[_DUE] is not None]


def _insert(connection: sqlite3.Connection, timeline: int, first: int, messages: Sequence[NewMessage]) -> None:
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
    connection.execute(_INSERT_FRESH, (first, timeline, text))
    if any(entry[5] > INLINE_BYTES_MAX for entry in entries):
        connection.execute(_INSERT_BODIES, (first, text, blob, INLINE_BYTES_MAX))
    _write_rules(connection, {}, {first + place: new.recurrence for place, new in enumerate(messages)})


def _write_rules(connection: sqlite3.Connection, before: Mapping[int, str], after: Mapping[int, str]) -> None:
    """Write the recurrences that have changed; hardly any message has one."""
    if gone := [seq for seq, rule in before.items() if rule and rule != after.get(seq)]:
        connection.execute(_REMOVE_RULES, (json.dumps(gone),))
    if new := [(seq, rule) for seq, rule in after.items() if rule and rule != before.get(seq)]:
        connection.execute(_ADD_RULES, (json.dumps(new),))


def _write(connection: sqlite3.Connection, timeline: int, changes: Iterable[Change], others: Mapping[str, int]) -> None:
    untouched, changed, kept, gone = [], [], [], []
    rules_before, rules_after = {}, {}
    for before, now, target in changes:
        rules_before[before.seq] = before.recurrence
        rules_after[before.seq] = "" if now is None else now.recurrence
        if before.version == 1:
            untouched.append((before.seq, before.due_ms))
        else:
            changed.append((before.seq, before.version))
        if now is None:
            gone.append((before.seq,))
            continue
        state = (now.scheduled_ms, now.holder, now.token, now.version, now.attempts)
        kept.append((timeline if now.id == before.id else others[target], now.due_ms, now.seq, *state))
        if now.id != before.id:
            _expect(connection.execute(_MOVE_AWAY, (others[target], now.id, now.seq)), 1)
    _write_rules(connection, rules_before, rules_after)
    if untouched:
        _leave(connection, timeline, *_by_age(connection, untouched))
    if changed:
        _expect(connection.execute(_LEAVE_CHANGED, (json.dumps(changed),)), len(changed))
    if kept:
        connection.execute(_CHANGE, (json.dumps(kept),))
    if gone:
        connection.execute(_GONE, (json.dumps(gone),))
        connection.execute(_COMPLETE_BODIES, (json.dumps(gone),))


def _by_age(connection: sqlite3.Connection, entries: Sequence[tuple[Any, ...]]) -> tuple[_BatchPart, _BatchPart]:
    """Untouched messages that are in `places` for certain, and newer ones that may still be in `fresh`."""
    blocks = fresh_blocks(connection)
    first = blocks.start * BLOCK if blocks else last_seq(connection) + 1
    old, new = [one for one in entries if one[0] < first], [one for one in entries if one[0] >= first]
    return _BatchPart(len(old), json.dumps(old)), _BatchPart(len(new), json.dumps(new))


def _leave(connection: sqlite3.Connection, timeline: int, old: _BatchPart, new: _BatchPart) -> None:
    """Remove messages from their places when they first change.

    New ones go first, because on a short timeline all messages are new.
    """
    left = new.size and new.size - connection.execute(_LEAVE_FRESH, (timeline, new.text)).rowcount
    for count, text in ((left, new.text), (old.size, old.text)):
        if count:
            _expect(connection.execute(_LEAVE_PLACES, (timeline, text)), count)


def _expect(cursor: sqlite3.Cursor, rows: int) -> None:
    if cursor.rowcount != rows:
        raise sqlite3.IntegrityError(f"{cursor.rowcount} rows changed instead of {rows}")


def last_seq(connection: sqlite3.Connection) -> int:
    """The last number that was given to a message."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").fetchone()
    return row[0] if row else 0


def _purge(connection: sqlite3.Connection, timeline: TimelineInfo, limit: int) -> TimelineInfo | None:
    rows = connection.execute("SELECT seq, due_ms FROM messages WHERE timeline = ? LIMIT ?", (timeline.number, limit))
    places = rows.fetchall()
    for statement in (_LEAVE_FRESH, _LEAVE_PLACES):
        connection.execute(statement, (timeline.number, json.dumps(places)))
    numbers = json.dumps([seq for seq, _ in places])
    for statement in (_REMOVE_CHANGED, _REMOVE_BODIES, _REMOVE_RULES, _REMOVE_MESSAGES):
        connection.execute(statement, (numbers,))
    left = connection.execute("SELECT 1 FROM messages WHERE timeline = ? LIMIT 1", (timeline.number,)).fetchone()
    if left:
        return timeline
    connection.execute("DELETE FROM timelines WHERE number = ?", (timeline.number,))
    return None
