"""The rows of deleted messages are removed, all of them, and no others."""

import asyncio
import random
import sqlite3
from pathlib import Path

import pytest

from tidemill.timelines.core.lease import Cancel, CommandOutcome
from tidemill.timelines.core.message import FIND_LIMIT_MAX, NewMessage
from tidemill.timelines.core.timeline import Create, MakeReady
from tidemill.timelines.sqlite import SqliteStore, open_store, sweep

MESSAGES = 4_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "GONE_MIN", 1_000)
    monkeypatch.setattr(sweep, "GONE_PER_PAGE", 0)
    monkeypatch.setattr(sweep, "FORGET_ROWS", 700)


def new(name: str) -> NewMessage:
    return NewMessage(name, random.Random(name).randrange(10**9), name.encode(), 1)


async def opened(path: Path) -> SqliteStore:
    store = await open_store(path)
    await store.govern(Create("line"))
    await store.govern(MakeReady("line"))
    return store


async def cancel(store: SqliteStore, names: list[str]) -> None:
    for first in range(0, len(names), 250):
        batch = [Cancel(name) for name in names[first : first + 250]]
        assert await store.settle("line", batch, now_ms=0) == [CommandOutcome.DONE] * len(batch)


async def ids(store: SqliteStore) -> set[str]:
    return {one.id for one in await store.find("line", now_ms=0, limit=FIND_LIMIT_MAX)}


def rows(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    connection.close()
    return int(count)


async def swept(store: SqliteStore, path: Path, left: int) -> None:
    """Commit until so many rows are left."""
    async with asyncio.timeout(60):
        while rows(path, "messages") > left or rows(path, "gone") >= sweep.GONE_MIN:
            await store.govern(MakeReady("line"))


async def test_rows_are_deleted_when_enough_messages_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    names = [f"m{number}" for number in range(MESSAGES)]
    gone = random.Random(5).sample(names, 3 * MESSAGES // 4)

    store = await opened(path)
    await store.schedule("line", [new(name) for name in names])
    await cancel(store, gone[:900])
    assert rows(path, "messages") == MESSAGES
    await cancel(store, gone[900:])
    await swept(store, path, MESSAGES - len(gone) + sweep.GONE_MIN)
    assert await ids(store) == set(names) - set(gone)
    await store.close()
    assert rows(path, "fresh") == MESSAGES - len(gone)


async def test_an_id_can_be_given_again_before_its_row_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    names = [f"m{number}" for number in range(2_000)]

    store = await opened(path)
    await store.schedule("line", [new(name) for name in names])
    await cancel(store, names[:900])
    first = await store.schedule("line", [new(name) for name in names[:900]])
    assert not any(one.duplicate for one in first)
    await cancel(store, names[900:])
    await swept(store, path, 900 + sweep.GONE_MIN)
    assert await ids(store) == set(names[:900])
    await store.close()


async def test_a_sweep_continues_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    names = [f"m{number}" for number in range(MESSAGES)]

    store = await opened(path)
    await store.schedule("line", [new(name) for name in names])
    await cancel(store, names[:3_000])
    await store.close()
    assert rows(path, "messages") > MESSAGES - 3_000
    store = await opened(path)
    await swept(store, path, MESSAGES - 3_000 + sweep.GONE_MIN)
    assert await ids(store) == set(names[3_000:])
    await store.close()


async def test_a_step_that_fails_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "timelines.db"
    names = [f"m{number}" for number in range(MESSAGES)]
    step, failures = sweep.Sweeper.step, iter([True, False, True, False, False])

    def failing(sweeper: sweep.Sweeper, connection: sqlite3.Connection) -> None:
        step(sweeper, connection)
        if next(failures, False):
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(sweep.Sweeper, "step", failing)

    store = await opened(path)
    await store.schedule("line", [new(name) for name in names])
    await cancel(store, names[:2_000])
    await swept(store, path, 2_000 + sweep.GONE_MIN)
    assert await ids(store) == set(names[2_000:])
    await store.close()
    assert next(failures, None) is None
    assert rows(path, "messages") == rows(path, "fresh") + rows(path, "gone")
