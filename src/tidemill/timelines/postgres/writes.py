"""Writes to PostgreSQL. Each function runs inside a transaction of its caller.

A batch of any length is a few statements, with arrays for its columns. The row of a message in `fresh` or `sorted` is
locked while the change is decided, and the state that it leaves must have the version that was read. Claims skip rows
that another broker has locked: the first broker gets the lease, and the others do not wait for a race they lost.

On a long timeline each message is on its own page, and every statement about it has to find that page. So the two steps
that every message takes, its first lease and its completion, are one statement each, which implements the rules of
`core.lease` in SQL. Everything else is read, decided and written.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from tidemill.timelines.core.changes import (
    Change,
    answer_schedule,
    plan_commands,
    plan_leases,
    plan_schedule,
    targets,
    wanted_ids,
)
from tidemill.timelines.core.errors import StoreCorrupt
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
from tidemill.timelines.postgres.reads import (
    AT,
    COLUMNS,
    RULE,
    STATES,
    STATES_AT,
    TABLES,
    timeline_named,
    usable_timeline,
)


def _places(table: str, wanted: str) -> str:
    """The physical positions (ctid) of the rows with the wanted numbers and due times."""
    row = f"SELECT m.ctid AS place FROM {table} m WHERE {AT.format('$1', 'w.row_ms', 'w.seq')} OFFSET 0"  # noqa: S608 (own text; values are bound)
    return f"ARRAY(SELECT m.place FROM {wanted} w CROSS JOIN LATERAL ({row}) m)"  # noqa: S608 (own text)


_KNOWN = f"SELECT {COLUMNS} FROM {STATES} WHERE s.timeline = $1 AND s.id = ANY($2::text[])"  # noqa: S608 (own text; values are bound)
_OURS_TO_CHANGE = f"SELECT {COLUMNS}, NULL, {RULE} FROM {STATES_AT}"  # noqa: S608 (own text; values are bound)
# "+ 0" keeps the planner from an index by that column, which it would choose for a table that was empty in its last
# statistics.
_LOCKED = """
SELECT seq, due_ms FROM (SELECT seq, due_ms FROM {} WHERE timeline + 0 = $1 AND ctid = ANY({}) ORDER BY seq {}) m
"""
_TOUCHED = "(SELECT seq, row_ms FROM tidemill.changed WHERE seq = ANY($2::bigint[]) AND timeline + 0 = $1)"
_CLAIMED = " UNION ALL ".join(
    _LOCKED.format(table, _places(table, _TOUCHED), "FOR UPDATE SKIP LOCKED") for table in TABLES
)
# A row in `changed` that the statement's snapshot does not contain still conflicts with the new one.
_FREE = f"""
SELECT * FROM (
    SELECT m.seq, m.bucket, m.due_ms FROM {{}} m
    WHERE {AT.format("$1", "g.seen_ms", "g.seq")} AND m.due_ms + 0 <= $6 FOR UPDATE SKIP LOCKED
) m
"""  # noqa: S608 (own text; values are bound)
_TAKE = f"""
INSERT INTO tidemill.changed (seq, timeline, bucket, due_ms, scheduled_ms, holder, token, version, attempts, row_ms)
SELECT m.seq, $1, m.bucket, g.until_ms, m.due_ms, g.holder, 2, 2, 1, m.due_ms
FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[]) AS g (seq, seen_ms, holder, until_ms)
CROSS JOIN LATERAL ({" UNION ALL ".join(_FREE.format(table) for table in TABLES)}) m
ON CONFLICT (seq) DO NOTHING
RETURNING seq
"""  # noqa: S608 (own text; values are bound)
# A lease that changes while this statement waits for its message has a new row then, so `gone` has one more row than
# `left_over`. Rows are locked in the order of the file, not of their numbers. So a concurrent cancellation of the same
# messages may deadlock with this, and then one of the two is run again.
_COMPLETE = f"""
WITH held AS (
    SELECT h.seq, h.row_ms FROM unnest($2::bigint[], $3::bigint[]) AS g (seq, token)
    CROSS JOIN LATERAL (
        SELECT c.seq, c.row_ms FROM tidemill.changed c
        WHERE c.seq = g.seq AND c.token = g.token AND c.timeline + 0 = $1 AND c.holder IS NOT NULL AND c.due_ms + 0 > $4
            AND (SELECT r.seq FROM tidemill.recurring r WHERE r.seq = c.seq) IS NULL
        OFFSET 0
    ) h
), new AS (
    DELETE FROM tidemill.fresh WHERE ctid = ANY({_places("tidemill.fresh", "held")}) RETURNING seq
), old AS (
    DELETE FROM tidemill.sorted WHERE ctid = ANY({_places("tidemill.sorted", "held")}) RETURNING seq
), gone AS (
    SELECT seq FROM new UNION ALL SELECT seq FROM old
), left_over AS (
    DELETE FROM tidemill.changed WHERE seq = ANY(ARRAY(SELECT seq FROM gone)) RETURNING seq
)
SELECT ARRAY(SELECT seq FROM gone), (SELECT count(*) FROM left_over)
"""  # noqa: S608 (own text; values are bound)
_NAMED = "ARRAY(SELECT ctid FROM {} WHERE timeline = $1 AND id = ANY($3::text[]))"
_TARGETS = " UNION ALL ".join(
    _LOCKED.format(table, f"{_places(table, _TOUCHED)} || {_NAMED.format(table)}", "FOR UPDATE") for table in TABLES
)
# Numbers are drawn in the order of the batch; rows are inserted by id, so that brokers never deadlock.
_INSERT = """
WITH given AS (
    SELECT nextval((SELECT pg_get_serial_sequence('tidemill.sorted', 'seq')::regclass)) AS seq, g.*
    FROM unnest($2::text[], $3::bigint[], $4::integer[], $5::text[], $6::bytea[], $7::bytea[])
    AS g (id, due_ms, bucket, producer_group, key, body)
), kept AS (
    INSERT INTO tidemill.fresh (seq, timeline, id, due_ms, bucket, producer_group, size, key, body)
    SELECT seq, $1, id, due_ms, bucket, producer_group, length(body), key, body FROM given ORDER BY id
    ON CONFLICT (timeline, id) DO NOTHING
    RETURNING id, seq
)
SELECT id, seq FROM kept
"""
# A message of the same id may have left `fresh` while the insert waited for it, so the next statement looks for it.
_SORTED = "SELECT id FROM tidemill.sorted WHERE timeline = $1 AND id = ANY($2::text[])"
_TAKE_BACK = "DELETE FROM tidemill.fresh WHERE timeline = $1 AND id = ANY($2::text[])"
_CHANGE = """
INSERT INTO tidemill.changed (seq, row_ms, timeline, bucket, due_ms, scheduled_ms, holder, token, version, attempts)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::integer[], $5::bigint[], $6::bigint[], $7::text[],
                     $8::bigint[], $9::bigint[], $10::bigint[])
