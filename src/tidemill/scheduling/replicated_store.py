"""The replicated store of waiting records, for clusters whose brokers have separate timelines.

Waiting records must survive the loss of any one broker, as the records themselves do. So they are written to the
internal topic `__waiting`, which is replicated. All waiting records of a topic are in one of its partitions. The leader
of that partition owns the waiting timelines. The timeline `__waiting.{topic}` has the records of the journal, and due
times are watched there. When leadership moves, the next leader reads the journal and fills its own timelines. A waiting
timeline is never moved. Whatever it lost in a crash is in the journal, so timelines of an earlier run are deleted at
start.

Rules:
- A record waits when it is in the journal. It is written there first, then added to the timeline. When that fails, the
  timeline is filled again from the journal.
- A record has left when the journal says so: after it was stored in its partition, before it is removed from the
  timeline. A leader that takes over in between delivers it again, and the leader of its partition finds its mark.
- An id that already waits is a duplicate. Of two entries with one id the later counts, because the producer of the
  earlier one never got an acknowledgement.
- A timeline that is still being filled accepts and delivers nothing.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Protocol

import structlog

from tidemill.cluster.core.image import Topic
from tidemill.coordinator.journal import TopicJournal
from tidemill.model.errors import InvalidRecord, NotEnoughReplicas, TidemillError
from tidemill.model.timeline_errors import TimelineDeleting, TimelineError, UnknownTimeline
from tidemill.records.record import Record
from tidemill.scheduling.core.waiting_records import ENTRIES_MAX, WaitingEntry, decode, encode, in_chunks, topic_id_of
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.consumer import Granted
from tidemill.timelines.core.lease import NO_MORE, CommandOutcome, CompleteAs
from tidemill.timelines.core.message import EVERYTHING, Selection, TimedMessage, TimelinePosition
from tidemill.timelines.core.recurrence import next_occurrence, recurrence_from
from tidemill.timelines.core.timeline import WAITING_PREFIX, TimelineSettings
from tidemill.timelines.dispatcher import Dispatcher, ScheduleRequest

RETRY_S = 1.0

log = structlog.get_logger(__name__)


class Owner(Protocol):
    """Delivers the due records of the waiting timelines."""

    def waiting_opened(self, name: str) -> None:
        """The timeline is filled: deliver from it."""

    def waiting_closed(self, name: str) -> None:
        """Another broker owns the timeline, or its topic was deleted."""


class ReplicatedStore:
    """The waiting timelines that this broker owns."""

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
        self._owned: dict[int, int] = {}
        """The partitions whose timelines are filled, with the epochs in which they were filled."""
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._fresh = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Delete the timelines of an earlier run, and fill those that this broker owns."""
        for name in self._waiting_timelines():
            await self._discard(name)
        self._running = self._supervisor.keep("waiting records", self._run)

    async def close(self) -> None:
        """Stop; running writes are finished."""
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

    def owns(self, topic: str) -> bool:
        """Whether this broker owns the topic's waiting timeline, and it is filled."""
        index = self.partition_of(topic)
        return index in self._owned and self._led().get(index) == self._owned[index]

    async def take(self, entries: Sequence[WaitingEntry]) -> None:
        """Remove the cancelled records, then add the new ones; durable when it returns, and not cancelled half-way."""
        task = asyncio.create_task(self._take(entries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def leave(self, topic: str, ids: Sequence[str]) -> None:
        """Record that these were stored in their partitions and no longer wait."""
        index = self.partition_of(topic)
        self._check(index)
        for piece in in_chunks(WaitingEntry(topic, one) for one in ids):
            await self._journal.append(index, list(map(encode, piece)))

    async def recur(self, topic: str, delivered: Sequence[Granted]) -> None:
        """Complete recurring records that were stored in their partitions: their next occurrences wait from now on.

        The journal gets the next occurrence first. A record that was cancelled meanwhile has lost its recurrence.
        """
        task = asyncio.create_task(self._recur(topic, delivered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def _recur(self, topic: str, delivered: Sequence[Granted]) -> None:
        index, name = self.partition_of(topic), WAITING_PREFIX + topic
        async with self._turns[index]:
            self._check(index)
            tokens = {message.id: lease.token for message, lease in delivered}
            entries: list[WaitingEntry] = []
            commands: list[CompleteAs] = []
            for message in await self._named(name, list(tokens)):
                following = _next_entry(topic, message, self._timelines.clock.now_ms())
                entries.append(following)
                due_ms = NO_MORE if following.body is None else following.due_ms
                commands.append(CompleteAs(message.seq, tokens[message.id], due_ms, following.rule))
            for piece in in_chunks(entries):
                await self._journal.append(index, list(map(encode, piece)))
            await self._timelines.settle(name, commands)

    async def _named(self, name: str, ids: Sequence[str]) -> list[TimedMessage]:
        """The messages with these ids that exist, with their bodies."""
        found: list[TimedMessage] = []
        left = dict.fromkeys(ids)
        while left and (page := await self._timelines.messages(name, Selection(ids=tuple(left)), len(left))):
            found += page
            for message in page:
                del left[message.id]
        return found

    async def topic_deleted(self, topic: str) -> None:
        """Remove the waiting records of a deleted topic. Those that a crash leaves are recognized by the topic's id."""
        name = WAITING_PREFIX + topic
        async with self._turns[self.partition_of(topic)]:
            if not self.owns(topic) or not self._there(name):
                return
            after: TimelinePosition | None = None
            while page := await self._timelines.messages(name, EVERYTHING, ENTRIES_MAX, after=after, bodies=False):
                after = TimelinePosition(page[-1].due_ms, page[-1].seq)
                ids = [one.id for one in page if not self._current(topic, one.key)]
                await self.leave(topic, ids)
                await self._timelines.cancel(name, ids)
            if self._topic(topic) is None:
                self._owner.waiting_closed(name)
                await self._discard(name)

    async def _take(self, entries: Sequence[WaitingEntry]) -> None:
        by_topic: defaultdict[str, list[WaitingEntry]] = defaultdict(list)
        for entry in entries:
            by_topic[entry.topic].append(entry)
        for topic, of_topic in by_topic.items():
            index = self.partition_of(topic)
            async with self._turns[index]:
                gone = [one.id for one in of_topic if one.body is None and not one.moves]
                if gone:
                    self._check(index)
                    await self._cancel(index, topic, gone)
                wanted = (one for one in of_topic if one.body is not None or one.moves)
                for moves, some in groupby(wanted, key=lambda one: one.moves):
                    for piece in in_chunks(some):
                        self._check(index)
                        await (self._move if moves else self._add)(index, topic, piece)

    async def _add(self, index: int, topic: str, entries: Sequence[WaitingEntry]) -> None:
        name = WAITING_PREFIX + topic
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
            self._owned.pop(index, None)  # the journal has what the timeline lacks: fill it again
            self.look()
            raise
        self._owner.waiting_opened(name)

    async def _cancel(self, index: int, topic: str, ids: Sequence[str]) -> None:
        """Cancel records that are not being delivered; also those that only the journal may have."""
        gone = list(ids)
        if self._there(WAITING_PREFIX + topic):
            outcomes = await self._timelines.cancel(WAITING_PREFIX + topic, ids)
            gone = [one for one, outcome in zip(ids, outcomes, strict=True) if outcome is not CommandOutcome.LEASED]
        for piece in in_chunks(WaitingEntry(topic, one) for one in gone):
            await self._journal.append(index, list(map(encode, piece)))

    async def _move(self, index: int, topic: str, moves: Sequence[WaitingEntry]) -> None:
        """Move records that wait and are not being delivered."""
        name = WAITING_PREFIX + topic
        if not self._there(name):
            return
        for move in moves:
            for message in await self._named(name, [move.id]):
                if message.holder is not None and message.due_ms > self._timelines.clock.now_ms():
                    continue
                moved = WaitingEntry(
                    topic, move.id, move.due_ms, message.key or b"", message.body or b"", message.recurrence
                )
                await self._journal.append(index, [encode(moved)])
                await self._timelines.move(name, [move.id], move.due_ms)

    async def _fill(self, name: str, entries: Sequence[WaitingEntry]) -> None:
        if not self._there(name):
            await self._timelines.create(name, self._settings)
        wanted = [ScheduleRequest(one.body or b"", one.due_ms, one.id, one.ticket, rule=one.rule) for one in entries]
        await self._timelines.schedule(name, wanted)

    def _check(self, index: int) -> None:
        if self._owned.get(index, -1) != self._led().get(index):
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

    def _waiting_timelines(self, index: int | None = None) -> list[str]:
        """The existing waiting timelines, of one partition or of all."""
        names = [one.name for one in self._timelines.timelines() if one.name.startswith(WAITING_PREFIX)]
        return [
            name for name in names if index is None or self.partition_of(name.removeprefix(WAITING_PREFIX)) == index
        ]

    async def _run(self) -> None:
        self.look()
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            try:
                await self._follow(self._led())
            except (TidemillError, OSError) as error:
                log.warning("waiting_records_load_failed", error=str(error))
                await asyncio.sleep(RETRY_S)
                self._fresh.set()

    async def _follow(self, led: Mapping[int, int]) -> None:
        for index in [index for index, epoch in self._owned.items() if led.get(index) != epoch]:
            self._owned.pop(index, None)
        for name in self._waiting_timelines():
            index = self.partition_of(name.removeprefix(WAITING_PREFIX))
            if index not in self._owned:
                self._owner.waiting_closed(name)
                async with self._turns[index]:
                    await self._discard(name)
        for index, epoch in led.items():
            if index not in self._owned:
                async with self._turns[index]:
                    await self._load(index, epoch)

    async def _load(self, index: int, epoch: int) -> None:
        """Fill the waiting timelines of a partition from the journal; then they are open."""
        for name in self._waiting_timelines(index):
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
        self._owned[index] = epoch
        for name in self._waiting_timelines(index):
            self._owner.waiting_opened(name)

    async def _replay(self, latest: Mapping[tuple[str, str], WaitingEntry]) -> list[WaitingEntry]:
        """Apply journal entries to the timelines; returns entries that remove the records of deleted topics."""
        by_topic: defaultdict[str, list[WaitingEntry]] = defaultdict(list)
        for entry in latest.values():
            by_topic[entry.topic].append(entry)
        left: list[WaitingEntry] = []
        for topic, entries in by_topic.items():
            if self._there(WAITING_PREFIX + topic):
                await self._timelines.cancel(WAITING_PREFIX + topic, [one.id for one in entries])
            waiting = [one for one in entries if one.body is not None]
            for piece in in_chunks(one for one in waiting if self._current(topic, one.ticket)):
                await self._fill(WAITING_PREFIX + topic, piece)
            left += [WaitingEntry(topic, one.id) for one in waiting if not self._current(topic, one.ticket)]
        return left

    async def _discard(self, name: str) -> None:
        """Delete a waiting timeline; its name is free when this returns."""
        with contextlib.suppress(UnknownTimeline, TimelineDeleting):
            await self._timelines.delete(name)
        await self._timelines.removed(name)


def _next_entry(topic: str, message: TimedMessage, now_ms: int) -> WaitingEntry:
    """The entry of the next occurrence; after the last one, the entry that removes the record."""
    rule = message.recurrence
    following = next_occurrence(recurrence_from(rule), message.scheduled_ms, now_ms) if rule else None
    if following is None:
        return WaitingEntry(topic, message.id)
    ticket, body = message.key or b"", message.body or b""
    return WaitingEntry(topic, message.id, following.due_ms, ticket, body, following.recurrence.to_text())


def _read(record: Record) -> WaitingEntry | None:
    try:
        return decode(record.key, record.value)
    except InvalidRecord as error:
        log.warning("waiting_record_unreadable", offset=record.offset, error=str(error))
        return None
