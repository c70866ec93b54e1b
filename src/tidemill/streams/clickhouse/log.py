"""A StreamLog in ClickHouse rows.

Every append goes through the committer and returns when its insert is stored. So no record is acknowledged or served
that a crash could undo, and `flush` has nothing to do. A failed append has stored nothing. The newest batches stay in
memory unchanged. Older ones are built from rows, with some prefetched, because readers usually continue.

The start of the log is in its newest note. Rows below the start, and expired rows, are deleted later (`sweep`). A
truncation is noted before rows are deleted, so that the next start finishes it after a crash.

Rows expire by the server's clock, also while no broker runs. So offsets are noted before they are assigned, many at a
time, and no later broker assigns them again. While the retention time changes, new rows are kept for the longer of both
times. Invariant: of two rows, the newer one never expires first.

While this broker's clock is not trusted, new rows do not expire (`EXPIRES_UNKNOWN_S`), because an expiry computed from
a wrong time may be in the past. When the clock is trusted again, `sweep` sets an expiry that counts from then.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import structlog

from tidemill.model.errors import KafkaStorageError
from tidemill.model.topic_settings import TopicSettings
from tidemill.records.header import BatchHeader, Buffer
from tidemill.streams.clickhouse.batch_cache import BatchWindow, CacheBudget, cut
from tidemill.streams.clickhouse.claims import Claims
from tidemill.streams.clickhouse.committer import Committer
from tidemill.streams.clickhouse.engine import Engine
from tidemill.streams.clickhouse.errors import EngineError
from tidemill.streams.clickhouse.partition_metadata import FOR_EVER, NO_CUT, UNKNOWN, Note, Notes
from tidemill.streams.clickhouse.reading import Reader
from tidemill.streams.clickhouse.rewriting import Kept, Replacement
from tidemill.streams.clickhouse.rows import EXPIRES_MAX_S, EXPIRES_UNKNOWN_S, BatchRows
from tidemill.streams.clickhouse.segments import OffsetSegment, Pieces
from tidemill.streams.clickhouse.statements import PartitionRef
from tidemill.streams.core.retention import SegmentFacts
from tidemill.streams.interface import Rewritten, Saved, StoredBatch

AHEAD_BYTES = 4 * 1024 * 1024
"""How many bytes are read at once for a reader of old records."""
NEVER_INLINE = -1
GIVEN_AHEAD = 1_000_000
"""How many offsets one note reserves."""

T = TypeVar("T")
log = structlog.get_logger("tidemill.streams")


class ServerResources(NamedTuple):
    """The resources that the logs on one server share."""

    engine: Engine
    server: int
    committer: Committer
    notes: Notes
    claims: Claims
    budget: CacheBudget
    is_clock_trusted: Callable[[], bool] = lambda: True


class OpenedRows(NamedTuple):
    """The stored data of a partition, as found when it is opened."""

    note: Note
    start_offset: int
    end_offset: int
    pieces: Pieces
    saved: Saved | None
    epoch: int = 0
    claim: int | None = None


class ClickHouseLog:
    """The batches of one partition, in rows."""

    inline_bytes_max = NEVER_INLINE

    def __init__(
        self, shared: ServerResources, place: PartitionRef, settings: TopicSettings, opened: OpenedRows
    ) -> None:
        self.settings = settings
        self._shared = shared
        self._place = place
        self._where = place.own_rows
        self._reader = Reader(shared.engine, shared.server, place)
        self._start_offset = opened.start_offset
        self._end_offset = opened.end_offset
        self._pieces = opened.pieces
        self._saved = opened.saved
        self._note = opened.note
        self._epoch = opened.epoch
        self._claim = opened.claim
        self._tail = BatchWindow(next_offset=opened.end_offset)
        self._ahead = BatchWindow()
        self._changes = 0  # how often old rows were changed under a reader
        self._rows_before = opened.start_offset > 0
        self._kept_ms = opened.note.kept_ms if opened.note.kept_ms != UNKNOWN else _kept_ms(settings)
        self._noting = asyncio.Lock()
        self._has_unknown = not shared.is_clock_trusted()  # an earlier run may have left rows without an expiry
        self._closed = False

    @property
    def start_offset(self) -> int:
        """The first readable offset."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next batch."""
        return self._end_offset

    @property
    def size_bytes(self) -> int:
        """The size of all batches in bytes, as produced."""
        return self._pieces.size_bytes

    @property
    def failed(self) -> BaseException | None:
        """Always None. An unreachable server returns, so the log is never fenced."""
        return None

    @property
    def away(self) -> bool:
        """Whether the server was unreachable at the last call."""
        return self._shared.engine.is_away(self._shared.server)

    @property
    def saved(self) -> Saved | None:
        """The newest checkpoint."""
        return self._saved

    def append(
        self,
        batches: Sequence[Buffer],
        headers: Sequence[BatchHeader],  # noqa: ARG002 - required by the interface
        now_ms: int,  # noqa: ARG002 - required by the interface
    ) -> None:
        """Always raise, because an insert blocks and no batch is small enough for the event loop."""
        raise KafkaStorageError(f"{len(batches)} batches cannot be inserted on the event loop; use append_aside")

    async def append_aside(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Insert the batches, together with concurrent appends of other partitions."""
        self._check_open()
        self._shared.engine.check_reachable(self._shared.server)
        await self._give(headers[-1].next_offset, now_ms)
        expires_s = self._expires_s(now_ms)
        entries = [
            BatchRows(self._place, header, batch, expires_s, self._claim, self.settings.tidemill_spread_servers)
            for header, batch in zip(headers, batches, strict=True)
        ]
        await self._shared.committer.store(entries)
        stored = [StoredBatch(header, bytes(batch)) for header, batch in zip(headers, batches, strict=True)]
        self._tail.batches.extend(stored)
        self._shared.budget.hold(self._tail, stored)
        self._pieces.add(headers, now_ms, self.settings.segment_bytes)
        self._end_offset = self._tail.next_offset = headers[-1].next_offset

    async def flush(self) -> None:
        """Do nothing, because everything that was appended is stored."""

    async def read(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> list[Buffer]:
        """Return whole batches within the limits."""
        self._check_open()
        batches = await self._from(offset, end_offset, max_bytes)
        return cut(batches, end_offset, max_bytes, at_least_one=at_least_one)

    async def scan(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """Yield every batch from `offset` on."""
        while offset < self._end_offset:
            batches = await self._from(offset, self._end_offset, AHEAD_BYTES)
            if not batches:
                return
            for stored in batches:
                yield stored
            offset = batches[-1].header.next_offset

    async def outline(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """Yield every batch from `offset` on, without the records of data batches."""
        while offset < self._end_offset:
            batches = await self._reader.outline(offset, self._end_offset)
            if not batches:
                return
            for stored in batches:
                yield stored
            offset = batches[-1].header.next_offset

    async def before_time(self, timestamp: int) -> int:
        """Return the offset of the first row that reaches the timestamp."""
        self._check_open()
        late = [facts for facts in self.segments() if facts.largest_timestamp >= timestamp]
        if not late:
            return self._end_offset
        found = await self._reader.first_at(timestamp, max(late[0].base_offset, self._start_offset))
        return self._end_offset if found is None else min(found, self._end_offset)

    def segments(self) -> list[SegmentFacts]:
        """Return the segments, oldest first."""
        return self._pieces.facts(self._end_offset)

    async def roll(self, now_ms: int) -> None:  # noqa: ARG002 - rows store their append time
        """Start a new segment."""
        self._pieces.roll(self._end_offset)

    async def trim(self, start_offset: int, state: dict[str, Any]) -> None:
        """Note the new start. The next `sweep` deletes the rows before it."""
        self._check_open()
        start_offset = max(self._start_offset, start_offset)
        pieces = Pieces.load(self._pieces.dump())
        pieces.trim(start_offset, self._end_offset)
        await self._write_note(start_offset=start_offset, state=state, pieces=pieces)
        self._start_offset = start_offset
        self._pieces = pieces
        self._rows_before = True

    async def truncate(self, end_offset: int) -> None:
        """Note the truncation, delete the rows, and note that it is done."""
        self._check_open()
        reached = await self._reader.batch_reaching(end_offset)
        end_offset = self._end_offset if reached is None else max(reached, self._start_offset)
        await self._write_note(cut_offset=end_offset, end_offset=end_offset)
        await self._command(f"DELETE FROM messages WHERE {self._where} AND batch_offset >= {end_offset}")
        self._forget()
        begin = self._pieces.truncate(end_offset)
        self._pieces.recount(await self._reader.count(begin), self.settings.segment_bytes)
        self._end_offset = end_offset
        self._tail = BatchWindow(next_offset=end_offset)
        await self._write_note()

    async def reset(self, offset: int) -> None:
        """Note that nothing stays, delete all rows, and note that it is done."""
        self._check_open()
        pieces = Pieces([OffsetSegment(offset)])
        await self._write_note(start_offset=offset, end_offset=offset, cut_offset=0, pieces=pieces)
        await self._command(f"DELETE FROM messages WHERE {self._where}")
        self._forget()
        self._pieces = pieces
        self._start_offset = self._end_offset = offset
        self._tail = BatchWindow(next_offset=offset)
        await self._write_note()

    async def rewrite(self, base_offset: int, end_offset: int, batches: AsyncIterator[Sequence[Buffer]]) -> Rewritten:
        """Record which batches stay. Nothing is written yet."""
        kept = Kept(base_offset, end_offset)
        async for piece in batches:
            await self.aside(partial(kept.learn, piece))
        return Rewritten(base_offset, kept)

    async def swap(self, rewritten: Rewritten) -> None:
        """Change the rows of the range in place: first the marked rows, then the deleted ones."""
        self._check_open()
        kept: Kept = rewritten.content
        if not self._pieces.has(kept.base_offset, kept.end_offset):
            return
        first_rows = await self._reader.first_rows(kept.emptied) if kept.emptied else []
        for statement in Replacement(self._where, kept, first_rows).statements():
            await self._command(statement)
        self._pieces.replace(kept.base_offset, kept.end_offset, kept.size_bytes, kept.largest_timestamp)
        self._forget()
        while self._tail.batches and self._tail.batches[0].header.base_offset < kept.end_offset:
            self._tail.batches.popleft()

    async def discard(self, rewritten: Rewritten) -> None:
        """Do nothing, because nothing was written."""

    async def aside(self, call: Callable[[], T]) -> T:
        """Run the call on a thread."""
        return await asyncio.to_thread(call)

    async def sweep(self, now_ms: int, *, by_time: bool = True) -> None:
        """Delete rows below the start, and apply the topic's current retention to the others."""
        try:
            if self.away:
                await self._shared.engine.ping(self._shared.server)
            if self._rows_before:
                await self._command(f"DELETE FROM messages WHERE {self._where} AND batch_last < {self._start_offset}")
                self._rows_before = False
            if by_time:
                await self._renew_expiry(now_ms)
        except EngineError as error:
            topic, partition, _ = self._place
            log.warning("row_cleanup_failed", topic=topic, partition=partition, error=str(error))

    async def save(self, state: dict[str, Any]) -> None:
        """Save the state as valid for the current end offset."""
        self._check_open()
        await self._write_note(state=state)

    async def close(self) -> None:
        """Drop the cached batches."""
        self._closed = True
        self._forget()
        self._tail = BatchWindow()

    async def delete(self) -> None:
        """Delete the rows, then the notes that locate them."""
        self._closed = True
        await self._command(f"DELETE FROM messages WHERE {self._where}")
        await self._command(f"DELETE FROM partitions WHERE {self._where}")

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaStorageError(f"{self._place.topic}-{self._place.partition} is closed")

    def _forget(self) -> None:
        self._changes += 1
        self._ahead = BatchWindow()

    def _expires_s(self, now_ms: int) -> int:
        # Until `sweep` has set an expiry on older rows, newer rows have none, because they must not expire first.
        self._has_unknown = self._has_unknown or not self._shared.is_clock_trusted()
        if self._has_unknown:
            return EXPIRES_UNKNOWN_S
        times = (self._kept_ms, _kept_ms(self.settings))
        if FOR_EVER in times:
            return EXPIRES_MAX_S
        return min((now_ms + max(times)) // 1000 + 1, EXPIRES_MAX_S)

    async def _renew_expiry(self, now_ms: int) -> None:
        """Update rows whose expiry differs from the topic's setting and the trusted clock."""
        unknown, kept_ms = self._has_unknown, _kept_ms(self.settings)
        self._has_unknown = False  # first, because a row that arrives with an untrusted clock sets it again
        try:
            if self._kept_ms != kept_ms:
                await self._keep(kept_ms, now_ms)
            elif unknown:
                await self._end_unknown(now_ms)
        except BaseException:
            self._has_unknown = self._has_unknown or unknown
            raise

    async def _keep(self, kept_ms: int, now_ms: int) -> None:
        """Set the expiry of all rows to this retention time."""
        await self._give(self._end_offset, now_ms)
        await self._command(f"ALTER TABLE messages UPDATE {_expiry(kept_ms, now_ms)} WHERE {self._where}")
        self._kept_ms = kept_ms
        async with self._noting:
            await self._put(self._note)

    async def _end_unknown(self, now_ms: int) -> None:
        """Set an expiry on rows that arrived while the clock was not trusted."""
        if self._kept_ms != FOR_EVER:
            async with self._noting:  # first, because offsets noted with a wrong future time would be reused
                await self._put(self._note._replace(given_ms=min(self._note.given_ms, now_ms)))
            where = f"{self._where} AND expires_at = {_second(EXPIRES_UNKNOWN_S)}"
            await self._command(f"ALTER TABLE messages UPDATE {_expiry(self._kept_ms, now_ms)} WHERE {where}")

    async def _give(self, next_offset: int, now_ms: int) -> None:
        """Note offsets before they are assigned to records, if rows can expire."""
        can_expire = not self._kept_ms == _kept_ms(self.settings) == FOR_EVER
        if can_expire and next_offset > self._note.given_offset:
            async with self._noting:
                await self._put(self._note._replace(given_offset=next_offset + GIVEN_AHEAD, given_ms=now_ms))

    async def _from(self, offset: int, end_offset: int, max_bytes: int) -> list[StoredBatch]:
        for window in (self._tail, self._ahead):
            if window.covers(offset):
                return window.from_offset(offset)
        changes = self._changes
        batches = await self._reader.read(offset, min(end_offset, self._end_offset), max(max_bytes, AHEAD_BYTES))
        if batches and changes == self._changes:
            self._ahead = BatchWindow(batches, batches[-1].header.next_offset)
            self._shared.budget.hold(self._ahead, batches)
        return batches

    async def _write_note(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        cut_offset: int = NO_CUT,
        state: dict[str, Any] | None = None,
        pieces: Pieces | None = None,
    ) -> None:
        end_offset = self._end_offset if end_offset is None else end_offset
        async with self._noting:
            await self._put(
                Note(
                    self._start_offset if start_offset is None else start_offset,
                    end_offset,
                    cut_offset,
                    state is not None,
                    "" if state is None else json.dumps(state),
                    (pieces or self._pieces).dump(),
                    given_offset=end_offset,
                )
            )
            self._saved = None if state is None else Saved(end_offset, state)

    async def _put(self, note: Note) -> None:
        """Write a note that follows the last one. The caller holds the lock."""
        note = note._replace(version=self._note.next_version(self._epoch), kept_ms=self._kept_ms)
        await self._shared.notes.write(self._place, note)
        self._note = note

    async def _command(self, sql: str) -> None:
        await self._shared.engine.command(sql, server=self._shared.server)


def _kept_ms(settings: TopicSettings) -> int:
    """Return how long after their insert rows expire."""
    return settings.retention_ms if settings.deleted and settings.retention_ms >= 0 else FOR_EVER


def _expiry(kept_ms: int, now_ms: int) -> str:
    """Return the expiry expression. Rows whose `appended_at` may be wrong stay marked, or count from now."""
    unknown = f"expires_at = {_second(EXPIRES_UNKNOWN_S)}"
    if kept_ms == FOR_EVER:
        return f"expires_at = if({unknown}, expires_at, {_second(EXPIRES_MAX_S)})"
    appended = f"if({unknown}, toUInt64({now_ms // 1000}), toUInt64(toUnixTimestamp(appended_at)))"
    return f"expires_at = toDateTime(least({appended} + {kept_ms // 1000 + 1}, {EXPIRES_MAX_S}), 'UTC')"


def _second(at_s: int) -> str:
    return f"toDateTime({at_s}, 'UTC')"