"""
_LEAVE_CHANGED = "DELETE FROM tidemill.changed WHERE seq = ANY($1::bigint[]) RETURNING seq, version, row_ms"
_BOTH = """
WITH new AS ({} RETURNING seq), old AS ({} RETURNING seq)
SELECT (SELECT count(*) FROM new) + (SELECT count(*) FROM old)
"""
_MOVE_AWAY = _BOTH.format(
    *(f"UPDATE {table} m SET timeline = $4, id = $5 WHERE {AT.format('$1', '$3', '$2')}" for table in TABLES)  # noqa: S608 (own text; values are bound)
)
_USED = " UNION ALL ".join(f"SELECT id FROM {table} WHERE timeline = $1 AND id = ANY($2::text[])" for table in TABLES)  # noqa: S608 (own text; values are bound)
_GIVEN = "(SELECT * FROM unnest($2::bigint[], $3::bigint[]) AS g (seq, row_ms))"
_DELETE = _BOTH.format(*(f"DELETE FROM {table} WHERE ctid = ANY({_places(table, _GIVEN)})" for table in TABLES))  # noqa: S608 (own text; values are bound)
_ADD_RULES = "INSERT INTO tidemill.recurring SELECT * FROM unnest($1::bigint[], $2::text[])"
_REMOVE_RULES = "DELETE FROM tidemill.recurring WHERE seq = ANY($1::bigint[])"
_PURGE = """
WITH gone AS (
    DELETE FROM {0} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {0} WHERE timeline = $1 LIMIT $2)) RETURNING seq
), rules AS (
    DELETE FROM tidemill.recurring USING gone WHERE recurring.seq = gone.seq
)
DELETE FROM tidemill.changed USING gone WHERE changed.seq = gone.seq
"""
_LEFT = " OR ".join(f"EXISTS (SELECT FROM {table} WHERE timeline = $1)" for table in TABLES)
# A timeline that was removed, or has changed its state since, cannot be claimed.
_CLAIM = """
INSERT INTO tidemill.unfinished AS known (timeline, state, owner, until)
SELECT number, state, $3::text, now() + $4::bigint * interval '1 millisecond'
FROM tidemill.timelines WHERE number = $1 AND state = $2
ON CONFLICT (timeline, state) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE known.owner = excluded.owner OR known.until < now()
RETURNING owner
"""
_NO_CHANGE = "FOR SHARE"
_OURS = "FOR UPDATE"


async def govern(connection: asyncpg.Connection, step: Step) -> TimelineInfo | None:
    """Take one step in the lifecycle of a timeline."""
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


async def claim(connection: asyncpg.Connection, timeline: TimelineInfo, owner: str, for_ms: int) -> bool:
    """Whether this broker may finish the creation or deletion of the timeline."""
    taken = await connection.fetchval(_CLAIM, timeline.number, timeline.state.value, owner, for_ms)
    return taken is not None


async def schedule(connection: asyncpg.Connection, name: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
    """Store the messages whose ids do not exist yet."""
    timeline = await usable_timeline(connection, name, _NO_CHANGE)
    check_new(messages, timeline.settings.body_bytes_max)
    known: list[TimedMessage] = []
    _, fresh = plan_schedule(known, messages)
    numbers = await _insert(connection, timeline.number, fresh)
    if len(numbers) < len(fresh):
        others = [message.id for message in fresh if message.id not in numbers]
        known = [TimedMessage(*row) for row in await connection.fetch(_KNOWN, timeline.number, others)]
        if len(known) < len(others):
            raise asyncpg.SerializationError("a message with the same id was completed meanwhile")
    return answer_schedule(plan_schedule(known, ())[0], numbers, messages)


async def _insert(connection: asyncpg.Connection, timeline: int, messages: Sequence[NewMessage]) -> dict[str, int]:
    """Insert the messages whose ids do not exist yet; their numbers by id."""
    numbers: dict[str, int] = dict(await connection.fetch(_INSERT, timeline, *_columns(messages)))
    if twice := [row[0] for row in await connection.fetch(_SORTED, timeline, list(numbers))]:
        await connection.execute(_TAKE_BACK, timeline, twice)
        numbers = {one: number for one, number in numbers.items() if one not in set(twice)}
    rules = {numbers[one.id]: one.recurrence for one in messages if one.recurrence and one.id in numbers}
    await _write_rules(connection, {}, rules)
    return numbers


async def _write_rules(connection: asyncpg.Connection, before: Mapping[int, str], after: Mapping[int, str]) -> None:
    """Write the recurrences that have changed; hardly any message has one."""
    if gone := [seq for seq, rule in before.items() if rule and rule != after.get(seq)]:
        await connection.execute(_REMOVE_RULES, gone)
    if new := {seq: rule for seq, rule in after.items() if rule and rule != before.get(seq)}:
        await connection.execute(_ADD_RULES, list(new), list(new.values()))


async def acquire(
    connection: asyncpg.Connection, name: str, claims: Sequence[Claim], now_ms: int, early_ms: int
) -> list[LeaseGrant | None]:
    """Lease the claimed messages that no other broker has locked."""
    timeline = await usable_timeline(connection, name)
    check_claims(claims, now_ms, early_ms)
    taken = await _take(connection, timeline.number, claims, now_ms + early_ms)
    others = [claim for claim in claims if claim.version > 1]
    if not others:
        return [taken.pop(claim.seq, None) for claim in claims]
    locked = await connection.fetch(_CLAIMED, timeline.number, [claim.seq for claim in others])
    messages = await _states(connection, timeline.number, locked)
    leases, changes = plan_leases(name, messages, others, now_ms, early_ms)
    await _write(connection, timeline.number, changes, {})
    rest = iter(leases)
    return [next(rest) if claim.version > 1 else taken.pop(claim.seq, None) for claim in claims]


async def _take(
    connection: asyncpg.Connection, timeline: int, claims: Sequence[Claim], due_ms: int
) -> dict[int, LeaseGrant]:
    """The first leases of messages that were never leased or moved, and that are due by then."""
    first: dict[int, Claim] = {}
    for claim in claims:
        if claim.version == 1:
            first.setdefault(claim.seq, claim)
    if not first:
        return {}
    rows = ((seq, first[seq].seen_ms, first[seq].holder, first[seq].until_ms) for seq in sorted(first))
    columns = zip(*rows, strict=True)
    kept = await connection.fetch(_TAKE, timeline, *map(list, columns), due_ms)
    return {seq: LeaseGrant(seq, 2, first[seq].holder, first[seq].until_ms, 1) for (seq,) in kept}


async def settle(
    connection: asyncpg.Connection, name: str, commands: Sequence[Command], now_ms: int
) -> list[CommandOutcome]:
    """Apply the commands that still hold, in their order."""
    timeline = await usable_timeline(connection, name)
    check_commands(commands, now_ms)
    done = await _complete(connection, timeline.number, commands, now_ms)
    others = [command for command in commands if not isinstance(command, Complete) or command.seq not in done]
    rest = iter(await _decide(connection, timeline, others, now_ms) if others else ())
    return [CommandOutcome.DONE if isinstance(one, Complete) and one.seq in done else next(rest) for one in commands]


async def _complete(
    connection: asyncpg.Connection, timeline: int, commands: Sequence[Command], now_ms: int
) -> set[int]:
    """The messages that were completed; none when the batch has other commands too, which may come before."""
    held = sorted(command for command in commands if isinstance(command, Complete))
    if not held or not len({seq for seq, _ in held}) == len(held) == len(commands):
        return set()
    gone, left_over = await connection.fetchrow(_COMPLETE, timeline, *map(list, zip(*held, strict=True)), now_ms)
    if len(gone) != left_over:
        raise asyncpg.SerializationError("a lease has changed meanwhile")
    return set(gone)


async def _decide(
    connection: asyncpg.Connection, timeline: TimelineInfo, commands: Sequence[Command], now_ms: int
) -> list[CommandOutcome]:
    """Read the messages that the commands refer to, and write the changes."""
    others = {}
    used = {}
    for to, ids in wanted_ids(commands).items():
        # Nothing is scheduled there meanwhile, so the ids stay free: no index covers both tables.
        others[to] = (await usable_timeline(connection, to, _OURS if ids else _NO_CHANGE)).number
        used[to] = [one for (one,) in await connection.fetch(_USED, others[to], ids)] if ids else []
    locked = await _locked(connection, timeline.number, *targets(commands))
    messages = await _states(connection, timeline.number, locked)
    outcomes, changes = plan_commands(timeline.name, messages, commands, now_ms, used)
    await _write(connection, timeline.number, changes, others)
    return outcomes


async def _locked(
    connection: asyncpg.Connection, timeline: int, seqs: Sequence[int], ids: Sequence[str]
) -> list[asyncpg.Record]:
    """Lock messages by number, if they were leased or moved in time, and by id."""
    locked = list(await connection.fetch(_TARGETS, timeline, seqs, ids))
    if len(locked) == len(seqs) + len(ids):
        return locked
    # A missing one may have been sorted while the statement waited for it. The next statement sees its new row.
    return list(await connection.fetch(_TARGETS, timeline, seqs, ids))


async def _states(
    connection: asyncpg.Connection, timeline: int, locked: Sequence[asyncpg.Record]
) -> list[TimedMessage]:
    """Read messages after they were locked, because a statement sees a snapshot from before it waited."""
    seqs, row_ms = [seq for seq, _ in locked], [due_ms for _, due_ms in locked]
    return [TimedMessage(*row) for row in await connection.fetch(_OURS_TO_CHANGE, timeline, seqs, row_ms)]


def _columns(messages: Sequence[NewMessage]) -> list[list[Any]]:
    rows = [(new.id, new.due_ms, new.bucket, new.group, new.key, new.body) for new in messages]
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(6)]


async def _write(
    connection: asyncpg.Connection, timeline: int, changes: Iterable[Change], others: Mapping[str, int]
) -> None:
    gone, kept, dead = [], [], []
    left: dict[int, int] = {}
    row_ms: dict[int, int] = {}
    rules_before, rules_after = {}, {}
    for before, now, target in changes:
        rules_before[before.seq] = before.recurrence
        rules_after[before.seq] = "" if now is None else now.recurrence
        if before.version > 1:
            left[before.seq] = before.version
        row_ms[before.seq] = before.due_ms
        if now is None:
            gone.append(before.seq)
            continue
        place = (
            timeline if now.id == before.id else others[target],
            now.bucket,
            now.due_ms,
            now.scheduled_ms,
        )
        kept.append((now.seq, *place, now.holder, now.token, now.version, now.attempts))
        if now.id != before.id:
            dead.append((now.seq, others[target], now.id))
    await _write_rules(connection, rules_before, rules_after)
    if left:
        were = await connection.fetch(_LEAVE_CHANGED, list(left))
        if {seq: version for seq, version, _ in were} != left:
            raise StoreCorrupt("PostgreSQL has other versions of locked messages than were read; check the database")
        row_ms |= {seq: due_ms for seq, _, due_ms in were}
    if kept:
        rows = ((seq, row_ms[seq], *rest) for seq, *rest in kept)
        await connection.execute(_CHANGE, *map(list, zip(*rows, strict=True)))
    for seq, *moved in dead:
        await _expect(connection, 1, _MOVE_AWAY, timeline, seq, row_ms[seq], *moved)
    if gone:
        await _expect(connection, len(gone), _DELETE, timeline, gone, [row_ms[seq] for seq in gone])


async def _expect(connection: asyncpg.Connection, rows: int, statement: str, *values: object) -> None:
    """Run a statement on locked rows; any other number of changed rows means a damaged table."""
    count = await connection.fetchval(statement, *values)
    if count != rows:
        raise StoreCorrupt(f"PostgreSQL changed {count} locked rows instead of {rows}; check the database")


async def _create(connection: asyncpg.Connection, step: Step, timeline: TimelineInfo) -> TimelineInfo:
    number = await connection.fetchval(
        "INSERT INTO tidemill.timelines (name, state, settings) VALUES ($1, $2, $3)"
        " ON CONFLICT (name) DO NOTHING RETURNING number",
        timeline.name,
        timeline.state.value,
        timeline.settings.to_json(),
    )
    if number is not None:
        return TimelineInfo(timeline.name, number, TimelineState.CREATING, timeline.settings)
    # Another broker created it at the same instant, so it exists now.
    return after(await timeline_named(connection, step.name, _OURS), step, 0)


async def _purge(connection: asyncpg.Connection, timeline: TimelineInfo, limit: int) -> TimelineInfo | None:
    for table in TABLES:
        await connection.execute(_PURGE.format(table), timeline.number, limit)
    if await connection.fetchval(f"SELECT {_LEFT}", timeline.number):
        return timeline
    await connection.execute("DELETE FROM tidemill.timelines WHERE number = $1", timeline.number)
    return None
