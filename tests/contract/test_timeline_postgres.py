"""Faults of a store on a server: many brokers at once, restarts, a newer schema."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg
import pytest
from tests.support.postgres import Postgres, behind, running_postgres

from tidemill.timelines.core.errors import StoreTooNew, StoreUnavailable
from tidemill.timelines.core.lease import Cancel, Claim, CommandOutcome, Complete
from tidemill.timelines.core.message import MessageStatus, NewMessage, Selection, TimedMessage
from tidemill.timelines.core.timeline import Create, Delete, MakeReady, Purge
from tidemill.timelines.postgres import PostgresStore, open_store, sort, writes
from tidemill.timelines.postgres.store import PLANNING

NOW = 1_000_000
WAIT_SECONDS = 30

T = TypeVar("T")


def new(name: str) -> NewMessage:
    return NewMessage(name, NOW, name.encode(), 1)


@asynccontextmanager
async def stores(url: str, count: int) -> AsyncIterator[list[PostgresStore]]:
    opened = await asyncio.gather(*(open_store(url) for _ in range(count)))
    try:
        yield list(opened)
    finally:
        await asyncio.gather(*(store.close() for store in opened))


async def make_line(store: PostgresStore) -> None:
    await store.govern(Create("line"))
    await store.govern(MakeReady("line"))


async def test_bytes_of_all_connections_are_counted(postgres: Postgres) -> None:
    async with stores(postgres.new_database(), 1) as (store,):
        await make_line(store)
        before = store.traffic.totals()
        assert before.sent > 0
        await store.schedule("line", [NewMessage("large", NOW, bytes(50_000), 1)])
        await store.find("line", now_ms=NOW, limit=1, bodies=True)
        after = store.traffic.totals()
        assert after.sent - before.sent > 50_000
        assert after.received - before.received > 50_000


async def test_brokers_that_start_together_make_one_schema_and_one_timeline(postgres: Postgres) -> None:
    async with stores(postgres.new_database(), 4) as brokers:
        made = await asyncio.gather(*(store.govern(Create("line")) for store in brokers))
        assert len({line.number for line in made if line is not None}) == 1


async def test_two_brokers_never_lease_or_keep_a_message_twice(postgres: Postgres) -> None:
    async def broker(store: PostgresStore, name: str, won: dict[str, str]) -> None:
        while page := await store.find("line", now_ms=NOW, limit=50, bodies=True):
            free = [one for one in page if one.due_ms <= NOW]
            if not free:
                return
            claims = [Claim(one.seq, one.version, name, NOW + 1000, one.due_ms) for one in free]
            leases = await store.acquire("line", claims, now_ms=NOW)
            mine = [(one, lease) for one, lease in zip(free, leases, strict=True) if lease is not None]
            for one, _ in mine:
                assert one.id not in won
                won[one.id] = name
            outcomes = await store.settle("line", [Complete(s.seq, s.token) for _, s in mine], now_ms=NOW)
            assert set(outcomes) <= {CommandOutcome.DONE}

    async with stores(postgres.new_database(), 2) as brokers:
        await make_line(brokers[0])
        batch = [new(f"m{index}") for index in range(500)]
        kept = await asyncio.gather(*(store.schedule("line", batch) for store in brokers))
        assert sum(not answer.duplicate for answers in kept for answer in answers) == len(batch)
        assert [answer.seq for answer in kept[0]] == [answer.seq for answer in kept[1]]
        won: dict[str, str] = {}
        await asyncio.gather(*(broker(store, f"b{index}", won) for index, store in enumerate(brokers)))
        assert len(won) == len(batch)


LEASED_ANEW = """
SELECT FROM tidemill.fresh FOR UPDATE;
CREATE TEMPORARY TABLE was ON COMMIT DROP AS SELECT * FROM tidemill.changed;
DELETE FROM tidemill.changed;
INSERT INTO tidemill.changed
    SELECT seq, timeline, bucket, due_ms, scheduled_ms, holder, {token}, version + 1, attempts, row_ms FROM was;
