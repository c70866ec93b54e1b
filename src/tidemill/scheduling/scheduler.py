"""The scheduler: takes scheduled records out of a produced batch, stores them on a timeline, and appends them when due.

A batch is acknowledged when its waiting records are durable on the timeline and the rest is in the log. Waiting records
leave a gap in the offsets: the batch is stored without them, or empty, as after a compaction. So the sequence of an
idempotent producer continues. A response names one offset for a whole batch, so each waiting record has an offset that
no other record has, and is delivered at a later one. Batches of one partition are processed one after the other, so
that no sequence overtakes another. A batch that the log already has is not scheduled again, also when its records were
delivered long ago. Transactional batches cannot contain scheduled records, and do not wait for their turn. Their
transaction was just found open; after its marker they would hang, or belong to the next one.

Exactly once. The broker that holds a due record on its timeline leases it and sends it to the leader of its partition.
The leader stores the record with the header `tidemill-message` (its mark: id and number). When it is committed, the
message is completed. A crash of either broker in between leaves a message that is leased once more. So the leader, one
record at a time in its partition's turn, stores no record whose lease is about to end, because another broker may lease
it then. For a message that was leased before, it first looks for the mark in its log, back to the time at which the
message was due. When the outcome is unknown, there is no retry before the lease has ended.

A crash between storing the waiting records and storing the rest of their batch makes the producer send the batch again.
Records that still wait are recognized by id or by sequence. Records that were delivered in the meantime are remembered
by their origin. Delivery waits for the batches of its partition, so a record is never delivered while its own batch is
being stored.

In a cluster whose brokers have separate timelines, records wait in replicated timelines (replicated_store.py). The
leader of a partition sends them to the owner of the topic's waiting timeline, which delivers them. An owner that lost
its role may still deliver when the next one starts, so the mark of such a record is always looked for.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import structlog

from tidemill.cluster.core.image import NO_BROKER
from tidemill.coordinator.journal import TopicJournal
from tidemill.model.errors import (
    InvalidRecord,
    NotEnoughReplicas,
    RequestTimedOut,
    TidemillError,
    UnknownTopicOrPartition,
)
from tidemill.model.timeline_errors import StoreUnavailable, TimelineDeleting, TimelineError, UnknownTimeline
from tidemill.model.topics import WAITING, TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compact import compact_batch, empty_batch
from tidemill.records.header import BatchHeader
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.records.validate import check_produced
from tidemill.scheduling.core.batch_split import BatchSplit, MovedRecord, Origin, WaitingRecord, split_batch
from tidemill.scheduling.core.delivery_headers import accepted_aliases
from tidemill.scheduling.core.waiting_records import (
    WaitingEntry,
    decode,
    encode,
    mark_of,
    new_ticket,
    occurrence_mark,
    topic_id_of,
)
from tidemill.scheduling.core.waiting_records import in_chunks as pieces_of
from tidemill.scheduling.delivery import SLACK_MS, Due, Marks, by_partition, in_requests, received, to_send, to_store
from tidemill.scheduling.interface import EnsureInternal, SchedulingCluster, Send
from tidemill.scheduling.replicated_store import ReplicatedStore
from tidemill.scheduling.stats import OTHER_TOPICS, ScheduledCounts
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
from tidemill.timelines.core.timeline import BODY_BYTES_LIMIT, WAITING_PREFIX, TimelineSettings, TimelineState
from tidemill.timelines.core.timeline import SCHEDULE as PREFIX
from tidemill.timelines.dispatcher import Dispatcher, ScheduleRequest

HOLDER = "tidemill-scheduler-{}"
LEASE_MS = 15_000
IN_FLIGHT_MAX = 1_000
RETRY_MS = 1_000
RETRY_S = 0.5
DOUBTFUL = 2
"""From this attempt on a record may already be in the log."""
DELIVERED_MAX = 100_000
"""The number of delivered records that are remembered, for producers that send their batch again."""
CLOSE_TIMEOUT_S = 5.0
NOT_APPENDED = -1
SETTINGS = TimelineSettings(lease_ms=LEASE_MS, body_bytes_max=BODY_BYTES_LIMIT)

log = structlog.get_logger(__name__)


class ReplicatedStorage(NamedTuple):
    """What waiting timelines need: a replicated journal, the partitions of it that this broker leads, and new ids."""

    journal: TopicJournal
    led: Callable[[], Mapping[int, int]]
    new_id: Callable[[], UUID]


class Scheduler:
    """The scheduled records of all topics of a broker."""

    def __init__(
        self,
        cluster: SchedulingCluster,
        timelines: Dispatcher,
        clock_ms: Callable[[], int],
        *,
        send: Send,
        ensure_internal: EnsureInternal,
        node_id: int = 0,
        replicated: ReplicatedStorage | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.stats = ScheduledCounts()
        self._supervisor = supervisor or Supervisor()
        self._node_id = node_id
        self._holder = HOLDER.format(node_id)
        self._store = "" if replicated is None else f".{node_id}"
        """Distinguishes the numbers of this broker's own timelines from those of others."""
        self._cluster = cluster
        self._send = send
        self._ensure_internal = ensure_internal
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
        self._replicated_store: ReplicatedStore | None = None
        if replicated is not None:
            self._replicated_store = ReplicatedStore(
                replicated.journal,
                timelines,
                self,
                settings=SETTINGS,
                led=replicated.led,
                topic=cluster.topic,
                supervisor=self._supervisor,
            )

    async def open(self) -> None:
        """Release the leases of the last process, and continue to deliver."""
        may_recover = True
        for name in self._ready():
            may_recover = may_recover and await self._recovers(name)
            self._attach(name)
        if self._replicated_store is not None:
            await self._replicated_store.open()

    def look(self) -> None:
        """The cluster has changed: waiting timelines may have other owners."""
        if self._replicated_store is not None:
            self._replicated_store.look()

    def waiting_opened(self, name: str) -> None:
        """Deliver the due records of a waiting timeline."""
        self._attach(name)

    def waiting_closed(self, name: str) -> None:
        """Stop delivering from a waiting timeline."""
        self._attached.discard(name)

    def tend(self) -> None:
        """With shared timelines, also deliver what other brokers scheduled first."""
        for name in self._ready():
            self._attach(name)

    def _ready(self) -> list[str]:
        timelines = self._timelines.timelines()
        return [one.name for one in timelines if one.name.startswith(PREFIX) and one.state is TimelineState.READY]

    async def close(self) -> None:
        """Finish running deliveries and start no more; leased messages return."""
        self._closing = True
        if self._replicated_store is not None:
            await self._replicated_store.close()
        under_way: set[asyncio.Task[Any]] = {*self._tasks, *self._storing}
        if under_way:
            await asyncio.wait(under_way, timeout=CLOSE_TIMEOUT_S)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def topic_deleted(self, topic: str) -> None:
        """Remove the waiting records of a deleted topic."""
        self.stats.forget(topic)
        self._marks = {key: marks for key, marks in self._marks.items() if key[0] != topic}
        self._delivered = OrderedDict((key, None) for key in self._delivered if key[0] != topic)
        if self._replicated_store is not None:
            self._start(self._empty(topic, self._replicated_store))
        if PREFIX + topic in {one.name for one in self._timelines.timelines()}:
            self._attached.discard(PREFIX + topic)
            with contextlib.suppress(UnknownTimeline, TimelineDeleting):  # another broker was faster
                await self._timelines.delete(PREFIX + topic)

    async def _empty(self, topic: str, store: ReplicatedStore) -> None:
        try:
            await store.topic_deleted(topic)
        except TidemillError as error:  # the next owner that reads the journal leaves them out
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
        """Store a produced batch: some records now, others later. A timeout does not cancel the waiting records."""
        header = check_produced(batch, version=version)
        check_opened(header, partition.settings)
        aliases = accepted_aliases(partition.settings.tidemill_schedule_aliases)
        make_plan = partial(split_batch, batch, header, partition.index, self._counted_ms(), aliases, partition.topic)
        if header.transactional:  # its plan rejects records that cannot be in a transaction
            return await partition.leader.append(
                batch, acks=acks, request_version=version, timeout_s=timeout_s, inspect=make_plan, verify=verify
            )
        async with self._turn(partition.topic, partition.index):
            plan = make_plan() if opened_in_place(header) else await run_aside(make_plan)
            if plan is None:
                return await partition.leader.append(batch, acks=acks, request_version=version, timeout_s=timeout_s)
            admitted, header = await self._admitted(partition, batch, header)
            if not partition.leader.has(header):
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
        """Store a batch of another broker: scheduled records that are due, or its own, such as dead letters.

        A started write is not cancelled when that broker disconnects: the next owner must find all of it or nothing.
        """
        check_produced(batch, version=version)
        if partition.topic == WAITING:
            return await self._take_from_peer(partition, batch)
        due = received(batch)
        if due is None:
            return await partition.leader.append(
                batch, acks=acks, request_version=version, timeout_s=timeout_s, verify=verify
            )
        task = asyncio.create_task(self._store_here(partition, due))
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)
        return await asyncio.shield(task)

    def _counted_ms(self) -> int | None:
        """The time that delays count from: monotonic after a jump, None without a correct time of day."""
        return self._timelines.clock.now_ms() if self._timelines.guard.may_count else None

    def _turn(self, topic: str, index: int) -> asyncio.Lock:
        return self._order.setdefault((topic, index), asyncio.Lock())

    async def _keep(self, topic: str, plan: BatchSplit) -> None:
        name = PREFIX + topic
        new = [one for one in plan.waiting if one.origin is None or (topic, one.origin) not in self._delivered]
        if plan.cancels:
            with contextlib.suppress(UnknownTimeline, TimelineDeleting):  # without a timeline nothing waits
                await self._timelines.find(name)
                await self._timelines.cancel(name, plan.cancels)
        if self._replicated is not None:
            await self._keep_in_replicated_store(topic, new, plan, self._replicated)
            return
        await self._move(name, plan.early_moves)
        if new:
            await self._ensure(name)
            wanted = [ScheduleRequest(one.body, one.due_ms, one.id, rule=one.rule) for one in new]
            await self._timelines.schedule(name, wanted)
        await self._move(name, plan.late_moves)

    async def _move(self, name: str, moves: Iterable[MovedRecord]) -> None:
        """Move records that wait; those that are being delivered, or do not exist, stay as they are."""
        for one in moves:
            with contextlib.suppress(UnknownTimeline, TimelineDeleting):  # without a timeline nothing waits
                await self._timelines.find(name)
                await self._timelines.move(name, [one.id], one.due_ms)

    async def _keep_in_replicated_store(
        self, name: str, waiting: Sequence[WaitingRecord], plan: BatchSplit, replicated: ReplicatedStorage
    ) -> None:
        """Send records, cancels and moves to the owner of the topic's waiting timeline."""
        topic = self._cluster.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        entries = [WaitingEntry(name, one) for one in plan.cancels]
        entries += [WaitingEntry(name, one.id, one.due_ms, moves=True) for one in plan.early_moves]
        entries += [
            WaitingEntry(name, one.id or str(drawn), one.due_ms, new_ticket(drawn, topic.topic_id), one.body, one.rule)
            for one, drawn in ((one, replicated.new_id()) for one in waiting)
        ]
        entries += [WaitingEntry(name, one.id, one.due_ms, moves=True) for one in plan.late_moves]
        if not entries:
            return
        await self._ensure_internal(WAITING)
        journal = TopicPartition(WAITING, replicated.journal.partition_of(name))
        owner = self._cluster.leader_of(journal)
        if owner == NO_BROKER:
            raise NotEnoughReplicas(f"{journal} has no leader now; try again")
        if owner == self._node_id and self._replicated_store is not None:
            await self._replicated_store.take(entries)
            return
        now_ms = self._clock_ms()
        for piece in pieces_of(entries):
            records = [NewRecord(*encode(one), timestamp=now_ms) for one in piece]
            await self._send(owner, journal, build_batch(records))

    async def _take_from_peer(self, partition: Partition, batch: bytearray | memoryview) -> Appended:
        """Take records from another broker for a waiting timeline that this one owns."""
        if self._replicated_store is None:
            raise InvalidRecord(
                "the brokers of this cluster have different timeline stores; give all the same --timelines"
            )
        await self._replicated_store.take([decode(record.key, record.value) for record in read_records(batch)])
        return Appended(NOT_APPENDED, -1, partition.log_start_offset)

    async def _append_rest(
        self, partition: Partition, batch: bytearray | memoryview, header: BatchHeader, plan: BatchSplit
    ) -> Appended:
        places = iter(range(header.count))

        def stays(_: Record) -> bool:
            return next(places) not in plan.taken

        rest = partial(compact_batch, batch, stays)
        left = rest() if opened_in_place(header) else await run_aside(rest)
        return await partition.leader.append_own(left or empty_batch(header))

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
        """Reattach when the timeline has other settings, or was deleted and exists again."""
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
        """Send due records to their leaders, then complete them; failed ones are delivered again."""
        if name.startswith(WAITING_PREFIX):
            await self._deliver_replicated(name, granted)
            return
        topic = name.removeprefix(PREFIX)
        commands: list[Complete | Release] = []
        for index, entries in by_partition(granted, self._mark).items():
            commands += await self._hand_over(TopicPartition(topic, index), entries)
        await self._settle(name, commands)

    def _mark(self, message: TimedMessage) -> bytes:
        """The mark of a record in the log. One that came from another store has brought it along."""
        mark = message.key or f"{message.id}@{message.seq}{self._store}".encode()
        return occurrence_mark(mark, message.scheduled_ms) if message.recurrence else mark

    async def _deliver_replicated(self, name: str, granted: Sequence[Granted]) -> None:
        """Send due records to their leaders, record in the journal that they no longer wait, then complete them."""
        topic = name.removeprefix(WAITING_PREFIX)
        known = self._cluster.topic(topic)
        topic_id = None if known is None else known.topic_id
        due = [one for one in granted if topic_id_of(one[0].key or b"") == topic_id]
        commands: list[Complete | Release] = [
            Complete(message.seq, lease.token)
            for message, lease in granted
            if topic_id_of(message.key or b"") != topic_id
        ]
        if self._replicated_store is None or not self._replicated_store.owns(topic):
            return
        for index, entries in by_partition(due, _replicated_mark).items():
            doubtful = [one._replace(attempts=max(one.attempts, DOUBTFUL)) for one in entries]
            commands += await self._hand_over(TopicPartition(topic, index), doubtful)
        done = {one.seq for one in commands if isinstance(one, Complete)}
        recurring = {message.seq for message, _ in due if message.recurrence and message.seq in done}
        once = [message.id for message, _ in granted if message.seq in done - recurring]
        try:
            await self._replicated_store.leave(topic, once)
            if recurring:
                await self._replicated_store.recur(topic, [one for one in due if one.message.seq in recurring])
            commands = [one for one in commands if one.seq not in recurring]
        except TidemillError as error:  # they are delivered again, and found in the log
            log.warning("scheduled_completion_failed", topic=topic, messages=len(done), error=str(error))
            commands = [one for one in commands if isinstance(one, Release)]
        await self._settle(name, commands)

    async def _settle(self, name: str, commands: Sequence[Complete | Release]) -> None:
        try:
            await self._timelines.settle(name, commands)
        except TimelineError as error:  # they are delivered again when their leases end, and found in the log
            log.warning("scheduled_completion_failed", timeline=name, messages=len(commands), error=str(error))

    async def _hand_over(self, partition: TopicPartition, entries: Sequence[Due]) -> list[Complete | Release]:
        """Let the leader store records; the commands for their messages."""
        topic = self._cluster.topic(partition.topic)
        stats = self.stats.of(OTHER_TOPICS if topic is None else topic.name)
        if topic is None or partition.partition >= len(topic.partitions):
            log.warning("scheduled_partition_gone", partition=str(partition), messages=len(entries))
            stats.dropped += len(entries)
            return [Complete(one.seq, one.token) for one in entries]
        commands: list[Complete | Release] = []
        for piece in in_requests(entries, topic.settings.max_message_bytes):
            try:
                await self._store_at_leader(partition, piece)
            except RequestTimedOut as error:  # they may be stored: no retry before their leases have ended
                stats.failed += len(piece)
                log.warning("scheduled_delivery_unknown", partition=str(partition), error=str(error))
            except (TidemillError, OSError) as error:
                stats.failed += len(piece)
                log.warning("scheduled_delivery_failed", partition=str(partition), error=str(error))
                again_ms = self._timelines.clock.now_ms() + RETRY_MS
                commands += [Release(one.seq, one.token, again_ms) for one in piece]
            else:
                stats.stored(piece, self._timelines.clock.now_ms())
                commands += [Complete(one.seq, one.token) for one in piece]
        return commands

    async def _store_at_leader(self, partition: TopicPartition, piece: Sequence[Due]) -> None:
        leader = self._cluster.leader_of(partition)
        if leader == self._node_id:
            await self._store_here(self._cluster.partition(*partition), piece)
        else:
            await self._send(leader, partition, to_send(piece))

    async def _store_here(self, partition: Partition, piece: Sequence[Due]) -> Appended:
        """Store the records that are not in the log yet, in the partition's turn."""
        async with self._turn(partition.topic, partition.index):
            partition.check_leads()
            now_ms = self._timelines.clock.now_ms()
            if any(one.until_ms - SLACK_MS < now_ms for one in piece):
                raise RequestTimedOut(
                    "the lease of a scheduled record is about to end; it is delivered again after that"
                )
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
            appended = await partition.leader.append_own(to_store(fresh, self._clock_ms()))
        except BaseException:
            marks.doubt()
            raise
        marks.stored(partition, (one.mark for one in fresh))
        return appended

    def _remember(self, topic: str, delivered: Iterable[Due]) -> None:
        self._delivered.update(((topic, one.origin), None) for one in delivered if one.origin is not None)
        while len(self._delivered) > DELIVERED_MAX:
            self._delivered.popitem(last=False)

    async def _recovers(self, name: str) -> bool:
        """Recover; False while a shared store does not answer. The leases end anyway."""
        try:
            await self._recover(name)
        except StoreUnavailable as error:
            if not self._timelines.shared:
                raise
            log.warning("scheduled_recovery_skipped", topic=name.removeprefix(PREFIX), error=str(error))
            return False
        return True

    async def _recover(self, name: str) -> None:
        """End the leases of the last process at once; those that have already ended return by themselves."""
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


def _replicated_mark(message: TimedMessage) -> bytes:
    mark = mark_of(message.key or b"")
    return occurrence_mark(mark, message.scheduled_ms) if message.recurrence else mark
