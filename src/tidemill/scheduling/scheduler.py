"""Takes records for later off a produced batch, keeps them on the topic's timeline, and appends them when they are due.

A batch is answered when its waiting records are durable on the timeline and the rest is in the log. Waiting records
leave a hole behind: the batch is stored without them, or empty, as after a compaction. So an idempotent producer's
sequence goes on; and an answer, which names one offset for a whole batch, gives each waiting record an offset that no
other record has, and behind which it will come. Batches of one partition go through here one after the other, so that
no sequence overtakes another. A batch that the log has already is not scheduled again, also when its records were
delivered long ago. Batches of a transaction, which hold no records for later, do not wait for a turn: theirs was found
open just now, and behind its marker they would hang, or belong to the next one.

Exactly once. Whoever holds a due record on its timeline leases it and hands it to the leader of its partition, itself
or another broker, which stores it with the header `tidemill-message` (its mark: id and number); when it is committed
the message is completed. A crash anywhere in between, of either broker, leaves a message that is leased once more. So
the leader, record after record in its partition's turn, stores nothing whose lease is about to end (somebody else may
have it by then), and of a message that was leased before it first looks for the mark in its log, back to the time at
which it was due. Where the outcome is not known nobody tries before the lease has ended.

A crash between keeping the waiting records and storing the rest of their batch makes the producer send it again. What
still waits is known by its id or by its sequence; what was delivered in the meantime is remembered by where it came
from. Delivery takes its turn behind the batches of its partition, so that a record is never delivered while its own
batch is on the way.

In a cluster whose brokers have timelines of their own, records wait in rooms (rooms.py): whoever leads a partition
hands them to the keeper of its topic's room, and that is who delivers them. A keeper that lost its place may still be
delivering when the next one begins; so the mark of a record from a room is looked for each time."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import structlog

from tidemill.cluster.core.image import NOBODY, Topic
from tidemill.coordinator.journal import TopicJournal
from tidemill.model.errors import (
    InvalidRecord,
    NotEnoughReplicas,
    RequestTimedOut,
    TidemillError,
    UnknownTopicOrPartition,
)
from tidemill.model.timeline_errors import TimelineDeleting, TimelineError, UnknownTimeline
from tidemill.model.topics import WAITING, TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compact import compact_batch, empty_batch
from tidemill.records.header import BatchHeader
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.records.validate import check_produced
from tidemill.scheduling.core.batch_split import BatchSplit, Origin, WaitingRecord, split_batch
from tidemill.scheduling.core.waiting_records import WaitingEntry, decode, encode, mark_of, new_ticket, topic_id_of
from tidemill.scheduling.core.waiting_records import in_chunks as pieces_of
from tidemill.scheduling.delivery import SLACK_MS, Due, Marks, by_partition, in_requests, received, to_send, to_store
from tidemill.scheduling.replicated_store import ReplicatedStore
from tidemill.streams.admission import Admitted, Verify, opened_in_place, run_aside
from tidemill.streams.core.admission import admit, check_opened
from tidemill.streams.partition import Appended, Partition
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.consumer import ConsumerTerms, Granted
from tidemill.timelines.core.lease import Complete, Release
from tidemill.timelines.core.message import (
    BATCH_MESSAGES_MAX,
    FIND_LIMIT_MAX,
    Selection,
    TimedMessage,
    TimelinePosition,
)
from tidemill.timelines.core.timeline import BODY_BYTES_LIMIT, TimelineSettings, TimelineState
from tidemill.timelines.core.timeline import SCHEDULE as PREFIX
from tidemill.timelines.core.timeline import WAITING_ROOM as ROOM
from tidemill.timelines.dispatcher import Dispatcher, ScheduleRequest

HOLDER = "tidemill-scheduler-{}"
LEASE_MS = 15_000
IN_FLIGHT_MAX = 1_000
RETRY_MS = 1_000
RETRY_S = 0.5
DOUBTFUL = 2
"""From this attempt on a record may be in the log already."""
DELIVERED_MAX = 100_000
"""So many delivered records are remembered, for producers that send their batch again."""
CLOSE_TIMEOUT_S = 5.0
NOT_APPENDED = -1
SETTINGS = TimelineSettings(lease_ms=LEASE_MS, body_bytes_max=BODY_BYTES_LIMIT)

log = structlog.get_logger(__name__)


class SchedulingBroker(Protocol):
    """What scheduling needs of the broker."""

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""

    def partition(self, topic: str, index: int) -> Partition:
        """The partition; an error when it is not here."""

    def leader_of(self, partition: TopicPartition) -> int:
        """Who leads a partition."""

    async def produce_at(self, node_id: int, partition: TopicPartition, batch: bytearray) -> None:
        """Send a batch to another broker; RequestTimedOut when it may have arrived all the same."""

    async def ensure_internal(self, topic: str) -> None:
        """Create one of the broker's own topics, if it is not there."""


