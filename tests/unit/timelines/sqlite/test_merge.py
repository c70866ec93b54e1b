"""Places of new messages are merged with the others, without a visible change for readers and writers."""

import asyncio
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tidemill.timelines.core.lease import Cancel, Claim, Command, CommandOutcome, Complete, Move, Release
from tidemill.timelines.core.message import (
    FIND_LIMIT_MAX,
    MessageStatus,
    NewMessage,
    Selection,
    TimedMessage,
    TimelinePosition,
)
from tidemill.timelines.core.timeline import Create, Delete, MakeReady, Purge
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.memory import MemoryTimelineStore
from tidemill.timelines.sqlite import SqliteStore, merge, open_store
from tidemill.timelines.sqlite.tables import BLOCK

NOW = 1_000_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "STEP_PLACES", 70)
    monkeypatch.setattr(merge, "PACE", 0)


def new(name: str) -> NewMessage:
    return NewMessage(name, NOW + random.Random(name).randrange(2_000), name.encode(), len(name))


def batch(turn: int, count: int = 200) -> list[NewMessage]:
    return [new(f"{turn}-{number}") for number in range(count)]


async def made(store: TimelineStore) -> None:
    for name in ("line", "other"):
        await store.govern(Create(name))
        await store.govern(MakeReady(name))


def skip_numbers(path: Path, count: int = BLOCK) -> None:
    """As if so many messages had come and gone: the next one is in another block."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'messages'", (count,))


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def commit_until(store: SqliteStore, path: Path, left: int) -> None:
    """Commit until so many places are left in `fresh`."""
    async with asyncio.timeout(60):
        while rows(path, "fresh") > left:
            await store.govern(MakeReady("line"))


async def listed(store: TimelineStore) -> list[tuple[str, int]]:
    return [(one.id, one.due_ms) for one in await store.find("line", now_ms=NOW, limit=FIND_LIMIT_MAX)]


async def test_places_are_merged_when_there_are_enough_blocks(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"

    store = await open_store(path)
    await made(store)
    for turn in range(2):
        await store.schedule("line", batch(turn))
        await store.schedule("other", batch(turn))
        if turn == 0:
            assert (rows(path, "fresh"), rows(path, "places")) == (400, 0)  # one block: it is still written to
            skip_numbers(path)
    expected = await listed(store)
    counts = await store.tally("line", Selection(NOW, NOW + 2_000), now_ms=NOW, bars=7)
    async with asyncio.timeout(60):
        while rows(path, "fresh") > 400:
            assert await listed(store) == expected
            assert await store.tally("line", Selection(NOW, NOW + 2_000), now_ms=NOW, bars=7) == counts
            before = rows(path, "fresh")
            await store.govern(MakeReady("line"))
            assert before - rows(path, "fresh") <= merge.STEP_PLACES
    assert (rows(path, "fresh"), rows(path, "places")) == (400, 400)
    assert len(expected) == sum(counts) == 400
    assert await listed(store) == expected
    await store.close()


async def test_a_merge_ends_while_messages_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "STEP_PLACES", 1)
    monkeypatch.setattr(merge, "PACE", 2)
    path = tmp_path / "timelines.db"

    store = await open_store(path)
    await made(store)
    await store.schedule("line", batch(0, 2_000))
    skip_numbers(path)
    for turn in range(1, 14):
        await store.schedule("line", batch(turn, 200))
    assert rows(path, "places") == 2_000
    assert len(await listed(store)) == 2_000 + 13 * 200
    await store.close()


async def test_a_merge_returns_the_same_messages_as_the_memory_store(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    draw = random.Random(7)

    stores: list[TimelineStore] = [MemoryTimelineStore(), await open_store(path)]
    for store in stores:
        await made(store)
    merged = 0
    for turn in range(60):
        reported = [await one_turn(store, turn, random.Random(turn)) for store in stores]
        assert reported[0] == reported[1], f"turn {turn}"
        if draw.random() < 0.3:
            skip_numbers(path, draw.choice([BLOCK, 3 * BLOCK, 1]))
        merged += rows(path, "places") > 0
    assert merged > 30
    for store in stores:
        await store.close()


async def one_turn(store: TimelineStore, turn: int, draw: random.Random) -> list[object]:
    """Schedule, lease, settle, move and cancel some; what was answered, in words that do not name numbers."""
    now_ms = NOW + turn * 30
    scheduled = await store.schedule("line", [*batch(turn, 30), new(f"{draw.randrange(turn + 1)}-3")])
    low = NOW + draw.randrange(2_000)
    selection = Selection(
        low, low + 800, status=draw.choice([None, *MessageStatus]), buckets=draw.choice([None, ((3, 4),)])
    )
    found = await store.find("line", selection, now_ms=now_ms, limit=draw.randrange(1, 60), bodies=True)
    rest = await store.find("line", now_ms=now_ms, limit=50, after=TimelinePosition(low, 0)) if found else []
    due = await store.find("line", Selection(status=MessageStatus.AVAILABLE), now_ms=now_ms, limit=25)
    leases = await store.acquire("line", [claim(one, now_ms, draw) for one in due], now_ms=now_ms)
    held = [one for one in leases if one]
    commands: list[Command] = [
        Complete(one.seq, one.token) if draw.random() < 0.5 else Release(one.seq, one.token, 200) for one in held
    ]
    names = [f"{draw.randrange(turn + 1)}-{draw.randrange(30)}" for _ in range(12)]
    commands += [Cancel(name) if draw.random() < 0.5 else Move(name, low) for name in names]
    outcomes = await store.settle("line", commands, now_ms=now_ms)
    counts = await store.tally("line", selection._replace(status=None), now_ms=now_ms, bars=4)
    return [
        [(one.id, one.duplicate, one.due_ms, one.version) for one in scheduled],
        [plain(one) for one in found],
        [plain(one) for one in rest],
        [one and (one.token, one.attempts, one.until_ms) for one in leases],
        outcomes,
        counts,
    ]


def claim(one: TimedMessage, now_ms: int, draw: random.Random) -> Claim:
    return Claim(one.seq, one.version, "w", now_ms + 500, one.due_ms + draw.choice([0, 0, 0, 1]))


def plain(one: TimedMessage) -> TimedMessage:
    return one._replace(seq=0)


async def test_a_step_that_fails_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "timelines.db"
    step, failures = merge.Merger.step, iter([True, False, True])

    def failing(merger: merge.Merger, connection: sqlite3.Connection) -> None:
        step(merger, connection)
        if next(failures, False):
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(merge.Merger, "step", failing)

    store = await open_store(path)
    await made(store)
    await store.schedule("line", batch(0))
    skip_numbers(path)
    await store.schedule("line", batch(1))
    expected = await listed(store)
    await commit_until(store, path, 200)
    assert await listed(store) == expected
    await store.close()
    assert next(failures, None) is None
    assert rows(path, "places") == 200


async def test_a_timeline_goes_away_wherever_its_places_are(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"

    store = await open_store(path)
    await made(store)
    await store.schedule("line", batch(0))
    skip_numbers(path)
    await store.schedule("line", batch(1))
    await store.govern(MakeReady("line"))
    assert 0 < rows(path, "places") < 200
    await store.govern(Delete("line"))
    while await store.govern(Purge("line", 50)) is not None:
        pass
    await store.close()
    assert [rows(path, table) for table in ("fresh", "places", "messages")] == [0, 0, 0]


KILLED = """
import asyncio, os, sys
from pathlib import Path
from tidemill.timelines.core.timeline import MakeReady
from tidemill.timelines.sqlite import merge, open_store

