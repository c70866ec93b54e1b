"""The logs of all partitions, each on the server that owns it.

With the embedded engine, the first opened log loads the metadata of all partitions in two queries, so that many
partitions do not cost many queries. On servers other brokers may write, so loaded metadata becomes outdated. There each
log is opened under a claim (`claims`), and concurrent opens share their queries.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from tidemill.model.errors import KafkaError
from tidemill.model.topic_settings import TopicSettings
from tidemill.streams.clickhouse.batch_cache import CacheBudget
from tidemill.streams.clickhouse.batcher import Gathering
from tidemill.streams.clickhouse.claims import Claims, Wish
from tidemill.streams.clickhouse.committer import BrokerRun, Committer
from tidemill.streams.clickhouse.engine import Engine
from tidemill.streams.clickhouse.log import ClickHouseLog, OpenedRows, ServerResources
from tidemill.streams.clickhouse.partition_metadata import NO_CUT, Note, Notes
from tidemill.streams.clickhouse.reading import Reader
from tidemill.streams.clickhouse.segments import OffsetSegment, Pieces
from tidemill.streams.clickhouse.statements import PartitionRef, listed, of_topic, text
from tidemill.streams.interface import Saved


class _Known(NamedTuple):
    """The metadata of a server at the first query."""

    notes: dict[PartitionRef, Note]
    bounds: dict[PartitionRef, tuple[int, int]]


class _Found(NamedTuple):
    """The stored data of a partition, and the claim under which it may be written."""

    note: Note
    bounds: tuple[int, int] | None
    claim: int | None = None


class ClickHouseStore:
    """Logs in the tables of an engine."""

    missing: Sequence[str] = ()
    full = False  # a server without disk space rejects its inserts

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], int],
        run: BrokerRun,
        *,
        is_clock_trusted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.engine = engine
        self._clock = clock
        self._is_clock_trusted = is_clock_trusted
        budget = CacheBudget()
        servers = range(len(engine.layout.servers))
        self._shared = [
            _shared(engine, server, clock, run, budget)._replace(is_clock_trusted=is_clock_trusted)
            for server in servers
        ]
        self._known: list[_Known | None] = [None for _ in servers]
        self._learning = [asyncio.Lock() for _ in servers]
        self._claiming: list[Gathering[Wish, _Found]] = [
            Gathering(partial(self._claim, shared)) for shared in self._shared
        ]

    @property
    def outages(self) -> int:
        """How often a server became unreachable or returned."""
        return self.engine.outages

    @property
    def servers(self) -> int:
        """How many servers store the logs."""
        return len(self._shared)

    @property
    def blocks(self) -> tuple[int, int]:
        """The number of inserts, and of inserted rows."""
        committers = [shared.committer for shared in self._shared]
        return sum(each.blocks for each in committers), sum(each.rows for each in committers)

    async def open(
        self,
        topic: str,
        index: int,
        settings: TopicSettings,
        *,
        topic_id: str = "",
        leader_epoch: int = 0,
        believe: bool = True,  # noqa: ARG002 - ClickHouse checks its own parts
        given_offset: int = 0,  # noqa: ARG002 - tables record their own
    ) -> ClickHouseLog:
        """Open the log of a partition and finish an interrupted truncation. On servers this excludes other writers."""
        shared = self._shared[self.engine.owner_of(index, settings.tidemill_spread_servers)]
        place = PartitionRef(topic, index, self._known_by(topic_id))
        if self.engine.layout.embedded:
            found = await self._find(shared, place)
        else:
            found = await self._claiming[shared.server].ask(Wish(place, leader_epoch))
        note, bounds, claim = found
        reader = Reader(shared.engine, shared.server, place)
        if note.cut_offset != NO_CUT:
            where = f"{place.own_rows} AND batch_offset >= {note.cut_offset}"
            await self.engine.command(f"DELETE FROM messages WHERE {where}", server=shared.server)
            bounds = await reader.bounds()
        now_ms = self._clock() if self._is_clock_trusted() else None
        opened = await _opened(reader, note, bounds, settings, now_ms)
        return ClickHouseLog(shared, place, settings, opened._replace(epoch=leader_epoch, claim=claim))

    async def has_topic(self, topic: str) -> bool:
        """Whether the tables of any server have data of a topic."""
        for shared in self._shared:
            await self._learn(shared)
            known = self._known[shared.server]
            if known is not None and any(each.topic == topic for each in (*known.notes, *known.bounds)):
                return True
        return False

    async def remove_topic(self, topic: str, topic_id: str = "") -> None:
        """Delete all rows and notes of a topic, but not of another topic of this name. Idempotent."""
        topic_id = self._known_by(topic_id)
        where = f"topic = {text(topic)}{of_topic(topic_id)}"
        for shared in self._shared:
            if not self.engine.layout.embedded:
                await shared.claims.mark_deleted(topic, topic_id)
            for table in ("messages", "partitions"):
                await self.engine.command(f"DELETE FROM {table} WHERE {where}", server=shared.server)
            self._forget(shared.server, topic)

    async def set_aside(self, topic: str) -> None:
        """Rename unknown data of this topic name, so that a new topic does not inherit it."""
        where = f"topic = {text(topic)}"
        for shared in self._shared:
            await self.engine.command(
                f"INSERT INTO orphans SELECT *, now() FROM messages WHERE {where}", server=shared.server
            )
        await self.remove_topic(topic)

    def lost_from(self, topic: str, index: int) -> int | None:  # noqa: ARG002 - there are no files
        """Always None, because the tables cannot report lost files."""
        return None

    async def free_reserve(self) -> bool:
        """Always False, because there is no reserve."""
        return False

    async def begin_at(self, topic: str, index: int, offset: int) -> None:
        """Do nothing, because tables note their own offsets before they are assigned."""

    async def close(self) -> None:
        """Wait for running inserts. The caller closes the engine."""
        for shared in self._shared:
            await shared.committer.close()

    def _known_by(self, topic_id: str) -> str:
        """Return the topic id on shared servers only, because only their rows store it."""
        return "" if self.engine.layout.embedded else topic_id

    async def _find(self, shared: ServerResources, place: PartitionRef) -> _Found:
        """Load the data in the embedded engine, where no other broker writes."""
        await self._learn(shared)
        known = self._known[shared.server]
        if known is not None and place in known.notes.keys() | known.bounds.keys():
            # The metadata from the first query is valid until the log is opened for the first time.
            return _Found(known.notes.pop(place, Note()), known.bounds.pop(place, None))
        notes = await shared.notes.read([place])
        return _Found(notes.get(place, Note()), await Reader(shared.engine, shared.server, place).bounds())

    async def _claim(self, shared: ServerResources, wishes: Sequence[Wish]) -> list[_Found | KafkaError]:
        """Take over partitions, then load their data."""
        claims = await shared.claims.take(wishes, self._clock() // 1000)
        places = {wish.place for wish in wishes}
        notes, bounds = await shared.notes.read(places), await self._bounds(shared, places)
        return [
            _Found(notes.get(wish.place, Note()), bounds.get(wish.place._replace(topic_id="")), claim)
            if isinstance(claim, int)
            else claim
            for wish, claim in zip(wishes, claims, strict=True)
        ]

    async def _learn(self, shared: ServerResources) -> None:
        async with self._learning[shared.server]:
            if self._known[shared.server] is None:
                self._known[shared.server] = _Known(await shared.notes.read_all(), await self._bounds(shared))

    async def _bounds(
        self, shared: ServerResources, places: Iterable[PartitionRef] = ()
    ) -> dict[PartitionRef, tuple[int, int]]:
        """Return the first and end offset of the rows of these partitions, or of all."""
        chosen = listed(places)
        where = f"WHERE (topic, partition) IN ({chosen}) " if chosen else ""
        found = await self.engine.query(
            f"SELECT topic, partition, min(batch_offset) AS first, max(batch_last) + 1 AS next FROM messages {where}"
            "GROUP BY topic, partition",
            server=shared.server,
        )
        return {
            PartitionRef(row["topic"].decode(), row["partition"]): (row["first"], row["next"])
            for row in found.to_pylist()
        }

    def _forget(self, server: int, topic: str) -> None:
        known = self._known[server]
        if known is not None:
            for place in [each for each in (*known.notes, *known.bounds) if each.topic == topic]:
                known.notes.pop(place, None)
                known.bounds.pop(place, None)


def _shared(
    engine: Engine, server: int, clock: Callable[[], int], run: BrokerRun, budget: CacheBudget
) -> ServerResources:
    claims = Claims(engine, server, run.prefix)
    committer = Committer(engine, server, claims, clock, run)
    return ServerResources(engine, server, committer, Notes(engine, server, run.prefix), claims, budget)


async def _opened(
    reader: Reader, note: Note, bounds: tuple[int, int] | None, settings: TopicSettings, now_ms: int | None
) -> OpenedRows:
    """Build the initial state of a log: its note, and the rows that came after it."""
    first, end = bounds or (note.end_offset, note.end_offset)
    end = max(end, note.end_offset)
    start = note.start_offset
    if bounds is None and note.outlived(now_ms):  # the rows after the note have expired; the newest expires last
        first = end = max(end, note.given_offset)
    if settings.deleted:
        start = max(start, first)  # rows before it have expired
    pieces = Pieces.load(note.pieces)
    if end > note.end_offset or not note.pieces:
        begin = note.end_offset if note.pieces else start
        if not note.pieces:
            pieces = Pieces([OffsetSegment(begin)])
        pieces.recount(await reader.count(begin), settings.segment_bytes)
    saved = Saved(note.end_offset, note.state_value()) if note.saved else None
    return OpenedRows(note, start, end, pieces, saved)
