"""Files of earlier versions (written out from files that those versions made) are brought to this one."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.timelines.core.lease import Cancel, CommandOutcome, Complete
from tidemill.timelines.core.message import MessageStatus, NewMessage, Selection, TimedMessage
from tidemill.timelines.core.timeline import Purge
from tidemill.timelines.sqlite import SqliteStore, open_store, upgrade
from tidemill.timelines.sqlite.tables import INLINE_BYTES_MAX, VERSION

FILES = Path(__file__).parent
NOW = 1_000_020
LAST_SEQ = 17
# As the earlier versions showed them, but for the bodies: id, seq, due, scheduled, holder, token, version, attempts.
LINE = [
    ("empty", 9, 1_000_001, 1_000_001, None, 0, 1, 0),
    ("large", 10, 1_000_002, 1_000_002, None, 0, 1, 0),
    ("expired", 3, 1_000_010, 1_000_000, "w", 2, 2, 1),
    ("released", 4, 1_000_300, 1_000_000, None, 2, 3, 1),
    ("later", 1, 1_000_500, 1_000_500, None, 0, 1, 0),
    ("moved", 5, 1_000_700, 1_000_700, None, 0, 2, 0),
    ("ä '\"", 8, 1_000_900, 1_000_900, None, 0, 1, 0),
    ("large-leased", 11, 1_004_000, 1_000_000, "w", 2, 2, 1),
    ("leased", 2, 1_005_000, 1_000_000, "w", 2, 2, 1),
]
BODIES = {"empty": b"", "large": bytes(600), "large-leased": b"x" * 600}


@pytest.fixture(params=[1, 2, 3, 4])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "timelines.db"
    connection = sqlite3.connect(path)
    connection.executescript((FILES / f"version-{request.param}.sql").read_text())
    connection.close()
    return path


async def check(path: Path) -> None:
    store = await open_store(path)
    try:
        await everything_is_there(store)
        await everything_can_go_on(store)
    finally:
        await store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    expected = {"timelines", "messages", "fresh", "places", "changed", "gone", "bodies", "recurring", "sqlite_sequence"}
    assert tables == expected
    assert connection.execute(
        "SELECT count(*) FROM bodies WHERE length(body) <= ?", (INLINE_BYTES_MAX,)
    ).fetchone() == (0,)
    connection.close()


async def everything_is_there(store: SqliteStore) -> None:
    found = await store.find("line", now_ms=NOW, limit=99, bodies=True)
    assert [reported(one) for one in found] == LINE
    assert {one.id: one.body for one in found} == {one.id: BODIES.get(one.id, one.id.encode()) for one in found}
    later = next(one for one in found if one.id == "later")
    assert (later.group, later.key, later.bucket) == ("g", b"\x00k", 7)
    (dead,) = await store.find("dead", now_ms=NOW, limit=99, bodies=True)
    assert reported(dead) == ("spent@line.6", 6, 1_000_020, 1_000_020, None, 2, 3, 0)
    assert dead.body == b"spent"
    counts = [await store.tally("line", Selection(status=status), now_ms=NOW) for status in MessageStatus]
    assert counts == [[4], [3], [2]]  # waiting, available, leased


async def everything_can_go_on(store: SqliteStore) -> None:
    assert await store.settle("line", [Complete(2, 2), Complete(3, 2)], now_ms=NOW) == [
        CommandOutcome.DONE,
        CommandOutcome.STALE,
    ]
    assert await store.settle("line", [Cancel("later", "g"), Cancel("large")], now_ms=NOW) == [CommandOutcome.DONE] * 2
    again, fresh = await store.schedule("line", [new("moved"), new("later")])
    assert (again.duplicate, again.seq) == (True, 5)
    assert (fresh.duplicate, fresh.seq) == (False, LAST_SEQ + 1)
    assert [one.id for one in await store.find("line", Selection(ids=("later",)), now_ms=NOW, limit=9)] == ["later"]
    assert await store.govern(Purge("going", 3)) is not None
    assert await store.govern(Purge("going", 3)) is None


def new(name: str) -> NewMessage:
    return NewMessage(name, NOW, b"", 1)


def reported(one: TimedMessage) -> tuple[object, ...]:
    return (one.id, one.seq, one.due_ms, one.scheduled_ms, one.holder, one.token, one.version, one.attempts)


async def test_an_old_file_is_brought_to_this_version(old: Path) -> None:
    await check(old)


async def test_an_upgrade_moves_messages_in_steps(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "STEP_MESSAGES", 2)
    await check(old)


KILLED = """
import asyncio, os, sys
from pathlib import Path
from tidemill.timelines.sqlite import open_store, upgrade

upgrade.STEP_MESSAGES = 3
steps, step = iter(range(9)), upgrade._step

def killed(connection):
    moved = step(connection)
    if next(steps) == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
    return moved

upgrade._step = killed
asyncio.run(open_store(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("old", [1, 2], indirect=True)
async def test_an_upgrade_continues_after_a_kill(old: Path) -> None:
    # In the middle of the first step, and of the third: of what is then left.
    for step in (0, 2):
        command = [sys.executable, "-c", KILLED, str(old), str(step)]
        result = await asyncio.to_thread(subprocess.run, command, timeout=120)
        assert result.returncode == -9
    connection = sqlite3.connect(old)
    left = connection.execute("SELECT count(*) FROM messages_before").fetchone()[0]
    moved = connection.execute("SELECT count(*) FROM messages").fetchone()[0]
    connection.close()
    assert moved == 6
    assert moved + left == len(LINE) + 1 + 5
    await check(old)
