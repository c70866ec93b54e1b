"""Waiting rooms: where records wait for their time in a cluster whose brokers have timelines of their own.

What waits has to outlive any one broker, as the records themselves do. So it is written to an internal topic,
`__waiting`, which has copies; a topic's records are all in one of its partitions. Whoever leads that partition keeps
the rooms: the timeline `__waiting.{topic}` holds what the journal says, and is where due times are watched. When
leadership moves, the next leader reads the journal and fills its own; a room is never carried over. What a room lost in
a crash is in the journal, and so rooms of an earlier run are thrown away at the start.

Rules:
- A record waits when it is in the journal. It is written there first, then put into the room; where that fails the room
  is filled again from the journal.
- It has left when the journal says so: after it was stored in its partition, before the room forgets it. A leader that
  takes over in between delivers it again, and whoever leads its partition finds its mark there.
- An id that waits already is a duplicate. Of two entries with one id the later counts: the earlier one's writer never
  heard whether it was kept.
- A room that is not full yet takes and delivers nothing.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from tidemill.cluster.core.image import Topic
from tidemill.coordinator.journal import TopicJournal
from tidemill.model.errors import InvalidRecord, NotEnoughReplicas, TidemillError
from tidemill.model.timeline_errors import TimelineDeleting, TimelineError, UnknownTimeline
from tidemill.records.record import Record
from tidemill.scheduling.core.waiting_records import ENTRIES_MAX, WaitingEntry, decode, encode, in_chunks, topic_id_of
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.core.lease import CommandOutcome
from tidemill.timelines.core.message import EVERYTHING, Selection, TimelinePosition
from tidemill.timelines.core.timeline import WAITING_ROOM as ROOM
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.dispatcher import Dispatcher, ScheduleRequest

RETRY_S = 1.0

log = structlog.get_logger(__name__)


class Owner(Protocol):
    """Whoever delivers what is due in the rooms."""

    def room_opened(self, name: str) -> None:
        """It is full: deliver from it."""

    def room_closed(self, name: str) -> None:
        """Another broker keeps it, or its topic is gone."""


class ReplicatedStore:
    """The waiting rooms that this broker keeps."""

    def __init__(
        self,
        journal: TopicJournal,
        timelines: Dispatcher,
        owner: Owner,
        *,
        settings: TimelineSettings,
        led: Callable[[], Mapping[int, int]],
        topic: Callable[[str], Topic | None],
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor()
        self._journal = journal
        self._timelines = timelines
        self._owner = owner
        self._settings = settings
        self._led = led
        self._topic = topic
        self._kept: dict[int, int] = {}
        """The partitions whose rooms are full, with the epochs in which they were filled."""
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._fresh = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Throw away the rooms of an earlier run, and fill those that this broker has to keep."""
        for name in self._rooms():
            await self._discard(name)
        self._running = self._supervisor.keep("waiting records", self._run)

    async def close(self) -> None:
        """Keep no rooms any more; what is being written is finished."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def look(self) -> None:
        """Leadership may have moved."""
        self._fresh.set()

    def partition_of(self, topic: str) -> int:
        """The partition of the journal that has a topic's records."""
        return self._journal.partition_of(topic)

    def keeps(self, topic: str) -> bool:
        """Whether this broker keeps the topic's room, and it is full."""
        index = self.partition_of(topic)
        return index in self._kept and self._led().get(index) == self._kept[index]

    async def take(self, entries: Sequence[WaitingEntry]) -> None:
        """Let some not wait any more, then others wait; durable when it returns, and not given up half way."""
        task = asyncio.create_task(self._take(entries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def leave(self, topic: str, ids: Sequence[str]) -> None:
        """These were stored in their partitions: they wait no more."""
        index = self.partition_of(topic)
        self._check(index)
        for piece in in_chunks(WaitingEntry(topic, one) for one in ids):
            await self._journal.append(index, list(map(encode, piece)))

    async def topic_deleted(self, topic: str) -> None:
        """What waited for a topic that is gone leaves; what a crash leaves of it is known by the topic's id."""
        name = ROOM + topic
        async with self._turns[self.partition_of(topic)]:
            if not self.keeps(topic) or not self._there(name):
                return
            after: TimelinePosition | None = None
            while page := await self._timelines.messages(name, EVERYTHING, ENTRIES_MAX, after=after, bodies=False):
                after = TimelinePosition(page[-1].due_ms, page[-1].seq)
                ids = [one.id for one in page if not self._current(topic, one.key)]
                await self.leave(topic, ids)
                await self._timelines.cancel(name, ids)
            if self._topic(topic) is None:
                self._owner.room_closed(name)
                await self._discard(name)

    async def _take(self, entries: Sequence[WaitingEntry]) -> None:
        by_topic: defaultdict[str, list[WaitingEntry]] = defaultdict(list)
        for entry in entries:
            by_topic[entry.topic].append(entry)
        for topic, of_topic in by_topic.items():
            index = self.partition_of(topic)
            async with self._turns[index]:
                gone = [one.id for one in of_topic if one.body is None]
                if gone:
                    self._check(index)
                    await self._let_out(index, topic, gone)
                for piece in in_chunks(one for one in of_topic if one.body is not None):
                    self._check(index)
                    await self._let_in(index, topic, piece)

    async def _let_in(self, index: int, topic: str, entries: Sequence[WaitingEntry]) -> None:
        name = ROOM + topic
        first = {entry.id: entry for entry in reversed(entries)}
        if self._there(name):
            there = await self._timelines.messages(name, Selection(ids=tuple(first)), len(first), bodies=False)
            for message in there:
                first.pop(message.id, None)
        if not first:
            return
        await self._journal.append(index, list(map(encode, first.values())))
        try:
            await self._fill(name, list(first.values()))
        except BaseException:
            self._kept.pop(index, None)  # what the room does not have is in the journal: fill it from there
            self.look()
            raise
        self._owner.room_opened(name)

    async def _let_out(self, index: int, topic: str, ids: Sequence[str]) -> None:
        """Take records back that nobody is delivering; also those that only the journal may have."""
        gone = list(ids)
        if self._there(ROOM + topic):
            outcomes = await self._timelines.cancel(ROOM + topic, ids)
            gone = [one for one, outcome in zip(ids, outcomes, strict=True) if outcome is not CommandOutcome.LEASED]
        for piece in in_chunks(WaitingEntry(topic, one) for one in gone):
            await self._journal.append(index, list(map(encode, piece)))

    async def _fill(self, name: str, entries: Sequence[WaitingEntry]) -> None:
        if not self._there(name):
            await self._timelines.create(name, self._settings)
        wanted = [ScheduleRequest(one.body or b"", one.due_ms, one.id, one.ticket) for one in entries]
        await self._timelines.schedule(name, wanted)

    def _check(self, index: int) -> None:
        if self._kept.get(index, -1) != self._led().get(index):
            raise NotEnoughReplicas(f"{self._journal.topic}-{index} is moving to another broker; try again")

    def _there(self, name: str) -> bool:
        with contextlib.suppress(TimelineError):
            self._timelines.timeline(name)
            return True
        return False

    def _current(self, topic: str, ticket: bytes | None) -> bool:
        """Whether a record waits for the topic that has this name now."""
        known = self._topic(topic)
        return known is not None and ticket is not None and topic_id_of(ticket) == known.topic_id

    def _rooms(self, index: int | None = None) -> list[str]:
        """The rooms there are, of one partition or of all."""
        names = [one.name for one in self._timelines.timelines() if one.name.startswith(ROOM)]
        return [name for name in names if index is None or self.partition_of(name.removeprefix(ROOM)) == index]

    async def _run(self) -> None:
        self.look()
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            try:
                await self._follow(self._led())
            except (TidemillError, OSError) as error:
                log.warning("waiting records could not be read; it is tried again", error=str(error))
                await asyncio.sleep(RETRY_S)
                self._fresh.set()

    async def _follow(self, led: Mapping[int, int]) -> None:
        for index in [index for index, epoch in self._kept.items() if led.get(index) != epoch]:
            self._kept.pop(index, None)
        for name in self._rooms():
            index = self.partition_of(name.removeprefix(ROOM))
            if index not in self._kept:
                self._owner.room_closed(name)
                async with self._turns[index]:
                    await self._discard(name)
        for index, epoch in led.items():
            if index not in self._kept:
                async with self._turns[index]:
                    await self._load(index, epoch)

    async def _load(self, index: int, epoch: int) -> None:
        """Fill the rooms of a partition from the journal; then they are open."""
        for name in self._rooms(index):
            await self._discard(name)
        left: list[WaitingEntry] = []
        latest: dict[tuple[str, str], WaitingEntry] = {}
        async for records in self._journal.replay(index):
            for entry in map(_read, records):
                if entry is not None:
                    latest[entry.topic, entry.id] = entry
            if len(latest) >= ENTRIES_MAX:
                left += await self._replay(latest)
                latest = {}
        left += await self._replay(latest)
        for piece in in_chunks(left):
            await self._journal.append(index, list(map(encode, piece)))
        self._kept[index] = epoch
        for name in self._rooms(index):
            self._owner.room_opened(name)

    async def _replay(self, latest: Mapping[tuple[str, str], WaitingEntry]) -> list[WaitingEntry]:
        """Change the rooms as the journal says; what belongs to topics that are gone is given back, to be left out."""
        by_topic: defaultdict[str, list[WaitingEntry]] = defaultdict(list)
        for entry in latest.values():
            by_topic[entry.topic].append(entry)
        left: list[WaitingEntry] = []
        for topic, entries in by_topic.items():
            if self._there(ROOM + topic):
                await self._timelines.cancel(ROOM + topic, [one.id for one in entries])
            waiting = [one for one in entries if one.body is not None]
            for piece in in_chunks(one for one in waiting if self._current(topic, one.ticket)):
                await self._fill(ROOM + topic, piece)
            left += [WaitingEntry(topic, one.id) for one in waiting if not self._current(topic, one.ticket)]
        return left

    async def _discard(self, name: str) -> None:
        """Away with a room; its name is free when this returns."""
        with contextlib.suppress(UnknownTimeline, TimelineDeleting):
            await self._timelines.delete(name)
        await self._timelines.removed(name)


def _read(record: Record) -> WaitingEntry | None:
    try:
        return decode(record.key, record.value)
    except InvalidRecord as error:
        log.warning(
            "a record of the journal of waiting records is not readable", offset=record.offset, error=str(error)
        )
        return None