"""


@pytest.mark.parametrize(
    ("token", "outcome", "left"),
    [("token", CommandOutcome.DONE, 0), ("version + 1", CommandOutcome.STALE, 1)],
    ids=["extended", "taken-by-another"],
)
async def test_a_completion_that_waited_goes_by_the_lease_as_it_is_then(
    postgres: Postgres, token: str, outcome: CommandOutcome, left: int
) -> None:
    url = postgres.new_database()
    async with stores(url, 1) as (store,):
        await make_line(store)
        [kept] = await store.schedule("line", [new("m")])
        [lease] = await store.acquire("line", [Claim(kept.seq, 1, "w", NOW + 1_000, NOW)], now_ms=NOW)
        assert lease is not None
        settle = store.settle("line", [Complete(kept.seq, lease.token)], now_ms=NOW)
        assert await behind(url, settle, LEASED_ANEW.format(token=token)) == [outcome]
        assert len(await store.find("line", now_ms=NOW, limit=10)) == left
        assert await store.tally("line", now_ms=NOW) == [left]


async def test_a_claim_does_not_lease_what_another_has_leased_since_it_was_seen(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with stores(url, 1) as (store,):
        await make_line(store)
        [kept] = await store.schedule("line", [new("m")])
        lease = f"INSERT INTO tidemill.changed VALUES ({kept.seq}, 1, 1, {NOW + 9}, {NOW}, 'other', 2, 2, 1, {NOW})"
        acquire = store.acquire("line", [Claim(kept.seq, 1, "w", NOW + 1_000, NOW)], now_ms=NOW)
        assert await behind(url, acquire, lease) == [None]
        [message] = await store.find("line", now_ms=NOW, limit=10)
        assert (message.holder, message.due_ms) == ("other", NOW + 9)


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (writes._TAKE, (1, [1], [NOW], ["w"], [NOW], NOW)),
        (writes._COMPLETE, (1, [1], [2], NOW)),
        (writes._CLAIMED, (1, [1])),
        (writes._OURS_TO_CHANGE, (1, [1], [NOW])),
        (writes._DELETE, (1, [1], [NOW])),
        (writes._MOVE_AWAY, (1, 1, NOW, 2, "dead")),
    ],
    ids=["first-leases", "completions", "claims", "states", "removals", "moves"],
)
async def test_messages_are_looked_up_by_their_place_also_where_there_were_none_when_the_server_counted(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, statement: str, values: tuple[object, ...]
) -> None:
    monkeypatch.setattr(sort, "FRESH_MIN", 2_000)
    monkeypatch.setattr(sort, "FRESH_PER_PAGE", 0)

    url = postgres.new_database()
    async with stores(url, 1) as (store,):
        await make_line(store)
        store.sorter.now_ms = 0
        for turn in range(2):
            await store.schedule("line", [new(f"{turn}-{index}") for index in range(2_000)])
            await store.sorter.finish()
        connection = await asyncpg.connect(url, server_settings=PLANNING)
        await connection.execute("ANALYZE tidemill.fresh, tidemill.sorted, tidemill.changed")
        plan = [row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *values)]
        await connection.close()
        at = "Index Cond: ((timeline = '1'::bigint) AND (ROW(due_ms, seq) >= ROW("
        for table in ("fresh", "sorted"):
            (place,) = [place for place, step in enumerate(plan) if f"using {table}_order on" in step]
            assert plan[place + 1].strip().startswith(at), plan
        assert not any("changed_order" in step or "_ids" in step for step in plan), plan


async def test_schedules_that_race_in_opposite_order_both_succeed(postgres: Postgres) -> None:
    async with stores(postgres.new_database(), 2) as (one, two):
        await make_line(one)
        for turn in range(20):
            batch = [new(f"{turn}-{index}") for index in range(20)]
            answers = await asyncio.gather(one.schedule("line", batch), two.schedule("line", batch[::-1]))
            assert [kept.seq for kept in answers[0]] == [kept.seq for kept in answers[1]][::-1]


async def test_a_schedule_never_slips_into_a_timeline_that_is_going(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with stores(url, 2) as (one, two):
        await make_line(one)
        batches = [one.schedule("line", [new(f"m{index}")]) for index in range(30)]
        results = await asyncio.gather(*batches, two.govern(Delete("line")), return_exceptions=True)
        assert results
        while await two.govern(Purge("line", 7)) is not None:
            pass
        connection = await asyncpg.connect(url)
        left = await connection.fetchval("SELECT count(*) FROM tidemill.fresh")
        await connection.close()
        assert left == 0


async def test_the_servers_clock_is_reported(postgres: Postgres) -> None:
    async with stores(postgres.new_database(), 1) as (store,):
        first, second = await store.catalogue(), await store.catalogue()
        assert first.now_ms is not None
        assert second.now_ms is not None
        assert 1_600_000_000_000 < first.now_ms <= second.now_ms


async def test_a_schema_from_the_future_is_refused(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with stores(url, 1):
        connection = await asyncpg.connect(url)
        await connection.execute("UPDATE tidemill.schema_version SET version = 99")
        await connection.close()
    with pytest.raises(StoreTooNew, match="99"):
        await open_store(url)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        await open_store("postgresql://missing@127.0.0.1:1/none")


async def test_an_immediate_stop_loses_nothing_acknowledged_and_the_store_comes_back() -> None:
    async def run(server: Postgres) -> None:
        async with stores(server.new_database(), 1) as (store,):
            await make_line(store)
            kept = await store.schedule("line", [new(f"m{index}") for index in range(100)])
            await asyncio.to_thread(server.stop, "immediate")
            with pytest.raises(StoreUnavailable):
                await store.schedule("line", [new("lost")])
            await asyncio.to_thread(server.start)
            found = await _until_available(store)
            assert found == [answer.seq for answer in kept]
            assert await store.settle("line", [Cancel("m1")], now_ms=NOW) == [CommandOutcome.DONE]

    with running_postgres(durable=True) as server:
        await run(server)


async def _until_available(store: PostgresStore) -> list[int]:
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while True:
        try:
            return [one.seq for one in await store.find("line", now_ms=NOW, limit=1000)]
        except StoreUnavailable:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)


VERSION_1 = """
CREATE SCHEMA tidemill;
CREATE TABLE tidemill.schema_version (version integer NOT NULL);
INSERT INTO tidemill.schema_version VALUES (1);
CREATE TABLE tidemill.timelines (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, state text NOT NULL,
    settings text NOT NULL
);
CREATE TABLE tidemill.messages (
    seq bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, timeline bigint NOT NULL, id text NOT NULL,
    due_ms bigint NOT NULL, scheduled_ms bigint NOT NULL, bucket integer NOT NULL, producer_group text NOT NULL,
    holder text, token bigint NOT NULL DEFAULT 0, version bigint NOT NULL DEFAULT 1, attempts bigint NOT NULL DEFAULT 0,
    size integer NOT NULL, key bytea
);
CREATE TABLE tidemill.bodies (seq bigint PRIMARY KEY, body bytea NOT NULL);
CREATE UNIQUE INDEX message_ids ON tidemill.messages (timeline, id);
CREATE INDEX message_order ON tidemill.messages (timeline, due_ms, seq) INCLUDE (bucket, holder);
INSERT INTO tidemill.timelines (name, state, settings) VALUES ('line', 'ready', '{}');
INSERT INTO tidemill.messages
    (timeline, id, due_ms, scheduled_ms, bucket, producer_group, holder, token, version, attempts, size, key)
