"""What is written to PostgreSQL. Each function runs inside a transaction of its caller.

Each batch is a few statements, however long, with arrays for its columns. Rows are locked while they are decided on,
and written under the condition that the version is still the one that was read. Claims skip what another broker has
locked: whoever is first has the lease, and nobody waits for a race that is lost.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg

from tidemill.timelines.core.changes import Change, answer_schedule, plan_commands, plan_leases, plan_schedule, targets
from tidemill.timelines.core.errors import StoreCorrupt
from tidemill.timelines.core.lease import Bury, Claim, Command, Lease, Outcome, check_claims, check_commands
from tidemill.timelines.core.message import Message, NewMessage, Scheduled, check_new
from tidemill.timelines.core.timeline import Purge, State, Step, Timeline, after
from tidemill.timelines.postgres.reads import COLUMNS, timeline_named, usable_timeline

_STATES = f"SELECT {COLUMNS} FROM tidemill.messages m WHERE m.timeline = $1"  # noqa: S608 (own text; values are bound)
_KNOWN = f"{_STATES} AND m.id = ANY($2::text[])"
_CLAIMED = f"{_STATES} AND m.seq = ANY($2::bigint[]) ORDER BY m.seq FOR UPDATE SKIP LOCKED"
_TARGETS = f"{_STATES} AND (m.seq = ANY($2::bigint[]) OR m.id = ANY($3::text[])) ORDER BY m.seq FOR UPDATE"
# Numbers are drawn in the order of the batch; rows go in by id, so that brokers never wait for each other in a circle.
_INSERT = """
WITH given AS (
    SELECT nextval(pg_get_serial_sequence('tidemill.messages', 'seq')) AS seq, g.*
    FROM unnest($2::text[], $3::bigint[], $4::integer[], $5::text[], $6::bytea[], $7::bytea[])
    AS g (id, due_ms, bucket, producer_group, key, body)
), fresh AS (
    INSERT INTO tidemill.messages (seq, timeline, id, due_ms, scheduled_ms, bucket, producer_group, size, key)
    SELECT seq, $1, id, due_ms, due_ms, bucket, producer_group, length(body), key FROM given ORDER BY id
    ON CONFLICT (timeline, id) DO NOTHING
    RETURNING id, seq
), kept AS (
    INSERT INTO tidemill.bodies SELECT seq, given.body FROM fresh JOIN given USING (seq)
)
SELECT id, seq FROM fresh
"""
_UPDATE = """
UPDATE tidemill.messages m
SET due_ms = c.due_ms, scheduled_ms = c.scheduled_ms, holder = c.holder, token = c.token, version = c.version,
    attempts = c.attempts
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[],
            $8::bigint[])
    AS c (seq, seen, due_ms, scheduled_ms, holder, token, version, attempts)
