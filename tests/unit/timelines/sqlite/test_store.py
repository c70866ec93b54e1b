"""Faults of a store in a file: damage, other versions, other programs, power cuts and failing commits."""

import asyncio
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tidemill.timelines.core.errors import StoreCorrupt, StoreTooNew, StoreUnavailable
from tidemill.timelines.core.lease import Cancel, Claim, CommandOutcome
from tidemill.timelines.core.message import MessageStatus, NewMessage, Selection, TimelinePosition
from tidemill.timelines.core.timeline import Create, MakeReady
from tidemill.timelines.sqlite import SqliteStore, open_store, reads, writes
from tidemill.timelines.sqlite.schema import connect, prepare, translate
from tidemill.timelines.sqlite.writer import CHECKPOINT_CHANGES, SqliteWriter

NOW = 1_000_000
ONE_ROW = re.compile(
    r"\((rowid=\?|seq=\?|timeline=\? AND id=\?|(block=\? AND )?timeline=\? AND due_ms=\? AND seq=\?)\)"
)


@asynccontextmanager
async def ready_store(path: Path) -> AsyncIterator[SqliteStore]:
    """A store with one timeline, `line`."""
    store = await open_store(path)
    try:
        await store.govern(Create("line"))
        await store.govern(MakeReady("line"))
        yield store
    finally:
        await store.close()


def new(name: str, body: bytes = b"body") -> NewMessage:
    return NewMessage(name, NOW, body, 1)


async def test_messages_and_leases_survive_reopening(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "timelines.db"

    async with ready_store(path) as store:
        (kept,) = await store.schedule("line", [new("a")])
        await store.acquire("line", [Claim(kept.seq, 1, "w", NOW + 50, NOW)], now_ms=NOW)
    async with ready_store(path) as store:
        (message,) = await store.find("line", Selection(status=MessageStatus.LEASED), now_ms=NOW, limit=9, bodies=True)
        assert (message.id, message.holder, message.body) == ("a", "w", b"body")


async def test_numbers_are_not_given_again_after_reopening(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        async with ready_store(tmp_path / "timelines.db") as store:
            seen.extend(kept.seq for kept in await store.schedule("line", [new("a")]))
            assert await store.settle("line", [Cancel("a")], now_ms=NOW) == [CommandOutcome.DONE]
    assert seen == sorted(set(seen))


async def test_b13_the_settings_that_the_promises_rest_on(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"

    async with ready_store(path):
        connection = connect(path)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        connection.close()


async def test_a_damaged_file_is_reported_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    path.write_bytes(b"this is not a database, but it is long enough to look like one" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match=r"timelines\.db"):
        await open_store(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE])
def test_a_full_disk_is_called_that(code: int) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    reported = translate(error, Path("timelines.db"))
    assert isinstance(reported, StoreUnavailable)
    assert "disk is full" in str(reported)


async def test_a_file_damaged_in_the_middle_fails_with_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"

    async def read() -> None:
        async with ready_store(path) as store:
            for index in range(2000):
                await store.settle("line", [Cancel(f"m{index:05}")], now_ms=NOW)

    async with ready_store(path) as store:
        await store.schedule("line", [new(f"m{index:05}", bytes(500)) for index in range(2000)])
    content = bytearray(path.read_bytes())
    content[8 * 4096 :] = b"\xa5" * (len(content) - 8 * 4096)
    path.write_bytes(content)
    with pytest.raises((StoreCorrupt, StoreUnavailable)):
        await read()


async def test_a_file_from_the_future_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    async with ready_store(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreTooNew, match="99"):
        await open_store(path)


async def test_another_programs_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreCorrupt, match="not a timeline store"):
        await open_store(path)


async def test_a_place_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailable):
        await open_store(tmp_path / "file" / "timelines.db")


@pytest.mark.parametrize("replaced", [True, False])
async def test_a_file_that_was_removed_takes_nothing_more(tmp_path: Path, replaced: bool) -> None:
    """The open file would go on to take messages, and all of them would be gone with the process."""
    path = tmp_path / "timelines.db"

    async with ready_store(path) as store:
        await store.schedule("line", [new("a")])
        path.rename(tmp_path / "away.db")
        if replaced:
            path.write_bytes((tmp_path / "away.db").read_bytes())
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="was removed or replaced while the broker runs"):
                await store.schedule("line", [new("b")])
        (tmp_path / "away.db").rename(path)
        await store.schedule("line", [new("c")])


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "timelines.db")
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.govern(Create("line"))
    with pytest.raises(StoreUnavailable):
        await store.catalogue()


async def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"

    async with ready_store(path) as store:
        calls = [asyncio.ensure_future(store.schedule("line", [new(f"m{index}")])) for index in range(300)]
        await asyncio.sleep(0)
        await store.close()
        assert len(await asyncio.gather(*calls)) == 300
    async with ready_store(path) as store:
        assert await store.tally("line", now_ms=NOW) == [300]