merge.STEP_PLACES = 30
steps, step = iter(range(9)), merge.Merger.step

def killed(merger, connection):
    step(merger, connection)
    if next(steps) == 2:
        os.kill(os.getpid(), 9)

merge.Merger.step = killed

async def main():
    store = await open_store(Path(sys.argv[1]))
    while True:
        await store.govern(MakeReady("line"))

asyncio.run(main())
"""


async def test_a_merge_continues_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"

    store = await open_store(path)
    await made(store)
    await store.schedule("line", batch(0))
    skip_numbers(path)
    await store.schedule("line", batch(1))
    expected = await listed(store)
    await store.close()
    result = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", KILLED, str(path)], timeout=120)
    assert result.returncode == -9
    assert (rows(path, "fresh"), rows(path, "places")) == (340, 60)  # two steps are durable, the third never was
    store = await open_store(path)
    found = await listed(store)
    await commit_until(store, path, 200)
    assert await listed(store) == found
    first = await store.find("line", now_ms=NOW, limit=400)
    now_ms = NOW + 2_000
    leases = await store.acquire("line", [claim(one, now_ms, random.Random(1)) for one in first], now_ms=now_ms)
    done = [Complete(one.seq, one.token) for one in leases if one]
    assert await store.settle("line", done, now_ms=now_ms) == [CommandOutcome.DONE] * 400
    await store.close()
    assert found == expected
