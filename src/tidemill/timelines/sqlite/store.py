"""The timeline store on SQLite: writes go to the one writer, reads to threads with their own connections.

Counting a long timeline takes a while, so counts have their own reader and the prefetch never waits for them.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tidemill.timelines.core.backlog import Backlog
from tidemill.timelines.core.errors import StoreUnavailable
from tidemill.timelines.core.lease import Claim, Command, CommandOutcome, LeaseGrant
from tidemill.timelines.core.message import (
    COUNT_MAX,
    EVERYTHING,
    DueSpan,
    NewMessage,
    Scheduled,
    Selection,
    TimedMessage,
    TimelinePosition,
    check_find,
)
from tidemill.timelines.core.timeline import Catalogue, Step, TimelineInfo
from tidemill.timelines.sqlite import backlog, reads, writes
from tidemill.timelines.sqlite.schema import connect, translated
from tidemill.timelines.sqlite.writer import SqliteWriter

Result = TypeVar("Result")


class SqliteStore:
    """A TimelineStore in one file."""

    def __init__(self, writer: SqliteWriter, finder: "_SqliteReader", counter: "_SqliteReader") -> None:
        self._writer = writer
        self._finder = finder
        self._counter = counter

    async def catalogue(self) -> Catalogue:
        """All timelines."""
        return Catalogue(await self._finder.do(reads.timelines), None)

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline."""
        return await self._writer.do(lambda connection: writes.govern(connection, step))

    async def claim(self, timeline: TimelineInfo, owner: str, *, for_ms: int) -> bool:  # noqa: ARG002 - no other broker
        """Always true: one broker uses this store."""
        return True

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Store the messages."""
        return await self._writer.do(lambda connection: writes.schedule(connection, timeline, messages))

    async def find(
        self,
        timeline: str,
        selection: Selection = EVERYTHING,
        *,
        now_ms: int,
        limit: int,
        after: TimelinePosition | None = None,
        bodies: bool = False,
    ) -> list[TimedMessage]:
        """The selected messages in order."""
        check_find(selection, limit)
        return await self._finder.do(
            lambda connection: reads.find(connection, timeline, selection, now_ms, limit, after, bodies=bodies)
        )

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        """Lease the claimed messages."""
        return await self._writer.do(lambda connection: writes.acquire(connection, timeline, claims, now_ms, early_ms))

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        """Apply the commands that still hold."""
        return await self._writer.do(lambda connection: writes.settle(connection, timeline, commands, now_ms))

    async def tally(
        self,
        timeline: str,
        selection: Selection = EVERYTHING,
        *,
        now_ms: int,
        bars: int = 1,
        bar_max: int = COUNT_MAX,
    ) -> list[int]:
        """Count the selected messages by due time."""
        return await self._counter.do(
            lambda connection: reads.tally(connection, timeline, selection, now_ms, bars, bar_max)
        )

    async def span(self, timeline: str) -> DueSpan | None:
        """The due times of the first and of the last message."""
        return await self._counter.do(lambda connection: reads.span(connection, timeline))

    async def backlogs(self, *, now_ms: int) -> dict[str, Backlog]:
        """The backlog of every timeline that clients may use."""
        return await self._counter.do(lambda connection: backlog.backlogs(connection, now_ms))

    async def close(self) -> None:
        """Finish accepted operations and close the file."""
        await self._finder.close()
        await self._counter.close()
        await self._writer.close()


class _SqliteReader:
    """One thread with a connection that reads."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._executor = ThreadPoolExecutor(1, f"timelines-{name}")
        self._connection: sqlite3.Connection | None = None
        self._open = True

    async def do(self, read: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run the read in the thread, in one snapshot of the file."""
        if not self._open:
            raise StoreUnavailable("the timeline store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._run, read)

    async def close(self) -> None:
        """Wait for a running read and close the connection."""
        if self._open:
            self._open = False
            await asyncio.get_running_loop().run_in_executor(self._executor, self._disconnect)
            self._executor.shutdown()

    def _run(self, read: Callable[[sqlite3.Connection], Result]) -> Result:
        with translated(self._path):
            if self._connection is None:
                self._connection = connect(self._path)
            self._connection.execute("BEGIN")
            try:
                return read(self._connection)
            finally:
                self._connection.execute("ROLLBACK")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()


async def open_store(path: Path) -> SqliteStore:
    """Open the store, or create it; StoreCorrupt or StoreTooNew when the file is not usable."""
    await make_directory(path)
    writer = SqliteWriter(path)
    await writer.start()
    return SqliteStore(writer, *open_readers(path))


async def make_directory(path: Path) -> None:
    """Make the directory of a file, if it is missing."""
    try:
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error}") from error


def open_readers(path: Path) -> "tuple[_SqliteReader, _SqliteReader]":
    """The thread that finds messages and the one that counts them."""
    return _SqliteReader(path, "find"), _SqliteReader(path, "count")
