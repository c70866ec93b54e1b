"""Messages that are rewritten in the order of the timeline, on a real PostgreSQL, while others use them."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg
import pytest
from tests.support.postgres import Postgres, behind, running_postgres

from tidemill.timelines.core.errors import StoreUnavailable
from tidemill.timelines.core.lease import Cancel, Claim, Command, CommandOutcome, Complete, Move
from tidemill.timelines.core.message import NewMessage, Selection, TimedMessage
from tidemill.timelines.core.timeline import Create, Delete, MakeReady, Purge
from tidemill.timelines.postgres import PostgresStore, open_store, sort

NOW = 1_000_000
FAR = NOW + sort.NEAR_MS + 1
WAIT_SECONDS = 30

T = TypeVar("T")


def new(name: str, due_ms: int) -> NewMessage:
    return NewMessage(name, due_ms, name.encode(), 1)


@asynccontextmanager
async def lines(url: str, count: int = 1) -> AsyncIterator[list[PostgresStore]]:
    """Brokers that share a timeline, and know what time it is."""
    opened = await asyncio.gather(*(open_store(url) for _ in range(count)))
    try:
        await opened[0].govern(Create("line"))
        await opened[0].govern(MakeReady("line"))
        for store in opened:
            store.sorter.now_ms = NOW
        yield list(opened)
    finally:
        await asyncio.gather(*(store.close() for store in opened))


@pytest.fixture
def sorts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass begins with each message."""
    for name, value in {"FRESH_MIN": 1, "FRESH_PER_PAGE": 0, "STEP_ROWS": 7}.items():
        monkeypatch.setattr(sort, name, value)


async def asked(url: str, question: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(question))
    finally:
        await connection.close()


async def listed(store: PostgresStore) -> list[TimedMessage]:
    return await store.find("line", now_ms=NOW, limit=1_000, bodies=True)


