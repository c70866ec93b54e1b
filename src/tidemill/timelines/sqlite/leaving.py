"""A timeline file whose messages move to another store. They are read in the order of their numbers, and not changed.

The move gives the file an identity, so that the other store recognizes messages that it has already when the move is
repeated. A file with an identity is not opened as a store again: its messages would be delivered twice.
"""

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from tidemill.durable_files import sync
from tidemill.timelines.core.message import TimedMessage
from tidemill.timelines.core.timeline import TimelineInfo
from tidemill.timelines.sqlite import reads
from tidemill.timelines.sqlite.journaled import STATES
from tidemill.timelines.sqlite.writer import SqliteWriter

_IDENTITY = "CREATE TABLE move_identity (source TEXT NOT NULL) STRICT"
_PROGRESS = "CREATE TABLE move_progress (timeline TEXT PRIMARY KEY, until INTEGER NOT NULL) STRICT, WITHOUT ROWID"
_IS_MOVING = "SELECT 1 FROM sqlite_schema WHERE name = 'move_identity'"
_ALIVE = "coalesce(c.due_ms, f.due_ms, p.due_ms) NOT NULL"
# The plus keeps the planner from using the index of ids, which has another order.
_NEXT = f"""
SELECT m.seq, m.size + coalesce(length(m.key), 0) FROM {reads.STATE}
WHERE m.seq > ? AND +m.timeline = ? AND {_ALIVE} ORDER BY m.seq LIMIT ?
"""  # noqa: S608 (own text; values are bound)
_COUNT = f"SELECT count(*) FROM {reads.STATE} WHERE m.seq > ? AND +m.timeline = ? AND {_ALIVE}"  # noqa: S608 (own text; values are bound)


class LeavingFile:
    """A timeline file whose messages move to another store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = SqliteWriter(path)

    async def open(self) -> None:
        """Open the file."""
        await self._writer.start()

    async def identity(self) -> str | None:
        """The identity of the file; None while the move has not begun."""
        return await self._writer.do(_identity)

    async def begin(self, drawn: str) -> str:
        """Give the file this identity, unless it has one; its identity."""
        return await self._writer.do(lambda connection: _begin(connection, drawn))

    async def timelines(self) -> Sequence[TimelineInfo]:
        """The timelines of the file."""
        return await self._writer.do(reads.timelines)

    async def progress(self, timeline: TimelineInfo) -> int:
        """The number up to which the messages of a timeline have moved."""
        return await self._writer.do(lambda connection: _progress(connection, timeline.name))

    async def moved(self, timeline: TimelineInfo, until: int) -> None:
        """The other store has all messages of the timeline up to this number."""
        await self._writer.do(lambda connection: _moved(connection, timeline.name, until))

    async def count(self, timeline: TimelineInfo, after_seq: int) -> int:
        """The messages of a timeline after this number."""
        values = (after_seq, timeline.number)
        return await self._writer.do(lambda connection: int(connection.execute(_COUNT, values).fetchone()[0]))

    async def page(
        self, timeline: TimelineInfo, after_seq: int, *, messages_max: int, bytes_max: int
    ) -> list[TimedMessage]:
        """The next messages with their bodies; at least one, unless there are no more."""
        return await self._writer.do(
            lambda connection: _page(connection, timeline.number, after_seq, messages_max, bytes_max)
        )

    async def retire(self, name: str) -> None:
        """Close the file and give it another name."""
        await self.close()
        await asyncio.to_thread(_rename, self.path, self.path.with_name(name))

    async def close(self) -> None:
        """Close the file."""
        await self._writer.close()


def is_leaving(path: Path) -> bool:
    """Whether messages of this file have begun to move to another store. Blocks."""
    if not path.exists():
        return False
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(_IS_MOVING).fetchone() is not None
    except sqlite3.Error:  # opening it as a store reports what is wrong with it
        return False
    finally:
        connection.close()


def _identity(connection: sqlite3.Connection) -> str | None:
    if connection.execute(_IS_MOVING).fetchone() is None:
        return None
    return str(connection.execute("SELECT source FROM move_identity").fetchone()[0])


def _begin(connection: sqlite3.Connection, drawn: str) -> str:
    known = _identity(connection)
    if known is not None:
        return known
    for statement in (_IDENTITY, _PROGRESS):
        connection.execute(statement)
    connection.execute("INSERT INTO move_identity VALUES (?)", (drawn,))
    return drawn


def _progress(connection: sqlite3.Connection, name: str) -> int:
    if _identity(connection) is None:
        return 0
    row = connection.execute("SELECT until FROM move_progress WHERE timeline = ?", (name,)).fetchone()
    return row[0] if row else 0


def _moved(connection: sqlite3.Connection, name: str, until: int) -> None:
    connection.execute("INSERT OR REPLACE INTO move_progress VALUES (?, ?)", (name, until))


def _page(
    connection: sqlite3.Connection, number: int, after_seq: int, messages_max: int, bytes_max: int
) -> list[TimedMessage]:
    chosen: list[int] = []
    size = 0
    for seq, one_size in connection.execute(_NEXT, (after_seq, number, messages_max)):
        size += one_size
        if chosen and size > bytes_max:
            break
        chosen.append(seq)
    return [TimedMessage(*row) for row in connection.execute(STATES, (json.dumps(chosen),))]


def _rename(path: Path, target: Path) -> None:
    """Rename the file, durably. Its log goes first: without it the file is only a little older, and moves again."""
    for suffix in ("-wal", ""):
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.rename(target.with_name(target.name + suffix))
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    sync(path.parent)
