"""What waits in a cluster whose brokers share no timelines: kept with copies, in the topic `__waiting_records`.

All records for later of a topic belong to one partition of that journal, and whoever leads it *seats* them: it has
read the partition into a timeline of its own (`__waiting.{partition}.{epoch}...`), which is only an index, made anew
with every leadership. The leaders of the topic's partitions send to the seat what is to wait and what is cancelled;
that is answered when it is in the journal, on all replicas in sync.

Exactly once. A due record goes to the leader of its partition, which always looks for its mark first: a seat that was
paused and the one that took over may both send it. The mark is made of id and due time, so it is the same from both.
When the record is stored it is taken out of the journal, then out of the index; a seat that is lost in between leaves
a record that is sent again, and found.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol
from uuid import UUID

import structlog

from tidemill.broker.journals import Journal, KeyValue
from tidemill.broker.scheduling.log import Due
from tidemill.broker.scheduling.plan import Waiting
from tidemill.broker.scheduling.seat import PREFIX, Seat, entry, key_of
from tidemill.cluster.core.image import Topic
from tidemill.model.errors import NotLeaderOrFollower, TidemillError
from tidemill.model.timeline_errors import TimelineError
from tidemill.model.topics import WAITING_RECORDS, TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.read import read_records
from tidemill.timelines.consumer import Granted
from tidemill.timelines.core.lease import Complete, Release
from tidemill.timelines.dispatcher import Dispatcher

RETRY_S = 1.0
CLOSE_TIMEOUT_S = 5.0
HOLDER = "tidemill-scheduler-{}"

HandOver = Callable[[TopicPartition, Sequence[Due]], Awaitable[list[Complete | Release]]]
"""Lets the leader of a partition store records; what becomes of their messages."""

log = structlog.get_logger(__name__)


class Cluster(Protocol):
    """What a waitlist needs of the broker."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of the topic of this id, if there is one."""

    def leader_of(self, partition: TopicPartition) -> int:
        """Who leads a partition."""

    async def produce_at(self, node_id: int, partition: TopicPartition, batch: bytearray) -> None:
        """Send a batch to another broker; RequestTimedOut when it may have arrived all the same."""

    async def ensure_internal(self, topic: str) -> None:
        """Create the topic of a coordinator."""


class Waitlist:
    """This broker's seats, and its way to those of others."""

    def __init__(
        self,
        cluster: Cluster,
        journal: Journal,
        timelines: Dispatcher,
        *,
        node_id: int,
        new_id: Callable[[], UUID],
        hand_over: HandOver,
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._timelines = timelines
        self._node_id = node_id
        self._new_id = new_id
        self._hand_over = hand_over
        self._led: Mapping[int, int] = {}
        self._seats: dict[int, Seat] = {}
        self._fresh = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Remove the indexes of the last process, and look for seats from now on."""
        for one in self._timelines.timelines():
            if one.name.startswith(PREFIX):
                with contextlib.suppress(TimelineError):
                    await self._timelines.delete(one.name)
        self._running = asyncio.create_task(self._run())

    def follow(self, led: Mapping[int, int]) -> None:
        """This broker leads these partitions of the journal, with their epochs, and no others."""
        self._led = dict(led)
        self._fresh.set()

    async def close(self) -> None:
        """Seat nobody any more; what is being delivered gets a little time."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        tasks = [task for task in (self._running, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def keep(self, topic: Topic, waiting: Sequence[Waiting], cancels: Iterable[str]) -> None:
        """Let these records of a topic wait, and take those back; durable when it returns."""
        await self._cluster.ensure_internal(WAITING_RECORDS)
        entries: list[KeyValue] = [entry(topic.topic_id, one, one.id or self._new_id().hex) for one in waiting]
        entries += [(key_of(topic.topic_id, one), None) for one in cancels]
        seat = TopicPartition(WAITING_RECORDS, self._journal.partition_of(topic.name))
        leader = self._cluster.leader_of(seat)
        if leader == self._node_id:
            await self._take(seat.partition, entries)
        else:
            await self._cluster.produce_at(leader, seat, build_batch([NewRecord(key, value) for key, value in entries]))

    async def take_from_peer(self, index: int, batch: bytearray | memoryview) -> None:
        """Another broker asks to keep records or to take them back."""
        await self._take(index, [(one.key, one.value) for one in read_records(batch)])

    async def _take(self, index: int, entries: Sequence[KeyValue]) -> None:
        seat = self._seats.get(index)
        if seat is None:
            raise NotLeaderOrFollower(f"{WAITING_RECORDS}-{index} is not kept here, or is not read yet")
        # Who asked may go away: what was begun is done all the same.
        await asyncio.shield(self._start(seat.take(entries)))

    async def _run(self) -> None:
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            try:
                await self._seat_all()
            except (TidemillError, OSError) as error:
                log.warning("waiting records could not be read; it is tried again", error=str(error))
                await asyncio.sleep(RETRY_S)
                self._fresh.set()

    async def _seat_all(self) -> None:
        for index, seat in list(self._seats.items()):
            if seat.doubtful or self._led.get(index) != seat.epoch:
                del self._seats[index]
                await seat.leave()
        for index, epoch in list(self._led.items()):
            if index not in self._seats:
                name = f"{PREFIX}{index}.{epoch}.{self._new_id().hex}"
                seat = Seat(index, epoch, name, self._journal, self._timelines)
                await seat.load()
                if self._led.get(index) != epoch:
                    await seat.leave()
                    continue
                self._seats[index] = seat
                seat.attach(HOLDER.format(self._node_id), partial(self._push, seat))

    def _push(self, seat: Seat, granted: Sequence[Granted]) -> None:
        self._start(self._deliver(seat, granted))

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, TidemillError):  # those are told to who asked
            log.error("waiting records were not worked on", error=repr(error))
        if any(seat.doubtful for seat in self._seats.values()):
            self._fresh.set()

    async def _deliver(self, seat: Seat, granted: Sequence[Granted]) -> None:
        """Hand over what is due, then take it out of the journal and the index; what failed comes again."""
        commands: list[Complete | Release] = []
        for topic_id, partitions in seat.due(granted).items():
            name = self._cluster.topic_name(topic_id)
            for index, entries in partitions.items():
                if name is None:  # the topic is gone, and so is what waited for it
                    commands += [Complete(one.seq, one.token) for one in entries]
                else:
                    commands += await self._hand_over(TopicPartition(name, index), entries)
        try:
            await seat.settle(granted, commands)
        except TidemillError as error:  # then they come again when their leases end, and are found in the log
            log.warning("scheduled_completion_failed", seat=seat.name, messages=len(commands), error=str(error))