@pytest.mark.usefixtures("sorts_soon")
async def test_rows_lie_in_the_order_of_the_timeline_afterwards(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with lines(url) as (store,):
        draw = random.Random(1)
        batch = [new(f"m{index}", draw.randrange(FAR, FAR + 10_000)) for index in range(100)]
        await store.schedule("line", batch)
        before = await listed(store)
        await store.sorter.finish()
        rows = await asked(url, "SELECT due_ms FROM tidemill.sorted ORDER BY ctid")
        assert [due_ms for (due_ms,) in rows] == sorted(one.due_ms for one in batch)
        assert await asked(url, "SELECT FROM tidemill.fresh") == []
        assert await listed(store) == before


@pytest.mark.usefixtures("sorts_soon")
async def test_messages_that_may_be_wanted_now_are_left_alone(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with lines(url) as (store,):
        store.sorter.now_ms = None
        await store.schedule("line", [new("moved", FAR + 1)])
        assert await store.settle("line", [Move("moved", NOW)], now_ms=NOW) == [CommandOutcome.DONE]
        store.sorter.now_ms = NOW
        await store.schedule("line", [new("near", FAR - 1), new("far", FAR)])
        await store.sorter.finish()
        assert await asked(url, "SELECT id FROM tidemill.fresh ORDER BY id") == [("moved",), ("near",)]
        assert [one.id for one in await listed(store)] == ["moved", "near", "far"]


async def test_sorting_waits_for_enough_rows_or_a_known_time(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sort, "FRESH_MIN", 3)
    monkeypatch.setattr(sort, "FRESH_PER_PAGE", 0)

    async def sorted_rows(url: str, store: PostgresStore, names: str) -> int:
        await store.schedule("line", [new(name, FAR) for name in names])
        await store.sorter.finish()
        return len(await asked(url, "SELECT FROM tidemill.sorted"))

    url = postgres.new_database()
    async with lines(url) as (store,):
        assert await sorted_rows(url, store, "ab") == 0
        assert await sorted_rows(url, store, "c") == 3
        store.sorter.now_ms = None
        assert await sorted_rows(url, store, "defg") == 3
        await store.catalogue()
        assert store.sorter.now_ms is not None


async def while_sorted(url: str, call: Awaitable[T]) -> T:
    """The answer to a call that has to wait for messages which another broker is just sorting."""
    return await behind(url, call, sort._STEP, 1, 0, 0, 1_000)


async def test_a_message_is_cancelled_or_moved_that_was_being_sorted(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with lines(url) as (store,):
        await store.schedule("line", [new("a", FAR), new("b", FAR)])
        commands: list[Command] = [Cancel("a"), Move("b", FAR + 5)]
        assert await while_sorted(url, store.settle("line", commands, now_ms=NOW)) == [CommandOutcome.DONE] * 2
        assert [(one.id, one.due_ms) for one in await listed(store)] == [("b", FAR + 5)]
        assert await store.tally("line", now_ms=NOW) == [1]


async def test_a_message_that_was_being_sorted_is_not_kept_twice(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with lines(url) as (store,):
        [kept] = await store.schedule("line", [new("a", FAR)])
        again, other = await while_sorted(url, store.schedule("line", [new("a", FAR + 1), new("b", FAR + 1)]))
        assert (again.seq, again.due_ms, again.duplicate) == (kept.seq, FAR, True)
        assert not other.duplicate
        assert [one.id for one in await listed(store)] == ["a", "b"]
        [third] = await store.schedule("line", [new("a", FAR + 2)])
        assert (third.seq, third.duplicate) == (kept.seq, True)


@pytest.mark.usefixtures("sorts_soon")
async def test_brokers_lose_nothing_and_double_nothing_while_one_sorts(postgres: Postgres) -> None:
    """Clocks of brokers that are wrong let them lease what is being sorted: a lease may fail then, but no message."""
    seed = random.randrange(10**6)
    print("seed", seed)
    names = [f"m{index}" for index in range(400)]

    async def schedules(store: PostgresStore, draw: random.Random) -> None:
        mine = draw.sample(names, len(names))
        while mine:
            batch, mine = mine[:20], mine[20:]
            await store.schedule("line", [new(name, FAR + draw.randrange(1_000)) for name in batch])

    async def works(store: PostgresStore, who: str, done: list[str], scheduled: asyncio.Event) -> None:
        while True:
            last = scheduled.is_set()
            page = await store.find("line", Selection(), now_ms=NOW, limit=30)
            if not page and last:
                return
            claims = [Claim(one.seq, one.version, who, FAR + 10_000, one.due_ms) for one in page]
            leases = await store.acquire("line", claims, now_ms=FAR + 1_000)
            held = {lease.seq: lease for lease in leases if lease is not None}
            mine = [one for one in page if one.seq in held]
            commands = [Complete(one.seq, held[one.seq].token) for one in mine]
            assert await store.settle("line", commands, now_ms=FAR + 1_000) == [CommandOutcome.DONE] * len(mine)
            done += [one.id for one in mine]

    draw = random.Random(seed)
    done: list[str] = []
    scheduled = asyncio.Event()
    async with lines(postgres.new_database(), 2) as brokers:
        workers = [asyncio.ensure_future(works(one, f"w{n}", done, scheduled)) for n, one in enumerate(brokers)]
        await schedules(brokers[0], draw)
        scheduled.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*workers)
        assert sorted(done) == sorted(names)
        assert await brokers[1].tally("line", now_ms=NOW) == [0]


@pytest.mark.usefixtures("sorts_soon")
async def test_a_pass_that_is_cut_off_loses_nothing(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with lines(url) as (store,):
        await store.schedule("line", [new(f"m{index}", FAR + index) for index in range(200)])
    moved = len(await asked(url, "SELECT FROM tidemill.sorted"))
    async with lines(url) as (store,):
        assert moved < len(await listed(store)) == 200
        await store.schedule("line", [new("one more", FAR)])
        await store.sorter.finish()
        assert len(await asked(url, "SELECT FROM tidemill.sorted")) == 201


@pytest.mark.usefixtures("sorts_soon")
async def test_a_server_that_is_stopped_hard_in_the_middle_of_a_pass_has_every_message_once() -> None:
    async def schedules(store: PostgresStore, kept: list[str]) -> None:
        for turn in range(10**6):
            names = [f"{turn}-{index}" for index in range(20)]
            await store.schedule("line", [new(name, FAR + index * 97 % 20) for index, name in enumerate(names)])
            kept += names

    async def run(server: Postgres) -> None:
        url = server.new_database()
        kept: list[str] = []
        async with lines(url) as (store,):
            task = asyncio.ensure_future(schedules(store, kept))
            while not await asked(url, "SELECT FROM tidemill.sorted LIMIT 1") or len(kept) < 200:
                pass
            await asyncio.to_thread(server.stop, "immediate")
            with pytest.raises(StoreUnavailable):
                await task
        await asyncio.to_thread(server.start)
        rows = await asked(url, "SELECT id FROM tidemill.fresh UNION ALL SELECT id FROM tidemill.sorted")
        found = [one for (one,) in rows]
        assert len(found) == len(set(found))
        assert set(kept) <= set(found)
        async with lines(url) as (store,):
            assert await store.tally("line", now_ms=NOW) == [len(found)]

    with running_postgres(durable=True) as server:
        await run(server)


@pytest.mark.usefixtures("sorts_soon")
async def test_a_sorted_timeline_is_purged_as_a_whole(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with lines(url) as (store,):
        for index in range(30):
            await store.schedule("line", [new(f"m{index}", FAR if index % 2 else NOW)])
            await store.sorter.finish()
        [one, *_] = await listed(store)
        await store.acquire("line", [Claim(one.seq, one.version, "w", NOW + 9, one.due_ms)], now_ms=NOW)
        await store.govern(Delete("line"))
        while await store.govern(Purge("line", 7)) is not None:
            pass
        for table in ("fresh", "sorted", "changed"):
            assert await asked(url, f"SELECT FROM tidemill.{table}") == []
