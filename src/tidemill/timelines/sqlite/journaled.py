"""Changes of an index, as calls and as entries of its journal. Each function runs inside the writer's transaction.

A call changes the index with the functions of `writes.py`, and adds an entry that names what it has changed. `apply`
makes the same changes from entries. It uses the same functions, so both follow one set of rules.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from tidemill.timelines.core.errors import TimelineError
from tidemill.timelines.core.journal_entries import (
    NOTHING_READ,
    AdoptedMessages,
    DoneCommands,
    GrantedClaims,
    JournalEntry,
    JournalGroup,
    JournalPosition,
    KeptTimeline,
    PurgedMessages,
    RestatedCatalogue,
    RestatedMessages,
    ScheduledMessages,
)
from tidemill.timelines.core.lease import (
    NO_MORE,
    TOOK_EFFECT,
    Claim,
    Command,
    CommandOutcome,
    Complete,
    CompleteAs,
    LeaseGrant,
    MoveToTimeline,
)
from tidemill.timelines.core.message import NewMessage, Scheduled, TimedMessage
from tidemill.timelines.core.timeline import (
    PURGE_MESSAGES_MAX,
    Delete,
    Purge,
    Step,
    TimelineInfo,
    TimelineState,
)
from tidemill.timelines.sqlite import reads, writes

AddEntry = Callable[[JournalEntry], None]

_POSITION = """
CREATE TABLE IF NOT EXISTS journal_position (
    one INTEGER PRIMARY KEY CHECK (one = 1), next_offset INTEGER NOT NULL, epoch INTEGER NOT NULL
) STRICT
"""
_ADOPTED = "CREATE TABLE IF NOT EXISTS adopted (source TEXT PRIMARY KEY, until INTEGER NOT NULL) STRICT, WITHOUT ROWID"
_ADOPT_UNTIL = """
INSERT INTO adopted VALUES (?, ?) ON CONFLICT (source) DO UPDATE SET until = max(until, excluded.until)
"""
_IDS = "SELECT seq, id FROM messages WHERE seq IN (SELECT value FROM json_each(?))"
_RAISE = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
_ALIVE_AFTER = f"""
SELECT m.seq, t.name FROM {reads.STATE} JOIN timelines t ON t.number = m.timeline
WHERE m.seq > ? AND m.seq <= ? AND coalesce(c.due_ms, f.due_ms, p.due_ms) NOT NULL ORDER BY m.seq LIMIT ?
"""  # noqa: S608 (own text; values are bound)
STATES = f"""
SELECT m.seq, m.id, coalesce(c.due_ms, f.due_ms, p.due_ms), coalesce(c.scheduled_ms, f.due_ms, p.due_ms), m.bucket,
       m.producer_group, c.holder, coalesce(c.token, 0), coalesce(c.version, 1), coalesce(c.attempts, 0), m.size, m.key,
       coalesce(m.body, (SELECT b.body FROM bodies b WHERE b.seq = m.seq), x''), {reads.RULE}
