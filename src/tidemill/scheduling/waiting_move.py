"""Moves waiting records from the journal `__waiting` into timelines that all brokers share.

Brokers with timelines of their own keep waiting records in that journal (`replicated_store.py`). When the brokers of a
cluster start with shared timelines, the leader of each partition of the journal moves what still waits: it stores the
records on the timeline `__schedule.{topic}`, and then writes to the journal that they no longer wait there. The store
remembers up to which offset it has them, so that a move that is repeated stores nothing twice.

A record keeps its mark. Another broker may have delivered it without writing that to the journal, so its first delivery
counts as doubtful: the leader of its partition looks for the mark.
"""

import asyncio
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from tidemill.cluster.core.image import Topic
from tidemill.coordinator.journal import TopicJournal
from tidemill.model.errors import InvalidRecord, TidemillError
from tidemill.records.record import Record
from tidemill.scheduling.core.waiting_records import (
    BYTES_MAX,
    ENTRIES_MAX,
    WaitingEntry,
    decode,
    encode,
    in_chunks,
    mark_of,
    topic_id_of,
)
from tidemill.scheduling.scheduler import DOUBTFUL, SETTINGS
from tidemill.timelines.core.buckets import BUCKETS
from tidemill.timelines.core.message import ID_CHARS_MAX, TimedMessage
from tidemill.timelines.core.timeline import SCHEDULE, Create, MakeReady, Step, TimelineInfo

LOOK_S = 2.0

log = structlog.get_logger(__name__)


class AdoptedRecords(Protocol):
    """What a store has not adopted: ids that it has already, and the messages that were left because of them."""

    @property
    def taken(self) -> Sequence[str]:
        """Ids of other messages."""

    @property
    def left(self) -> Sequence[TimedMessage]:
        """Messages that were not stored."""


class SharedTimelines(Protocol):
    """The store that all brokers share."""

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline."""

    async def adopt(self, timeline: str, source: str, messages: Sequence[TimedMessage]) -> AdoptedRecords:
        """Store messages of another store, unless that was done before."""


class WaitingMove:
    """Moves the waiting records of the partitions that this broker leads."""

    def __init__(
        self,
        journal: TopicJournal,
        store: SharedTimelines,
        *,
        led: Callable[[], Mapping[int, int]],
        journal_id: Callable[[], str | None],
        topic: Callable[[str], Topic | None],
    ) -> None:
        self._journal = journal
        self._store = store
        self._led = led
        self._journal_id = journal_id
        self._topic = topic
        self._moved: dict[int, int] = {}
        """The partitions from which nothing is left to move, with the epochs in which that was so."""

    async def run(self) -> None:
        """Look for partitions with waiting records, without end."""
        while True:
            for index, epoch in self._led().items():
                if self._moved.get(index) != epoch:
                    await self._try(index, epoch)
            await asyncio.sleep(LOOK_S)

    async def _try(self, index: int, epoch: int) -> None:
        try:
            count = await self._move(index, epoch)
        except (TidemillError, OSError) as error:  # partitions of the timelines may move, or have no leader yet
            log.info("waiting_records_move_waits", partition=index, error=str(error))
            return
        self._moved[index] = epoch
        if count:
            log.info("waiting_records_moved", partition=index, records=count)

    async def _move(self, index: int, epoch: int) -> int:
        """Move what still waits; the number of records. Two passes: a record may be cancelled later in the journal."""
        last: dict[tuple[str, str], int] = {}
        async for records in self._journal.replay(index):
            for record, entry in _entries(records):
                if entry.body is None:
                    last.pop((entry.topic, entry.id), None)
                else:
                    last[entry.topic, entry.id] = record.offset
        if not last:
            return 0
        piece: list[tuple[int, WaitingEntry]] = []
        size = 0
        async for records in self._journal.replay(index):
            for record, entry in _entries(records):
                if last.get((entry.topic, entry.id)) != record.offset:
                    continue
                if piece and (len(piece) == ENTRIES_MAX or size + entry.size > BYTES_MAX):
                    await self._move_piece(index, epoch, piece)
                    piece, size = [], 0
                piece.append((record.offset, entry))
                size += entry.size
        await self._move_piece(index, epoch, piece)
        return len(last)

    async def _move_piece(self, index: int, epoch: int, piece: Sequence[tuple[int, WaitingEntry]]) -> None:
        by_topic: defaultdict[str, list[TimedMessage]] = defaultdict(list)
        for offset, entry in piece:
            if self._is_current(entry):
                by_topic[entry.topic].append(_message(offset, entry))
        for topic, messages in by_topic.items():
            await self._adopt(SCHEDULE + topic, f"{self._journal_id()}/{index}", messages)
        if not self._journal.leads(index, epoch):
            raise TidemillError(f"{self._journal.topic}-{index} is moving to another broker")
        for gone in in_chunks(WaitingEntry(entry.topic, entry.id) for _, entry in piece):
            await self._journal.append(index, list(map(encode, gone)))

    async def _adopt(self, name: str, source: str, messages: Sequence[TimedMessage]) -> None:
        """Store the messages. One whose id was used again meanwhile gets another: both were promised to producers."""
        await self._store.govern(Create(name, SETTINGS))
        await self._store.govern(MakeReady(name))
        found = await self._store.adopt(name, source, messages)
        if found.taken:
            log.warning("waiting_records_renamed", timeline=name, ids=list(found.taken)[:5])
            taken = set(found.taken)
            renamed = [_renamed(one) for one in found.left if one.id in taken]
            await self._store.adopt(name, f"{source}/renamed", renamed)
            await self._store.adopt(name, source, [one for one in found.left if one.id not in taken])

    def _is_current(self, entry: WaitingEntry) -> bool:
        """Whether a record waits for the topic that has this name now."""
        known = self._topic(entry.topic)
        return known is not None and topic_id_of(entry.ticket) == known.topic_id


def keep_mark(timeline: str, message: TimedMessage) -> TimedMessage:
    """A message of another timeline `__schedule.{topic}`, with the mark that its record has or gets in the log."""
    if not timeline.startswith(SCHEDULE) or message.key is not None:
        return message
    return message._replace(key=f"{message.id}@{message.seq}".encode())


def _message(offset: int, entry: WaitingEntry) -> TimedMessage:
    body = entry.body or b""
    return TimedMessage(
        offset,
        entry.id,
        entry.due_ms,
        entry.due_ms,
        zlib.crc32(entry.id.encode()) % BUCKETS,
        "",
        None,
        0,
        2,
        DOUBTFUL - 1,
        len(body),
        mark_of(entry.ticket),
        body,
        entry.rule,
    )


def _renamed(message: TimedMessage) -> TimedMessage:
    suffix = f".{message.seq}"
    return message._replace(id=message.id[: ID_CHARS_MAX - len(suffix)] + suffix)


def _entries(records: Sequence[Record]) -> list[tuple[Record, WaitingEntry]]:
    found = []
    for record in records:
        try:
            found.append((record, decode(record.key, record.value)))
        except InvalidRecord as error:
            log.warning("waiting_record_unreadable", offset=record.offset, error=str(error))
    return found
