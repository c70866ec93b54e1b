"""The logs of all partitions, each on the server that owns it.

The first log that is opened on a server brings what is known of all its partitions with it, in two questions; a broker
with many partitions does not ask for each. Before that, inserts that a broker of this name may have left behind on the
server are ended: none may come in after the end of a log was read.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from tidemill.model.topic_settings import TopicSettings
from tidemill.streams.clickhouse.committer import Committer, Run
from tidemill.streams.clickhouse.engine import Engine
from tidemill.streams.clickhouse.log import ClickHouseLog, Opened, Shared
from tidemill.streams.clickhouse.notes import NO_CUT, Note, Notes
from tidemill.streams.clickhouse.pieces import Piece, Pieces
from tidemill.streams.clickhouse.reading import Reader
from tidemill.streams.clickhouse.statements import place_of, text
from tidemill.streams.clickhouse.windows import Budget
from tidemill.streams.interface import Saved

Key = tuple[str, int]


class _Known(NamedTuple):
    """What a server had when it was first asked."""

    notes: dict[Key, Note]
    bounds: dict[Key, tuple[int, int]]


class ClickHouseStore:
    """Logs in the tables of an engine."""

    full = False  # a server without room refuses its inserts

    def __init__(self, engine: Engine, clock: Callable[[], int], run: Run) -> None:
        self.engine = engine
        self._run = run
        budget = Budget()
        servers = range(len(engine.layout.servers))
        self._shared = [
            Shared(engine, server, Committer(engine, server, clock, run), Notes(engine, server, run.prefix), budget)
            for server in servers
        ]
        self._known: list[_Known | None] = [None for _ in servers]
        self._learning = [asyncio.Lock() for _ in servers]

    @property
    def outages(self) -> int:
        """How often a server went away or came back."""
        return self.engine.outages

    @property
    def blocks(self) -> tuple[int, int]:
        """How many inserts there were, and how many rows."""
        committers = [shared.committer for shared in self._shared]
        return sum(each.blocks for each in committers), sum(each.rows for each in committers)

    async def open(
        self,
        topic: str,
        index: int,
        settings: TopicSettings,
        *,
        believe: bool = True,  # noqa: ARG002 - ClickHouse checks its own parts
    ) -> ClickHouseLog:
        """The log of a partition, with a cut that was begun finished."""
        shared = self._shared[self.engine.owner_of(index)]
        note, bounds = await self._find(shared, topic, index)
        reader = Reader(shared.engine, shared.server, topic, index)
        if note.cut_offset != NO_CUT:
            where = place_of(topic, index)
            await self.engine.command(
                f"DELETE FROM messages WHERE {where} AND batch_offset >= {note.cut_offset}", server=shared.server
            )
            bounds = await reader.bounds()
        return ClickHouseLog(shared, topic, index, settings, await _opened(reader, note, bounds, settings))

    async def has_topic(self, topic: str) -> bool:
        """Whether anything of a topic is in the tables of any server."""
        for shared in self._shared:
            await self._learn(shared)
            known = self._known[shared.server]
            if known is not None and any(name == topic for name, _ in (*known.notes, *known.bounds)):
                return True
        return False

    async def remove_topic(self, topic: str) -> None:
        """Delete all rows and notes of a topic; may be repeated."""
        where = f"topic = {text(topic)}"
        for shared in self._shared:
            for table in ("messages", "partitions"):
                await self.engine.command(f"DELETE FROM {table} WHERE {where}", server=shared.server)
            self._forget(shared.server, topic)

    async def set_aside(self, topic: str) -> None:
        """Move what nobody knows out of the way of a new topic of this name."""
        where = f"topic = {text(topic)}"
        for shared in self._shared:
            await self.engine.command(
                f"INSERT INTO orphans SELECT *, now() FROM messages WHERE {where}", server=shared.server
            )
        await self.remove_topic(topic)

    async def close(self) -> None:
        """Wait for inserts; the engine is somebody else's."""
        for shared in self._shared:
            await shared.committer.close()

    async def _find(self, shared: Shared, topic: str, index: int) -> tuple[Note, tuple[int, int] | None]:
        await self._learn(shared)
        known = self._known[shared.server]
        key = (topic, index)
        if known is not None and key in known.notes.keys() | known.bounds.keys():
            # What was learnt at the start is true until the log is opened for the first time.
            return known.notes.pop(key, Note()), known.bounds.pop(key, None)
        note = await shared.notes.read(topic, index)
        return note or Note(), await Reader(shared.engine, shared.server, topic, index).bounds()

    async def _learn(self, shared: Shared) -> None:
        async with self._learning[shared.server]:
            if self._known[shared.server] is not None:
                return
            await self._end_earlier_inserts(shared.server)
            notes = await shared.notes.read_all()
            found = await self.engine.query(
                "SELECT topic, partition, min(batch_offset) AS first, max(batch_last) + 1 AS next FROM messages "
                "GROUP BY topic, partition",
                server=shared.server,
            )
            bounds = {
                (row["topic"].decode(), row["partition"]): (row["first"], row["next"]) for row in found.to_pylist()
            }
            self._known[shared.server] = _Known(notes, bounds)

    async def _end_earlier_inserts(self, server: int) -> None:
        if self.engine.layout.embedded:
            return  # they ended with the process
        family, prefix = text(f"{self._run.family}%"), text(f"{self._run.prefix}%")
        await self.engine.command(
            f"KILL QUERY WHERE query_id LIKE {family} AND query_id NOT LIKE {prefix} SYNC", server=server
        )

    def _forget(self, server: int, topic: str) -> None:
        known = self._known[server]
        if known is not None:
            for key in [key for key in (*known.notes, *known.bounds) if key[0] == topic]:
                known.notes.pop(key, None)
                known.bounds.pop(key, None)


async def _opened(reader: Reader, note: Note, bounds: tuple[int, int] | None, settings: TopicSettings) -> Opened:
    """What a log begins with: what was noted, and what rows came after that."""
    first, end = bounds or (note.end_offset, note.end_offset)
    end = max(end, note.end_offset)
    start = note.start_offset
    if settings.deleted:
        start = max(start, first)  # rows before it have expired
    pieces = Pieces.load(note.pieces)
    if end > note.end_offset or not note.pieces:
        begin = note.end_offset if note.pieces else start
        if not note.pieces:
            pieces = Pieces([Piece(begin)])
        pieces.recount(await reader.count(begin), settings.segment_bytes)
    saved = Saved(note.end_offset, note.state_value()) if note.saved else None
    return Opened(note, start, end, pieces, saved)
