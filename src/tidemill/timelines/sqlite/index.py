"""The index of one partition of the journal of replicated timelines: an SQLite file that follows the journal.

The index of the leader is written by calls. Each transaction is first written to the journal, with what it changes, and
then committed here together with the position in the journal. When the journal does not answer, it is not known whether
the transaction counts: it is rolled back here, the index is *in doubt*, and accepts nothing until the journal was read
up to its end again. The indexes of followers are written by `apply` only.

The file need not survive a power failure: its position is part of every transaction, and the journal has the rest.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from tidemill.timelines.core.errors import PartitionMoved
from tidemill.timelines.core.journal_codec import encode_entry
from tidemill.timelines.core.journal_entries import JournalEntry, JournalGroup, JournalPosition
from tidemill.timelines.core.lease import Claim, Command, CommandOutcome, LeaseGrant
from tidemill.timelines.core.message import (
    NewMessage,
    Scheduled,
    Selection,
    TimedMessage,
    TimelinePosition,
    check_find,
    first_bodies,
)
from tidemill.timelines.core.timeline import Step, TimelineInfo
from tidemill.timelines.sqlite import journaled, reads
from tidemill.timelines.sqlite.store import SqliteStore, make_directory, open_readers
from tidemill.timelines.sqlite.writer import Operation, Result, SqliteWriter

AppendEntries = Callable[[Sequence[bytes], JournalPosition], Coroutine[Any, Any, JournalPosition]]
"""Appends entries behind a position; returns the position behind them when they are durable."""


class _IndexJournal:
    """Collects the entries of a transaction, and writes them before its commit. Used by the thread that writes."""

    def __init__(self, append: AppendEntries) -> None:
        self.written = False
        self.in_doubt = False
        self.is_leader = False
        self._append = append
        self._loop = asyncio.get_running_loop()
        self._entries: list[bytes] = []

    def begin(self) -> None:
        """A transaction begins."""
        self._entries.clear()
        self.written = False

    def add(self, entry: JournalEntry) -> None:
        """Write this entry with the transaction."""
        self._entries.append(encode_entry(entry))

    def check(self) -> None:
        """Reject changes while the index may lack a part of the journal."""
        if self.in_doubt or not self.is_leader:
            raise PartitionMoved("the timelines are moving to another broker; try again")

    def write(self, connection: sqlite3.Connection) -> None:
        """Append the entries to the journal, and store the position behind them."""
        if not self._entries:
            return
        self.check()
        at = journaled.position(connection)
        self.written = True
        appending = asyncio.run_coroutine_threadsafe(self._append(self._entries, at), self._loop)
        journaled.move_to(connection, appending.result())

    def failed(self) -> None:
        """The transaction was rolled back here, but the journal may have it."""
        self.in_doubt = self.in_doubt or self.written


class SqliteIndex(SqliteStore):
    """A timeline store in one file, whose changes are in a journal."""

    def __init__(self, path: Path, append: AppendEntries) -> None:
        self._journal = _IndexJournal(append)
        super().__init__(SqliteWriter(path, self._journal), *open_readers(path))

    async def open(self, first_seq: int) -> None:
        """Open the file, or create it; `first_seq` is before the numbers of its messages."""
        await self._writer.start()
        await self._writer.do(lambda connection: journaled.prepare(connection, first_seq))

    @property
    def is_serving(self) -> bool:
        """Whether calls may change the index."""
        return self._journal.is_leader and not self._journal.in_doubt

    def serve(self, *, as_leader: bool) -> None:
        """Accept calls, because the index has the whole journal; or no more."""
        self._journal.is_leader = as_leader
        if as_leader:
            self._journal.in_doubt = False

    async def position(self) -> JournalPosition:
        """The position in the journal up to which the index has everything."""
        return await self._finder.do(journaled.position)

    async def apply(self, groups: Sequence[JournalGroup]) -> None:
        """Change what the entries of the journal say, unless the index has them."""
        await self._writer.do(lambda connection: journaled.apply(connection, groups))

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline."""
        return await self._change(lambda connection: journaled.govern(connection, step, self._journal.add))

    async def keep(self, timeline: TimelineInfo) -> None:
        """Store a timeline as another partition has it."""
        await self._change(lambda connection: journaled.keep(connection, timeline, self._journal.add))

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Store the messages."""
        return await self._change(
            lambda connection: journaled.schedule(connection, timeline, messages, self._journal.add)
        )

    async def adopt(
        self, timeline: str, source: str, messages: Sequence[TimedMessage], *, only_check: bool
    ) -> list[str]:
        """Store messages of another store, unless that was done before; or return the ids that exist here."""
        return await self._change(
            lambda connection: journaled.adopt(
                connection, timeline, source, messages, self._journal.add, only_check=only_check
            )
        )

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        """Lease the claimed messages."""
        return await self._change(
            lambda connection: journaled.acquire(connection, timeline, claims, now_ms, early_ms, self._journal.add)
        )

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        """Apply the commands that still hold."""
        return await self._change(
            lambda connection: journaled.settle(connection, timeline, commands, now_ms, self._journal.add)
        )

    async def page(
        self,
        timeline: str,
        selection: Selection,
        *,
        now_ms: int,
        limit: int,
        after: TimelinePosition | None,
        bodies_bytes_max: int,
    ) -> list[TimedMessage]:
        """The selected messages in order; of their bodies only those that fit, and of the first in any case."""
        check_find(selection, limit)

        def read(connection: sqlite3.Connection) -> list[TimedMessage]:
            bodies = bodies_bytes_max > 0
            found = reads.find(connection, timeline, selection, now_ms, limit, after, bodies=bodies)
            if bodies and 0 < len(found) < limit:  # the bodies may have ended the result
                last = TimelinePosition(found[-1].due_ms, found[-1].seq)
                left = limit - len(found)
                found += reads.find(connection, timeline, selection, now_ms, left, last, bodies=False)
            return list(first_bodies(found, bodies_bytes_max))

        return await self._finder.do(read)

    async def restate_catalogue(self) -> tuple[JournalPosition, int]:
        """Write all timelines to the journal; returns the position before them, and the last message that exists."""
        return await self._change(lambda connection: journaled.restate_catalogue(connection, self._journal.add))

    async def restate(self, after_seq: int, last_seq: int, limit: int) -> int:
        """Write the next messages to the journal; returns the number of the last one, or `last_seq` at the end."""
        return await self._change(
            lambda connection: journaled.restate(connection, after_seq, last_seq, limit, self._journal.add)
        )

    async def _change(self, operation: Operation[Result]) -> Result:
        def checked(connection: sqlite3.Connection) -> Result:
            self._journal.check()
            return operation(connection)

        return await self._writer.do(checked)


async def open_index(path: Path, first_seq: int, append: AppendEntries) -> SqliteIndex:
    """Open the index of a partition, or create it."""
    await make_directory(path)
    index = SqliteIndex(path, append)
    try:
        await index.open(first_seq)
    except BaseException:
        await index.close()
        raise
    return index


def remove_index(path: Path) -> None:
    """Remove the file of an index, which is not open."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