WHERE m.seq = c.seq AND m.version = c.seen
"""
_BURY = "UPDATE tidemill.messages SET timeline = $1, id = $2 WHERE seq = $3 AND version = $4"
_DELETE = """
DELETE FROM tidemill.messages m USING unnest($1::bigint[], $2::bigint[]) AS c (seq, seen)
WHERE m.seq = c.seq AND m.version = c.seen
"""
_DELETE_BODIES = "DELETE FROM tidemill.bodies WHERE seq = ANY($1::bigint[])"
_PURGE = """
WITH gone AS (
    DELETE FROM tidemill.messages
    WHERE seq = ANY(ARRAY(SELECT seq FROM tidemill.messages WHERE timeline = $1 LIMIT $2))
    RETURNING seq
)
DELETE FROM tidemill.bodies USING gone WHERE bodies.seq = gone.seq
"""
_NO_CHANGE = "FOR SHARE"
_OURS = "FOR UPDATE"


async def govern(connection: asyncpg.Connection, step: Step) -> Timeline | None:
    """Take one step in the life of a timeline."""
    before = await timeline_named(connection, step.name, _OURS)
    timeline = after(before, step, 0)
    if isinstance(step, Purge):
        return await _purge(connection, timeline, step.limit)
    if before is None:
        return await _create(connection, step, timeline)
    if timeline != before:
        await connection.execute(
            "UPDATE tidemill.timelines SET state = $1, settings = $2 WHERE number = $3",
            timeline.state.value,
            timeline.settings.to_json(),
            timeline.number,
        )
    return timeline


async def schedule(connection: asyncpg.Connection, name: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
    """Keep the messages that are not there yet."""
    timeline = await usable_timeline(connection, name, _NO_CHANGE)
    check_new(messages, timeline.settings.body_bytes_max)
    known: list[Message] = []
    _, fresh = plan_schedule(known, messages)
    kept = await connection.fetch(_INSERT, timeline.number, *_columns(fresh))
    numbers: dict[str, int] = {row[0]: row[1] for row in kept}
    if len(numbers) < len(fresh):
        others = [message.id for message in fresh if message.id not in numbers]
        known = [Message(*row) for row in await connection.fetch(_KNOWN, timeline.number, others)]
        if len(known) < len(others):
            raise asyncpg.SerializationError("a message of the same id was completed meanwhile")
    return answer_schedule(plan_schedule(known, ())[0], numbers, messages)


async def acquire(
    connection: asyncpg.Connection, name: str, claims: Sequence[Claim], now_ms: int, early_ms: int
) -> list[Lease | None]:
    """Lease the claimed messages that no other broker is at."""
    timeline = await usable_timeline(connection, name)
    check_claims(claims, now_ms, early_ms)
    rows = await connection.fetch(_CLAIMED, timeline.number, [claim.seq for claim in claims])
    leases, changes = plan_leases(name, (Message(*row) for row in rows), claims, now_ms, early_ms)
    await _write(connection, changes, {})
    return leases


async def settle(connection: asyncpg.Connection, name: str, commands: Sequence[Command], now_ms: int) -> list[Outcome]:
    """Carry out the commands that still hold, in their order."""
    timeline = await usable_timeline(connection, name)
    check_commands(commands, now_ms)
    graves = {}
    for to in sorted({command.to for command in commands if isinstance(command, Bury)}):
        graves[to] = (await usable_timeline(connection, to, _NO_CHANGE)).number
    rows = await connection.fetch(_TARGETS, timeline.number, *targets(commands))
    outcomes, changes = plan_commands(name, (Message(*row) for row in rows), commands, now_ms)
    await _write(connection, changes, graves)
    return outcomes


def _columns(messages: Sequence[NewMessage]) -> list[list[Any]]:
    rows = [(new.id, new.due_ms, new.bucket, new.group, new.key, new.body) for new in messages]
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(6)]


async def _write(connection: asyncpg.Connection, changes: Iterable[Change], graves: dict[str, int]) -> None:
    gone, kept = [], []
    for before, now, timeline in changes:
        if now is None:
            gone.append((before.seq, before.version))
            continue
        position = (now.due_ms, now.scheduled_ms, now.holder, now.token, now.version, now.attempts)
        kept.append((before.seq, before.version, *position))
        if now.id != before.id:
            await _expect(connection, 1, _BURY, graves[timeline], now.id, now.seq, before.version)
    if kept:
        await _expect(connection, len(kept), _UPDATE, *map(list, zip(*kept, strict=True)))
    if gone:
        numbers, versions = map(list, zip(*gone, strict=True))
        await _expect(connection, len(gone), _DELETE, numbers, versions)
        await connection.execute(_DELETE_BODIES, numbers)


async def _expect(connection: asyncpg.Connection, rows: int, statement: str, *values: object) -> None:
    """Run a statement on rows that are locked; another number of rows than decided on means a broken table."""
    status = await connection.execute(statement, *values)
    if int(status.rsplit(" ", 1)[1]) != rows:
        raise StoreCorrupt(f"PostgreSQL answered {status!r} where {rows} rows were decided on")


async def _create(connection: asyncpg.Connection, step: Step, timeline: Timeline) -> Timeline:
    number = await connection.fetchval(
        "INSERT INTO tidemill.timelines (name, state, settings) VALUES ($1, $2, $3)"
        " ON CONFLICT (name) DO NOTHING RETURNING number",
        timeline.name,
        timeline.state.value,
        timeline.settings.to_json(),
    )
    if number is not None:
        return Timeline(timeline.name, number, State.CREATING, timeline.settings)
    # Another broker created it in the same instant: the same question has an answer now.
    return after(await timeline_named(connection, step.name, _OURS), step, 0)


async def _purge(connection: asyncpg.Connection, timeline: Timeline, limit: int) -> Timeline | None:
    await connection.execute(_PURGE, timeline.number, limit)
    if await connection.fetchval("SELECT 1 FROM tidemill.messages WHERE timeline = $1 LIMIT 1", timeline.number):
        return timeline
    await connection.execute("DELETE FROM tidemill.timelines WHERE number = $1", timeline.number)
    return None