class ReplicatedStorage(NamedTuple):
    """What waiting rooms need: a journal with copies, what this broker leads of it, and where tickets come from."""

    journal: TopicJournal
    led: Callable[[], Mapping[int, int]]
    new_id: Callable[[], UUID]


class Scheduler:
    """The records for later of all topics of a broker."""

    def __init__(
        self,
        streams: SchedulingBroker,
        timelines: Dispatcher,
        clock_ms: Callable[[], int],
        *,
        node_id: int = 0,
        replicated: ReplicatedStorage | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor()
        self._node_id = node_id
        self._holder = HOLDER.format(node_id)
        self._store = "" if replicated is None else f".{node_id}"
        """Tells the numbers of this broker's own timelines from those of others."""
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
        self._replicated = replicated
        self._rooms: ReplicatedStore | None = None
        if replicated is not None:
            self._rooms = ReplicatedStore(
                replicated.journal,
                timelines,
                self,
                settings=SETTINGS,
                led=replicated.led,
                topic=streams.topic,
                supervisor=self._supervisor,
            )

    async def open(self) -> None:
        """Take back what the last process had leased, and go on delivering."""
        for name in self._ready():
            await self._recover(name)
            self._attach(name)
        if self._rooms is not None:
            await self._rooms.open()

    def look(self) -> None:
        """The cluster has changed: rooms may have other keepers."""
        if self._rooms is not None:
            self._rooms.look()

    def room_opened(self, name: str) -> None:
        """Deliver what is due in it."""
        self._attach(name)

    def room_closed(self, name: str) -> None:
        """Deliver no more of it."""
        self._attached.discard(name)

    def tend(self) -> None:
        """Deliver also what other brokers were the first to schedule, where all share the timelines."""
        for name in self._ready():
            self._attach(name)

    def _ready(self) -> list[str]:
        timelines = self._timelines.timelines()
        return [one.name for one in timelines if one.name.startswith(PREFIX) and one.state is TimelineState.READY]

    async def close(self) -> None:
        """Finish what is being delivered and deliver nothing more; what is leased returns."""
        self._closing = True
        if self._rooms is not None:
            await self._rooms.close()
        under_way: set[asyncio.Task[Any]] = {*self._tasks, *self._storing}
        if under_way:
            await asyncio.wait(under_way, timeout=CLOSE_TIMEOUT_S)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def topic_deleted(self, topic: str) -> None:
        """The topic's waiting records go with it."""
        self._marks = {key: marks for key, marks in self._marks.items() if key[0] != topic}
        self._delivered = OrderedDict((key, None) for key in self._delivered if key[0] != topic)
        if self._rooms is not None:
            self._start(self._empty(topic, self._rooms))
        if PREFIX + topic in {one.name for one in self._timelines.timelines()}:
            self._attached.discard(PREFIX + topic)
            with contextlib.suppress(UnknownTimeline, TimelineDeleting):  # another broker was faster
                await self._timelines.delete(PREFIX + topic)

    async def _empty(self, topic: str, rooms: ReplicatedStore) -> None:
        try:
            await rooms.topic_deleted(topic)
        except TidemillError as error:  # whoever reads the journal next leaves them out
            log.warning("scheduled_topic_not_emptied", topic=topic, error=str(error))

    async def append(
        self,
        partition: Partition,
        batch: bytearray | memoryview,
        *,
        acks: int,
        version: int,
        timeout_s: float,
        verify: Verify | None = None,
    ) -> Appended:
        """Store what a producer sent: some of it now, some of it later; what waits is not given up for a timeout."""
        header = check_produced(batch, version=version)
        check_opened(header, partition.settings)
        make_plan = partial(split_batch, batch, header, partition.index, self._counted_ms())
        if header.transactional:  # its plan refuses what cannot be in a transaction
            return await partition.append(
                batch, acks=acks, request_version=version, timeout_s=timeout_s, inspect=make_plan, verify=verify
            )
        async with self._turn(partition.topic, partition.index):
            plan = make_plan() if opened_in_place(header) else await run_aside(make_plan)
            if plan is None:
                return await partition.append(batch, acks=acks, request_version=version, timeout_s=timeout_s)
            admitted, header = await self._admitted(partition, batch, header)
            if not partition.has(header):
                await self._keep(partition.topic, plan)
            return await self._append_rest(partition, admitted, header, plan)

    async def append_from_peer(
        self,
        partition: Partition,
        batch: bytearray | memoryview,
        *,
        acks: int,
        version: int,
        timeout_s: float,
        verify: Verify | None = None,
    ) -> Appended:
        """Store what another broker sends: scheduled records that are due, or its own, such as dead letters.

        Once begun it is not given up when that broker goes away: who comes after it has to find all or nothing.
        """
        check_produced(batch, version=version)
        if partition.topic == WAITING:
            return await self._let_wait(partition, batch)
        due = received(batch)
        if due is None:
            return await partition.append(batch, acks=acks, request_version=version, timeout_s=timeout_s, verify=verify)
        task = asyncio.create_task(self._store_here(partition, due))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)
        return await asyncio.shield(task)

    def _counted_ms(self) -> int | None:
        """The time that delays count from: steady after a jump, None where there is no right time of day."""
        return self._timelines.clock.now_ms() if self._timelines.guard.may_count else None

    def _turn(self, topic: str, index: int) -> asyncio.Lock:
        return self._order.setdefault((topic, index), asyncio.Lock())

    async def _keep(self, topic: str, plan: BatchSplit) -> None:
        name = PREFIX + topic
        new = [one for one in plan.waiting if one.origin is None or (topic, one.origin) not in self._delivered]
        if plan.cancels:
            with contextlib.suppress(UnknownTimeline, TimelineDeleting):  # then nothing waits
                await self._timelines.find(name)
                await self._timelines.cancel(name, plan.cancels)
        if self._replicated is not None:
            await self._keep_in_room(topic, new, plan.cancels, self._replicated)
        elif new:
            await self._ensure(name)
            wanted = [ScheduleRequest(one.body, one.due_ms, one.id) for one in new]
            await self._timelines.schedule(name, wanted)

    async def _keep_in_room(
        self, name: str, waiting: Sequence[WaitingRecord], cancels: Sequence[str], replicated: ReplicatedStorage
    ) -> None:
        """Hand records to whoever keeps the topic's room."""
        topic = self._streams.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        entries = [WaitingEntry(name, one) for one in cancels]
        entries += [
            WaitingEntry(name, one.id or str(drawn), one.due_ms, new_ticket(drawn, topic.topic_id), one.body)
            for one, drawn in ((one, replicated.new_id()) for one in waiting)
        ]
        if not entries:
            return
        await self._streams.ensure_internal(WAITING)
        room = TopicPartition(WAITING, replicated.journal.partition_of(name))
        keeper = self._streams.leader_of(room)
        if keeper == NOBODY:
            raise NotEnoughReplicas(f"nobody leads {room} now; try again")
        if keeper == self._node_id and self._rooms is not None:
            await self._rooms.take(entries)
            return
        now_ms = self._clock_ms()
        for piece in pieces_of(entries):
            records = [NewRecord(*encode(one), timestamp=now_ms) for one in piece]
            await self._streams.produce_at(keeper, room, build_batch(records))

    async def _let_wait(self, partition: Partition, batch: bytearray | memoryview) -> Appended:
        """Another broker brings records for a room that this one keeps."""
        if self._rooms is None:
            raise InvalidRecord("brokers of this cluster differ in where timelines are: give all the same --timelines")
        await self._rooms.take([decode(record.key, record.value) for record in read_records(batch)])
        return Appended(NOT_APPENDED, -1, partition.log_start_offset)

    async def _append_rest(
        self, partition: Partition, batch: bytearray | memoryview, header: BatchHeader, plan: BatchSplit
    ) -> Appended:
        places = iter(range(header.count))

        def stays(_: Record) -> bool:
            return next(places) not in plan.taken

        rest = partial(compact_batch, batch, stays)
        left = rest() if opened_in_place(header) else await run_aside(rest)
        return await partition.append_own(left or empty_batch(header))

    async def _admitted(self, partition: Partition, batch: bytearray | memoryview, header: BatchHeader) -> Admitted:
        check = partial(admit, batch, header, partition.settings, self._clock_ms())
        return check() if opened_in_place(header) else await run_aside(check)

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
        task = self._supervisor.spawn("scheduled delivery", work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, name: str, granted: Sequence[Granted]) -> None:
        """Hand over what is due, then complete it; what failed comes again."""
        if name.startswith(ROOM):
            await self._deliver_from_room(name, granted)
            return
        topic = name.removeprefix(PREFIX)
        commands: list[Complete | Release] = []
        for index, entries in by_partition(granted, self._mark).items():
            commands += await self._hand_over(TopicPartition(topic, index), entries)
        await self._settle(name, commands)

    def _mark(self, message: TimedMessage) -> bytes:
        return f"{message.id}@{message.seq}{self._store}".encode()

    async def _deliver_from_room(self, name: str, granted: Sequence[Granted]) -> None:
        """Hand over what is due, write down that it waits no more, then complete it."""
        topic = name.removeprefix(ROOM)
        known = self._streams.topic(topic)
        topic_id = None if known is None else known.topic_id
        due = [one for one in granted if topic_id_of(one[0].key or b"") == topic_id]
        commands: list[Complete | Release] = [
            Complete(message.seq, lease.token)
            for message, lease in granted
            if topic_id_of(message.key or b"") != topic_id
        ]
        if self._rooms is None or not self._rooms.keeps(topic):
            return
        for index, entries in by_partition(due, lambda message: mark_of(message.key or b"")).items():
            doubtful = [one._replace(attempts=max(one.attempts, DOUBTFUL)) for one in entries]
            commands += await self._hand_over(TopicPartition(topic, index), doubtful)
        done = {one.seq for one in commands if isinstance(one, Complete)}
        try:
            await self._rooms.leave(topic, [message.id for message, _ in granted if message.seq in done])
        except TidemillError as error:  # then they come again, and are found in the log
            log.warning("scheduled_completion_failed", topic=topic, messages=len(done), error=str(error))
            commands = [one for one in commands if isinstance(one, Release)]
        await self._settle(name, commands)

    async def _settle(self, name: str, commands: Sequence[Complete | Release]) -> None:
        try:
            await self._timelines.settle(name, commands)
        except TimelineError as error:  # then they come again when their leases end, and are found in the log
            log.warning("scheduled_completion_failed", timeline=name, messages=len(commands), error=str(error))

    async def _hand_over(self, partition: TopicPartition, entries: Sequence[Due]) -> list[Complete | Release]:
        """Let the leader store records; what becomes of their messages."""
        topic = self._streams.topic(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            log.warning("scheduled_partition_gone", partition=str(partition), messages=len(entries))
            return [Complete(one.seq, one.token) for one in entries]
        commands: list[Complete | Release] = []
        for piece in in_requests(entries, topic.settings.max_message_bytes):
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
            marks = self._marks.setdefault((partition.topic, partition.index), Marks())
            known: set[bytes] = set()
            doubtful = [one.scheduled_ms for one in piece if one.attempts >= DOUBTFUL]
            if doubtful:
                known = await marks.since(partition, min(doubtful) - SLACK_MS)
            fresh = [one for one in piece if one.mark not in known]
            appended = Appended(NOT_APPENDED, -1, partition.log_start_offset)
            if fresh:
                appended = await self._append_marked(partition, fresh, marks)
            self._remember(partition.topic, piece)
            return appended

    async def _append_marked(self, partition: Partition, fresh: Sequence[Due], marks: Marks) -> Appended:
        try:
            appended = await partition.append_own(to_store(fresh, self._clock_ms()))
        except BaseException:
            marks.doubt()
            raise
        marks.stored(partition, (one.mark for one in fresh))
        return appended

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

    async def _doubtful(self, name: str) -> list[TimedMessage]:
        """The messages that the last process had leased."""
        doubtful: list[TimedMessage] = []
        end_ms = self._timelines.clock.now_ms() + LEASE_MS + SLACK_MS
        after: TimelinePosition | None = None
        while True:
            page = await self._timelines.messages(
                name, Selection(end_ms=end_ms), FIND_LIMIT_MAX, after=after, bodies=False
            )
            doubtful.extend(message for message in page if message.holder == self._holder)
            if len(page) < FIND_LIMIT_MAX:
                return doubtful
            after = TimelinePosition(page[-1].due_ms, page[-1].seq)