VALUES
    (1, 'free', 1000000, 1000000, 7, 'g', NULL, 0, 1, 0, 4, 'k'),
    (1, 'held', 1005000, 999000, 8, 'g', 'w', 4, 4, 2, 4, NULL),
    (1, 'released', 1002000, 998000, 9, 'g', NULL, 2, 3, 1, 4, NULL);
INSERT INTO tidemill.bodies SELECT seq, convert_to(left(id, 4), 'UTF8') FROM tidemill.messages;
"""


SHAPE = """
SELECT column_name, data_type, collation_name, is_nullable FROM information_schema.columns
WHERE table_schema = 'tidemill' AND table_name = $1 ORDER BY ordinal_position
"""


INDEXES = """
SELECT indexname FROM pg_indexes WHERE schemaname = 'tidemill' AND tablename IN ('fresh', 'sorted', 'changed')
"""


# As version 2 made its tables of these: a lease was a row of its own.
VERSION_2 = (
    VERSION_1
    + """
CREATE TABLE tidemill.changed (
    seq bigint PRIMARY KEY, timeline bigint NOT NULL, bucket integer NOT NULL, due_ms bigint NOT NULL,
    scheduled_ms bigint NOT NULL, holder text, token bigint NOT NULL, version bigint NOT NULL, attempts bigint NOT NULL
);
INSERT INTO tidemill.changed
    SELECT seq, timeline, bucket, due_ms, scheduled_ms, holder, token, version, attempts
    FROM tidemill.messages WHERE version > 1;
DROP INDEX tidemill.message_order;
ALTER TABLE tidemill.messages DROP COLUMN scheduled_ms, DROP COLUMN holder, DROP COLUMN token, DROP COLUMN version,
    DROP COLUMN attempts;
CREATE INDEX changed_order ON tidemill.changed (timeline, due_ms);
CREATE INDEX message_order ON tidemill.messages (timeline, due_ms, seq) INCLUDE (bucket);
UPDATE tidemill.schema_version SET version = 2;
"""
)

# As version 3 made its tables of these: a body was in the row of its message.
VERSION_3 = (
    VERSION_2
    + """