FROM {reads.STATE} WHERE m.seq IN (SELECT value FROM json_each(?)) ORDER BY m.seq
"""  # noqa: S608 (own text; values are bound)
_RECURRING = "SELECT seq FROM recurring WHERE seq IN (SELECT value FROM json_each(?))"
_NEXT = """
SELECT r.seq, c.due_ms, r.rule FROM recurring r JOIN changed c ON c.seq = r.seq
WHERE r.seq IN (SELECT value FROM json_each(?)) AND c.holder IS NULL
"""
_EXIST = "SELECT seq FROM messages WHERE seq IN (SELECT value FROM json_each(?))"


def prepare(connection: sqlite3.Connection, first_seq: int) -> None:
    """Make the table of the position, and start the numbers of messages and timelines."""
    connection.execute(_POSITION)
    connection.execute(_ADOPTED)
    for table, start in (("messages", first_seq), ("timelines", 0)):
        if connection.execute("SELECT 1 FROM sqlite_sequence WHERE name = ?", (table,)).fetchone() is None:
            connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, start))


def position(connection: sqlite3.Connection) -> JournalPosition:
    """The position in the journal up to which the index has everything."""
    row = connection.execute("SELECT next_offset, epoch FROM journal_position").fetchone()
    return JournalPosition(*row) if row else NOTHING_READ


def move_to(connection: sqlite3.Connection, until: JournalPosition) -> None:
    """Store the position."""
    connection.execute("INSERT OR REPLACE INTO journal_position VALUES (1, ?, ?)", until)


def govern(connection: sqlite3.Connection, step: Step, add: AddEntry) -> TimelineInfo | None:
    """Take one step in the lifecycle of a timeline."""
    before = reads.timeline_named(connection, step.name)
    timeline = writes.govern(connection, step)
    if isinstance(step, Purge):
        add(PurgedMessages(step.name, step.limit, timeline is None))
    elif timeline is not None and timeline != before:
        add(KeptTimeline(timeline))
    return timeline


def keep(connection: sqlite3.Connection, timeline: TimelineInfo, add: AddEntry) -> None:
    """Store a timeline as another partition has it."""
    before = reads.timeline_named(connection, timeline.name)
    if before != timeline:
        _keep(connection, timeline)
        add(KeptTimeline(timeline))


def schedule(
    connection: sqlite3.Connection, name: str, messages: Sequence[NewMessage], add: AddEntry
) -> list[Scheduled]:
    """Store the messages whose ids do not exist yet."""
    scheduled = writes.schedule(connection, name, messages)
    fresh = [(kept.seq, new) for new, kept in zip(messages, scheduled, strict=True) if not kept.duplicate]
    if fresh:
        add(ScheduledMessages(name, fresh[0][0], [new for _, new in fresh]))
    return scheduled


def acquire(
    connection: sqlite3.Connection, name: str, claims: Sequence[Claim], now_ms: int, early_ms: int, add: AddEntry
) -> list[LeaseGrant | None]:
    """Lease the claimed messages."""
    leases = writes.acquire(connection, name, claims, now_ms, early_ms)
    granted = [claim for claim, lease in zip(claims, leases, strict=True) if lease is not None]
    if granted:
        add(GrantedClaims(name, granted, now_ms, early_ms))
    return leases


def settle(
    connection: sqlite3.Connection, name: str, commands: Sequence[Command], now_ms: int, add: AddEntry
) -> list[CommandOutcome]:
    """Apply the commands that still hold."""
    completed = json.dumps([one.seq for one in commands if isinstance(one, Complete)])
    recurring = {seq for (seq,) in connection.execute(_RECURRING, (completed,))}
    outcomes = writes.settle(connection, name, commands, now_ms)
    done = [one for one, outcome in zip(commands, outcomes, strict=True) if outcome in TOOK_EFFECT]
    if recurring:
        done = _decided(connection, done, recurring)
    moved = [one.seq for one in done if isinstance(one, MoveToTimeline)]
    if moved:
        id_of = dict(connection.execute(_IDS, (json.dumps(moved),)))
        done = [one._replace(id=id_of[one.seq]) if isinstance(one, MoveToTimeline) else one for one in done]
    if done:
        add(DoneCommands(name, done, now_ms))
    return outcomes


def _decided(connection: sqlite3.Connection, done: Iterable[Command], recurring: Collection[int]) -> list[Command]:
    """The commands, with the next occurrences that completions got: other replicas need not compute the same."""
    found = connection.execute(_NEXT, (json.dumps(list(recurring)),))
    next_of = {seq: (due_ms, rule) for seq, due_ms, rule in found}
    return [
        CompleteAs(one.seq, one.token, *next_of.get(one.seq, (NO_MORE, "")))
        if isinstance(one, Complete) and one.seq in recurring
        else one
        for one in done
    ]


def adopt(
    connection: sqlite3.Connection,
    name: str,
    source: str,
    messages: Sequence[TimedMessage],
    add: AddEntry,
    *,
    only_check: bool,
) -> list[str]:
    """Store messages of another store, which have the numbers of that store, unless they were stored before.

    Returns the ids that other messages have here; nothing is stored when there are any.
    """
    timeline = reads.usable_timeline(connection, name)
    row = connection.execute("SELECT until FROM adopted WHERE source = ?", (source,)).fetchone()
    fresh = messages if row is None else [one for one in messages if one.seq > row[0]]
    taken = writes.ids_in_use(connection, timeline.number, [one.id for one in fresh])
    if taken or only_check or not fresh:
        return taken
    writes.free_ids(connection, timeline.number, [one.id for one in fresh])
    first = writes.last_seq(connection) + 1
    numbered = [one._replace(seq=first + place) for place, one in enumerate(fresh)]
    until = max(one.seq for one in fresh)
    writes.restore(connection, timeline.number, numbered)
    connection.execute(_ADOPT_UNTIL, (source, until))
    add(AdoptedMessages(source, until, name, numbered))
    return []


def restate_catalogue(connection: sqlite3.Connection, add: AddEntry) -> tuple[JournalPosition, int]:
    """Write all timelines to the journal; the position before them, and the last message that exists."""
    numbers = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    add(RestatedCatalogue(reads.timelines(connection), numbers["messages"], numbers["timelines"]))
    for source, until in connection.execute("SELECT source, until FROM adopted"):
        add(AdoptedMessages(source, until, "", ()))
    return position(connection), numbers["messages"]


def restate(connection: sqlite3.Connection, after_seq: int, last_seq: int, limit: int, add: AddEntry) -> int:
    """Write the next messages to the journal; the number of the last one, or `last_seq` at the end."""
    alive = connection.execute(_ALIVE_AFTER, (after_seq, last_seq, limit)).fetchall()
    by_timeline: dict[str, list[int]] = {}
    for seq, name in alive:
        by_timeline.setdefault(name, []).append(seq)
    for name, seqs in by_timeline.items():
        rows = connection.execute(STATES, (json.dumps(seqs),))
        add(RestatedMessages(name, [TimedMessage(*row) for row in rows]))
    return alive[-1][0] if len(alive) == limit else last_seq


def apply(connection: sqlite3.Connection, groups: Iterable[JournalGroup]) -> None:
    """Change what the entries of the journal say, and store the position behind them; not what is here already."""
    reached = position(connection).next_offset
    for entries, until in groups:
        if until.next_offset > reached:
            for entry in entries:
                _apply(connection, entry)
            move_to(connection, until)


def _apply(connection: sqlite3.Connection, entry: JournalEntry) -> None:
    match entry:
        case ScheduledMessages(name, first, new):
            timeline = reads.timeline_named(connection, name)
            # A leader that was replaced may have written an entry too late: its numbers are used already.
            if timeline is not None and first > writes.last_seq(connection):
                writes.insert_at(connection, timeline.number, first, new)
        case GrantedClaims(name, claims, now_ms, early_ms):
            with suppress(TimelineError):  # as above; an error is raised before anything is written
                writes.acquire(connection, name, claims, now_ms, early_ms)
        case DoneCommands(name, commands, now_ms):
            _free_ids(connection, commands)
            with suppress(TimelineError):
                writes.settle(connection, name, commands, now_ms)
        case KeptTimeline(timeline=kept):
            _keep(connection, kept)
        case PurgedMessages(name, limit, is_last):
            _purge(connection, name, limit, is_last=is_last)
        case RestatedCatalogue(timelines, last_seq, last_number):
            for one in timelines:
                _keep(connection, one)
            connection.execute(_RAISE, (last_seq, "messages"))
            connection.execute(_RAISE, (last_number, "timelines"))
        case RestatedMessages(name, restated):
            _restore(connection, name, restated)
        case AdoptedMessages(source, until, name, adopted):
            # As above: numbers that are used already belong to an entry that was written too late.
            if not adopted or adopted[0].seq > writes.last_seq(connection):
                _restore(connection, name, adopted)
                connection.execute(_ADOPT_UNTIL, (source, until))


def _keep(connection: sqlite3.Connection, timeline: TimelineInfo) -> None:
    connection.execute("DELETE FROM timelines WHERE name = ? AND number <> ?", (timeline.name, timeline.number))
    connection.execute(
        "INSERT OR REPLACE INTO timelines (number, name, state, settings) VALUES (?, ?, ?, ?)",
        (timeline.number, timeline.name, timeline.state.value, timeline.settings.to_json()),
    )


def _free_ids(connection: sqlite3.Connection, commands: Iterable[Command]) -> None:
    """Remove the rows of completed messages whose ids are used again: each replica removes them at its own time."""
    for one in commands:
        if isinstance(one, MoveToTimeline):
            timeline = reads.timeline_named(connection, one.to)
            if timeline is not None:
                writes.free_ids(connection, timeline.number, [one.id])


def _purge(connection: sqlite3.Connection, name: str, limit: int, *, is_last: bool) -> None:
    timeline = reads.timeline_named(connection, name)
    if timeline is None:
        return
    if timeline.state is not TimelineState.DELETING:
        writes.govern(connection, Delete(name))
    left = writes.govern(connection, Purge(name, limit))
    while is_last and left is not None:
        left = writes.govern(connection, Purge(name, PURGE_MESSAGES_MAX))
    if left is None and not is_last:  # rows of completed messages are removed at another time here
        _keep(connection, timeline)


def _restore(connection: sqlite3.Connection, name: str, messages: Sequence[TimedMessage]) -> None:
    timeline = reads.timeline_named(connection, name)
    if timeline is None:
        return
    there = {seq for (seq,) in connection.execute(_EXIST, (json.dumps([one.seq for one in messages]),))}
    missing = [one for one in messages if one.seq not in there]
    if missing:
        writes.restore(connection, timeline.number, missing)
