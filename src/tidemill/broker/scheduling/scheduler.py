"""Takes records for later off a produced batch, keeps them on the topic's timeline, and appends them when they are due.

A batch is answered when its waiting records are durable on the timeline and the rest is in the log. Records of an
idempotent producer leave their sequence numbers behind: the batch is stored with holes, or empty, as after a
compaction. Batches of one partition go through here one after the other, so that no sequence overtakes another. A
batch that the log has already is not scheduled again, also when its records were delivered long ago.

Exactly once. Whoever holds a due record on its timeline leases it and hands it to the leader of its partition, itself
or another broker, which stores it with the header `tidemill-message` (its mark: id and number); when it is committed
the message is completed. A crash anywhere in between, of either broker, leaves a message that is leased once more. So
the leader, record after record in its partition's turn, stores nothing whose lease is about to end (somebody else may
have it by then), and of a message that was leased before it first looks for the mark in its log, back to the time at
which it was due. Where the outcome is not known nobody tries before the lease has ended.

Where brokers share no timelines, the records of topics with copies wait with copies, too (waitlist.py).

A crash between keeping the waiting records and storing the rest of their batch makes the producer send it again. What
still waits is known by its id or by its sequence; what was delivered in the meantime is remembered by where it came
from. Delivery takes its turn behind the batches of its partition, so that a record is never delivered while its own
batch is on the way."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import structlog

from tidemill.broker.scheduling.log import SLACK_MS, Due, Marks, by_partition, in_pieces, received, to_send, to_store
from tidemill.broker.scheduling.plan import Origin, Plan, plan_batch
from tidemill.broker.scheduling.waitlist import Waitlist
from tidemill.cluster.core.image import Topic
from tidemill.model.errors import NotLeaderOrFollower, RequestTimedOut, TidemillError
from tidemill.model.timeline_errors import TimelineDeleting, TimelineError, UnknownTimeline
from tidemill.model.topics import WAITING_RECORDS, TopicPartition
from tidemill.records.compact import compact_batch
from tidemill.records.header import BatchHeader
from tidemill.records.record import Record
from tidemill.records.validate import check_produced
from tidemill.streams.core.admission import admit
from tidemill.streams.partition import Appended, Partition
from tidemill.timelines.consumer import ConsumerTerms, Granted
from tidemill.timelines.core.lease import Complete, Release
from tidemill.timelines.core.message import BATCH_MESSAGES_MAX, FIND_LIMIT_MAX, Message, Place, Selection
from tidemill.timelines.core.timeline import BODY_BYTES_LIMIT, State, TimelineSettings
from tidemill.timelines.dispatcher import Dispatcher, Wanted

PREFIX = "__schedule."
HOLDER = "tidemill-scheduler-{}"
LEASE_MS = 15_000
IN_FLIGHT_MAX = 1_000
RETRY_MS = 1_000
RETRY_S = 0.5
DELIVERED_MAX = 100_000
"""So many delivered records are remembered, for producers that send their batch again."""
CLOSE_TIMEOUT_S = 5.0
NOT_APPENDED = -1
SETTINGS = TimelineSettings(lease_ms=LEASE_MS, body_bytes_max=BODY_BYTES_LIMIT)

log = structlog.get_logger(__name__)


class Streams(Protocol):
    """What scheduling needs of the broker."""

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""

    def partition(self, topic: str, index: int) -> Partition:
        """The partition; an error when it is not here."""

    def leader_of(self, partition: TopicPartition) -> int:
        """Who leads a partition."""

    async def produce_at(self, node_id: int, partition: TopicPartition, batch: bytearray) -> None:
        """Send a batch to another broker; RequestTimedOut when it may have arrived all the same."""


class Scheduler:
    """The records for later of all topics of a broker."""

    def __init__(
        self,
        streams: Streams,
        timelines: Dispatcher,
        clock_ms: Callable[[], int],
        *,
        node_id: int = 0,
        clustered: bool = False,
    ) -> None:
        self._node_id = node_id
        self._holder = HOLDER.format(node_id)
        alone = clustered and not timelines.shared
        """Whether other brokers may have the partitions, but not what waits for them on timelines here."""
        self._store = f".{node_id}" if alone else ""
        self.waitlist: Waitlist | None = None
        """Where the records of topics with copies wait, when that cannot be on timelines that all share."""
        self._streams = streams
        self._timelines = timelines
        self._clock_ms = clock_ms
        self._attached: set[str] = set()
        self._marks: dict[tuple[str, int], Marks] = {}
        self._delivered: OrderedDict[tuple[str, Origin], None] = OrderedDict()
        self._order: dict[tuple[str, int], asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._storing: set[asyncio.Task[Appended]] = set()
        self._closing = False

    async def open(self) -> None:
        """Take back what the last process had leased, and go on delivering."""
        if self.waitlist is not None:
            await self.waitlist.open()
        for name in self._ready():
            await self._recover(name)
            self._attach(name)

    def tend(self) -> None:
        """Deliver also what other brokers were the first to schedule, where all share the timelines."""
        for name in self._ready():
            self._attach(name)

    def _ready(self) -> list[str]:
        timelines = self._timelines.timelines()
        return [one.name for one in timelines if one.name.startswith(PREFIX) and one.state is State.READY]

    async def close(self) -> None:
        """Finish what is being delivered and deliver nothing more; what is leased returns."""
        self._closing = True
        under_way: set[asyncio.Task[Any]] = {*self._tasks, *self._storing}
        if under_way:
            await asyncio.wait(under_way, timeout=CLOSE_TIMEOUT_S)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self.waitlist is not None:
            await self.waitlist.close()

    async def topic_deleted(self, topic: str) -> None:
        """The topic's waiting records go with it."""
        if PREFIX + topic in {one.name for one in self._timelines.timelines()}:
            self._attached.discard(PREFIX + topic)
            self._marks = {key: marks for key, marks in self._marks.items() if key[0] != topic}
            with contextlib.suppress(UnknownTimeline, TimelineDeleting):  # another broker was faster
                await self._timelines.delete(PREFIX + topic)

    async def append(
        self, partition: Partition, batch: bytearray | memoryview, *, acks: int, version: int, timeout_s: float
    ) -> Appended:
        """Store what a producer sent: some of it now, some of it later; what waits is not given up for a timeout."""
        async with self._turn(partition.topic, partition.index):
            header = check_produced(batch, version=version)
            plan = plan_batch(batch, header, partition.index, self._clock_ms())
            if plan is None:
                return await partition.append(batch, acks=acks, request_version=version, timeout_s=timeout_s)
            admitted, header = admit(batch, header, partition.settings, self._clock_ms())
            if not partition.has(header):
                await self._keep(partition.topic, plan)
            return await self._append_rest(partition, admitted, header, plan)

    async def append_from_peer(
        self, partition: Partition, batch: bytearray | memoryview, *, acks: int, version: int, timeout_s: float
    ) -> Appended:
        """Store what another broker sends: scheduled records that are due, or its own, such as dead letters.

        Once begun it is not given up when that broker goes away: who comes after it has to find all or nothing.
        """
        check_produced(batch, version=version)
        if partition.topic == WAITING_RECORDS:
            await self._take_from_peer(partition, batch)
            return Appended(NOT_APPENDED, -1, partition.log_start_offset)
        due = received(batch)
        if due is None:
            return await partition.append(batch, acks=acks, request_version=version, timeout_s=timeout_s)
        task = asyncio.create_task(self._store_here(partition, due))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)
        return await asyncio.shield(task)

    async def _take_from_peer(self, partition: Partition, batch: bytearray | memoryview) -> None:
        if self.waitlist is None:
            raise NotLeaderOrFollower("this broker has its timelines where others share them")
        await self.waitlist.take_from_peer(partition.index, batch)

    def _turn(self, topic: str, index: int) -> asyncio.Lock:
        return self._order.setdefault((topic, index), asyncio.Lock())

    async def _keep(self, topic: str, plan: Plan) -> None:
        name = PREFIX + topic
        new = [one for one in plan.waiting if one.origin is None or (topic, one.origin) not in self._delivered]
        known = self._streams.topic(topic)
        if self.waitlist is not None and known is not None and _has_copies(known):
            if new or plan.cancels:
                await self.waitlist.keep(known, new, plan.cancels)
        elif new:
            await self._ensure(name)
            wanted = [Wanted(one.body, one.due_ms, one.id) for one in new]
            await self._timelines.schedule(name, wanted)
        if plan.cancels and name in self._attached:
            await self._timelines.cancel(name, plan.cancels)

    async def _append_rest(
        self, partition: Partition, batch: bytearray | memoryview, header: BatchHeader, plan: Plan
    ) -> Appended:
        places = iter(range(header.count))

        def stays(_: Record) -> bool:
            return next(places) in plan.stays

        rest = compact_batch(batch, stays, keep_empty=header.has_producer)
        if rest is None:
            return Appended(NOT_APPENDED, -1, partition.log_start_offset)
        return await partition.append_own(rest)

    async def _ensure(self, name: str) -> None:
        if name not in self._attached:
            await self._timelines.create(name, SETTINGS)
            self._attach(name)

    def _attach(self, name: str) -> None:
        if name in self._attached:
            return
        self._attached.add(name)
        terms = ConsumerTerms(self._holder, lease_ms=LEASE_MS, max_in_flight=IN_FLIGHT_MAX, in_process=True)
        self._timelines.attach(
            name, terms, push=lambda granted: self._start(self._deliver(name, granted)), end=lambda _: self._again(name)
        )

    def _again(self, name: str) -> None:
        """The timeline has other settings, or is gone: come again, if it is there."""
        if name in self._attached:
            self._attached.discard(name)
            self._start(self._attach_again(name))

    async def _attach_again(self, name: str) -> None:
        await asyncio.sleep(RETRY_S)
        with contextlib.suppress(TimelineError):
            self._attach(name)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closing:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, name: str, granted: Sequence[Granted]) -> None:
        """Hand over what is due, then complete it; what failed comes again."""
        topic = name.removeprefix(PREFIX)
        commands: list[Complete | Release] = []
        for index, entries in by_partition(granted, self._store).items():
            commands += await self.hand_over(TopicPartition(topic, index), entries)
        try:
            await self._timelines.settle(name, commands)
        except TimelineError as error:  # then they come again when their leases end, and are found in the log
            log.warning("scheduled_completion_failed", topic=topic, messages=len(commands), error=str(error))

    async def hand_over(self, partition: TopicPartition, entries: Sequence[Due]) -> list[Complete | Release]:
        """Let the leader store records; what becomes of their messages."""
        topic = self._streams.topic(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            log.warning("scheduled_partition_gone", partition=str(partition), messages=len(entries))
            return [Complete(one.seq, one.token) for one in entries]
        commands: list[Complete | Release] = []
        for piece in in_pieces(entries, topic.settings.max_message_bytes):
            try:
                await self._store_at_leader(partition, piece)
            except RequestTimedOut as error:  # they may be stored: nobody tries again before their leases have ended
                log.warning("scheduled_delivery_unknown", partition=str(partition), error=str(error))
            except (TidemillError, OSError) as error:
                log.warning("scheduled_delivery_failed", partition=str(partition), error=str(error))
                again_ms = self._timelines.clock.now_ms() + RETRY_MS
                commands += [Release(one.seq, one.token, again_ms) for one in piece]
            else:
                commands += [Complete(one.seq, one.token) for one in piece]
        return commands

    async def _store_at_leader(self, partition: TopicPartition, piece: Sequence[Due]) -> None:
        leader = self._streams.leader_of(partition)
        if leader == self._node_id:
            await self._store_here(self._streams.partition(*partition), piece)
        else:
            await self._streams.produce_at(leader, partition, to_send(piece))

    async def _store_here(self, partition: Partition, piece: Sequence[Due]) -> Appended:
        """Store what is not there yet, in the partition's turn."""
        async with self._turn(partition.topic, partition.index):
            partition.check_leads()
            now_ms = self._timelines.clock.now_ms()
            if any(one.until_ms - SLACK_MS < now_ms for one in piece):
                raise RequestTimedOut("the lease of a scheduled record is about to end")
            known = await self._known(partition, [one for one in piece if one.attempts > 1])
            fresh = [one for one in piece if one.mark not in known]
            appended = Appended(NOT_APPENDED, -1, partition.log_start_offset)
            if fresh:
                appended = await partition.append_own(to_store(fresh, self._clock_ms()))
            self._remember(partition.topic, piece)
            return appended

    async def _known(self, partition: Partition, doubtful: Sequence[Due]) -> set[bytes]:
        """The marks of these that are in the log."""
        if not doubtful:
            return set()
        marks = self._marks.setdefault((partition.topic, partition.index), Marks())
        since_ms = min(one.scheduled_ms for one in doubtful) - SLACK_MS
        return {one.mark for one in doubtful} & await marks.since(partition, since_ms)

    def _remember(self, topic: str, delivered: Iterable[Due]) -> None:
        self._delivered.update(((topic, one.origin), None) for one in delivered if one.origin is not None)
        while len(self._delivered) > DELIVERED_MAX:
            self._delivered.popitem(last=False)

    async def _recover(self, name: str) -> None:
        """End the leases of the last process at once; those that have ended come again by themselves."""
        now_ms = self._timelines.clock.now_ms()
        doubtful = [one for one in await self._doubtful(name) if one.due_ms > now_ms]
        for first in range(0, len(doubtful), BATCH_MESSAGES_MAX):
            batch = doubtful[first : first + BATCH_MESSAGES_MAX]
            await self._timelines.settle(name, [Release(one.seq, one.token, now_ms) for one in batch])
        if doubtful:
            log.info("scheduled_recovered", topic=name.removeprefix(PREFIX), doubtful=len(doubtful))

    async def _doubtful(self, name: str) -> list[Message]:
        """The messages that the last process had leased."""
        doubtful: list[Message] = []
        end_ms = self._timelines.clock.now_ms() + LEASE_MS + SLACK_MS
        after: Place | None = None
        while True:
            page = await self._timelines.messages(
                name, Selection(end_ms=end_ms), FIND_LIMIT_MAX, after=after, bodies=False
            )
            doubtful.extend(message for message in page if message.holder == self._holder)
            if len(page) < FIND_LIMIT_MAX:
                return doubtful
            after = Place(page[-1].due_ms, page[-1].seq)


def _has_copies(topic: Topic) -> bool:
    return any(len(info.replicas) > 1 for info in topic.partitions)