ALTER TABLE tidemill.messages ADD COLUMN body bytea;
UPDATE tidemill.messages m SET body = b.body FROM tidemill.bodies b WHERE b.seq = m.seq;
ALTER TABLE tidemill.messages ALTER COLUMN body SET NOT NULL;
DROP TABLE tidemill.bodies;
UPDATE tidemill.schema_version SET version = 3;
"""
)


# As version 4 made its tables of these: there was a second table, and a row had an index entry for its number.
VERSION_4 = (
    VERSION_3
    + """
ALTER TABLE tidemill.changed ADD COLUMN row_ms bigint;
UPDATE tidemill.changed c SET row_ms = m.due_ms FROM tidemill.messages m WHERE m.seq = c.seq;
ALTER TABLE tidemill.changed ALTER COLUMN row_ms SET NOT NULL;
ALTER TABLE tidemill.messages ALTER COLUMN id TYPE text COLLATE "C";
ALTER TABLE tidemill.messages RENAME TO sorted;
ALTER SEQUENCE tidemill.messages_seq_seq RENAME TO sorted_seq_seq;
ALTER INDEX tidemill.messages_pkey RENAME TO sorted_pkey;
ALTER INDEX tidemill.message_ids RENAME TO sorted_ids;
ALTER INDEX tidemill.message_order RENAME TO sorted_order;
CREATE TABLE tidemill.fresh (LIKE tidemill.sorted);
CREATE UNIQUE INDEX fresh_ids ON tidemill.fresh (timeline, id);
CREATE INDEX fresh_order ON tidemill.fresh (timeline, due_ms, seq) INCLUDE (bucket);
ALTER TABLE tidemill.fresh ADD PRIMARY KEY (seq);
UPDATE tidemill.schema_version SET version = 4;
"""
)

# As version 5 made its tables of these: there were no recurring messages.
VERSION_5 = (
    VERSION_4
    + """
ALTER TABLE tidemill.sorted DROP CONSTRAINT sorted_pkey;
ALTER TABLE tidemill.fresh DROP CONSTRAINT fresh_pkey;
DROP INDEX tidemill.sorted_ids, tidemill.sorted_order, tidemill.fresh_ids, tidemill.fresh_order;
CREATE UNIQUE INDEX sorted_ids ON tidemill.sorted (id, timeline);
CREATE INDEX sorted_order ON tidemill.sorted (timeline, due_ms, seq);
CREATE UNIQUE INDEX fresh_ids ON tidemill.fresh (id, timeline);
CREATE INDEX fresh_order ON tidemill.fresh (timeline, due_ms, seq);
UPDATE tidemill.schema_version SET version = 5;
"""
)


@pytest.mark.parametrize(
    "tables",
    [VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5],
    ids=["version-1", "version-2", "version-3", "version-4", "version-5"],
)
async def test_a_database_of_an_earlier_version_is_brought_to_this_one(postgres: Postgres, tables: str) -> None:
    url = postgres.new_database()
    connection = await asyncpg.connect(url)
    await connection.execute(tables)
    await connection.close()
    async with stores(url, 2) as (store, _):
        found = await store.find("line", now_ms=NOW, limit=10, bodies=True)
        assert found == [
            TimedMessage(1, "free", NOW, NOW, 7, "g", None, 0, 1, 0, 4, b"k", b"free"),
            TimedMessage(3, "released", NOW + 2_000, NOW - 2_000, 9, "g", None, 2, 3, 1, 4, None, b"rele"),
            TimedMessage(2, "held", NOW + 5_000, NOW - 1_000, 8, "g", "w", 4, 4, 2, 4, None, b"held"),
        ]
        assert await store.tally("line", now_ms=NOW) == [3]
        assert await store.tally("line", Selection(status=MessageStatus.LEASED), now_ms=NOW) == [1]
        assert await store.settle("line", [Complete(2, 4), Complete(3, 2)], now_ms=NOW) == [
            CommandOutcome.DONE,
            CommandOutcome.STALE,
        ]
        [lease] = await store.acquire("line", [Claim(1, 1, "w", NOW + 1_000, NOW)], now_ms=NOW)
        assert lease is not None
        [again] = await store.schedule("line", [new("next")])
        assert again.seq == 4
    async with stores(url, 1) as (store,):
        assert [one.id for one in await store.find("line", now_ms=NOW, limit=10)] == ["next", "free", "released"]
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT to_regclass('tidemill.messages')") is None, "an old broker goes on"
    shapes = [await connection.fetch(SHAPE, table) for table in ("fresh", "sorted")]
    assert shapes[0] == shapes[1]
    assert sorted(row[0] for row in await connection.fetch(INDEXES)) == [
        "changed_order",
        "changed_pkey",
        "fresh_ids",
        "fresh_order",
        "sorted_ids",
        "sorted_order",
    ]
    await connection.close()