async def test_one_failing_operation_of_a_group_fails_alone(tmp_path: Path) -> None:
    def bad(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO bodies VALUES (77, x'00')")
        connection.execute("INSERT INTO nowhere VALUES (1)")

    def good(number: int) -> Callable[[sqlite3.Connection], int]:
        def operation(connection: sqlite3.Connection) -> int:
            connection.execute("INSERT INTO bodies VALUES (?, x'00')", (number,))
            return number

        return operation

    writer = SqliteWriter(tmp_path / "timelines.db")
    await writer.start()
    jobs = [writer.do(job) for job in (good(1), lambda _: 1 // 0, good(2), bad, good(3))]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    rows = await writer.do(lambda connection: connection.execute("SELECT seq FROM bodies ORDER BY 1").fetchall())
    await writer.close()
    assert isinstance(results[3], StoreUnavailable)
    assert isinstance(results[1], ZeroDivisionError)
    assert [results[0], results[2], results[4]] == [1, 2, 3]
    assert rows == [(1,), (2,), (3,)]


async def test_the_log_of_changes_is_copied_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"

    async with ready_store(path) as store:
        for turn in range(5):
            names = [f"{turn}-{index}" for index in range(CHECKPOINT_CHANGES // 4)]
            await store.schedule("line", [new(name, bytes(200)) for name in names])
            await store.settle("line", [Cancel(name) for name in names], now_ms=NOW)
    assert path.stat().st_size > 100_000


class Planned:
    """A connection that writes down how SQLite goes about each statement on messages."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.steps: list[str] = []

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        if "json_each" in statement or "UNION ALL" in statement or "changed s" in statement:
            self.steps += [row[3] for row in self._connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        return self._connection.execute(statement, values)


SHORT_RANGE = "timeline=? AND due_ms>? AND due_ms<?)"


@pytest.mark.parametrize(
    ("selection", "found_by"),
    [
        (Selection(), SHORT_RANGE),
        (Selection(status=MessageStatus.AVAILABLE), SHORT_RANGE),
        (Selection(status=MessageStatus.WAITING), SHORT_RANGE),
        (Selection(status=MessageStatus.LEASED), SHORT_RANGE),
        (Selection(buckets=((1, 2),)), SHORT_RANGE),
        (Selection(ids=("a", "b")), "message_ids (timeline=? AND id=?)"),
    ],
)
async def test_reads_look_at_a_short_range_of_an_index(tmp_path: Path, selection: Selection, found_by: str) -> None:
    path = tmp_path / "timelines.db"

    async with ready_store(path) as store:
        await store.schedule("line", [new("a")])
        connection = connect(path)
        planned = Planned(connection)
        asked = cast("sqlite3.Connection", planned)
        reads.find(asked, "line", selection, NOW, 10, TimelinePosition(1, 2), bodies=True)
        reads.tally(asked, "line", selection, NOW, 5)
        connection.close()
        looks = [step for step in planned.steps if step.startswith(("SEARCH", "SCAN")) and "VIRTUAL" not in step]
        looks = [step for step in looks if step != "SCAN found" and "(subquery" not in step]  # the answers themselves
        assert sum(found_by in step for step in looks) >= 2
        assert all(found_by in step or ONE_ROW.search(step) for step in looks), planned.steps
        if selection.ids is None:  # these come in order already; a few ids may be sorted
            assert not any("TEMP B-TREE" in step for step in planned.steps)


WRITES = (
    *("_BY_SEQ", "_BY_ID", "_LEAVE_FRESH", "_LEAVE_PLACES", "_LEAVE_CHANGED", "_UNTOUCHED_OLD"),
    *(
        "_UNTOUCHED_NEW",
        "_HELD_BY_ALL",
        "_COMPLETE",
        "_COMPLETE_BODIES",
        "_MOVE_AWAY",
        "_USED",
        "_REMOVE_MESSAGES",
        "_REMOVE_CHANGED",
        "_REMOVE_BODIES",
    ),
)


@pytest.mark.parametrize("name", WRITES)
def test_no_write_walks_through_a_timeline(tmp_path: Path, name: str) -> None:
    connection = connect(tmp_path / "timelines.db")
    prepare(connection, tmp_path / "timelines.db")
    statement: str = getattr(writes, name)
    numbered = {int(number) for number in re.findall(r"\?([0-9])", statement)}
    values = [None] * max(numbered, default=statement.count("?"))
    plan = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    connection.close()
    looks = [step for step in plan if step.startswith(("SEARCH", "SCAN")) and "VIRTUAL" not in step]
    assert looks
    assert all(ONE_ROW.search(step) for step in looks), plan


KILLED = """
import asyncio, os, sys
from pathlib import Path
from typing import Any, cast
from tidemill.timelines.core.message import NewMessage
from tidemill.timelines.core.timeline import Create, MakeReady
from tidemill.timelines.sqlite import open_store

async def main():
    store = await open_store(Path(sys.argv[1]))
    await store.govern(Create("line"))
    await store.govern(MakeReady("line"))
    for batch in range(int(sys.argv[2])):
        await store.schedule("line", [NewMessage(f"{batch}-{index}", 5, b"x", 0) for index in range(20)])
        print(batch, flush=True)
    asyncio.ensure_future(store.schedule("line", [NewMessage("last", 5, b"x", 0)]))
    await asyncio.sleep(0)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


async def test_acknowledged_messages_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "timelines.db"
    command = [sys.executable, "-c", KILLED, str(path), "10"]
    result = await asyncio.to_thread(subprocess.run, command, stdout=subprocess.PIPE, text=True, timeout=120)
    assert result.returncode == -9
    assert result.stdout.split() == [str(batch) for batch in range(10)]

    async with ready_store(path) as store:
        found = {message.id for message in await store.find("line", now_ms=NOW, limit=1000)}
        assert found - {"last"} == {f"{batch}-{index}" for batch in range(10) for index in range(20)}
