"""Takes records for later off a produced batch, keeps them on the topic's timeline, and appends them when they are due.

A batch is answered when its waiting records are durable on the timeline and the rest is in the log. Records of an
idempotent producer leave their sequence numbers behind: the batch is stored with holes, or empty, as after a
compaction. Batches of one partition go through here one after the other, so that no sequence overtakes another. A
batch that the log has already is not scheduled again, also when its records were delivered long ago.

Exactly once. A due record is leased, appended with the header `tidemill-message` (id and number), flushed, and then
completed. A crash between append and completion leaves a lease behind; the next start ends these leases: it looks for
the numbers of such messages in the log, from the time at which the first of these leases began, and completes what it
finds instead of appending it again. In one process a number that was appended is remembered until its completion is
known.

A crash between keeping the waiting records and storing the rest of their batch makes the producer send it again. What
still waits is known by its id or by its sequence; what was delivered in the meantime is remembered by where it came
from. Delivery takes its turn behind the batches of its partition, so that a record is never delivered while its own
batch is on the way."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import structlog

from tidemill.broker.scheduling.log import Due, Streams, by_partition, deliver, delivered_since
from tidemill.broker.scheduling.plan import Origin, Plan, plan_batch
from tidemill.model.errors import NotLeaderOrFollower, TidemillError, UnknownTopicOrPartition
from tidemill.model.timeline_errors import TimelineError
from tidemill.records.compact import compact_batch
from tidemill.records.header import BatchHeader
from tidemill.records.record import Record
from tidemill.records.validate import check_produced
from tidemill.streams.core.admission import admit
from tidemill.streams.partition import Appended, Partition
from tidemill.timelines.consumer import ConsumerTerms, Granted
from tidemill.timelines.core.lease import Complete, Outcome, Release
from tidemill.timelines.core.message import BATCH_MESSAGES_MAX, FIND_LIMIT_MAX, Message, Place, Selection
from tidemill.timelines.core.timeline import BODY_BYTES_LIMIT, State, TimelineSettings
from tidemill.timelines.dispatcher import Dispatcher, Wanted

PREFIX = "__schedule."
HOLDER = "tidemill-scheduler-{}"
LEASE_MS = 30_000
IN_FLIGHT_MAX = 1_000
SLACK_MS = 5_000
RETRY_S = 0.5
DELIVERED_MAX = 100_000
"""So many delivered records are remembered, for producers that send their batch again."""
CLOSE_TIMEOUT_S = 5.0
NOT_APPENDED = -1
SETTINGS = TimelineSettings(lease_ms=LEASE_MS, body_bytes_max=BODY_BYTES_LIMIT)

log = structlog.get_logger(__name__)


class Scheduler:
    """The records for later of all topics of a broker."""

    def __init__(
        self, streams: Streams, timelines: Dispatcher, clock_ms: Callable[[], int], *, node_id: int = 0
    ) -> None:
        self._holder = HOLDER.format(node_id)
        self._streams = streams
        self._timelines = timelines
        self._clock_ms = clock_ms
        self._attached: set[str] = set()
        self._appended: dict[str, set[int]] = {}
        self._delivered: OrderedDict[tuple[str, Origin], None] = OrderedDict()
        self._order: dict[tuple[str, int], asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    async def open(self) -> None:
        """Find out what the last process had appended and not completed, and go on delivering."""
        for timeline in self._timelines.timelines():
            if timeline.name.startswith(PREFIX) and timeline.state is State.READY:
                await self._recover(timeline.name)
                self._attach(timeline.name)

    async def close(self) -> None:
        """Finish what is being delivered and deliver nothing more; what is leased returns."""
        self._closing = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def topic_deleted(self, topic: str) -> None:
        """The topic's waiting records go with it."""
        if PREFIX + topic in {one.name for one in self._timelines.timelines()}:
            self._attached.discard(PREFIX + topic)
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

    def _turn(self, topic: str, index: int) -> asyncio.Lock:
        return self._order.setdefault((topic, index), asyncio.Lock())

    async def _keep(self, topic: str, plan: Plan) -> None:
        name = PREFIX + topic
        new = [one for one in plan.waiting if one.origin is None or (topic, one.origin) not in self._delivered]
        if new:
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
        """Append what is due, then complete it; what fails comes again when its lease ends."""
        topic = name.removeprefix(PREFIX)
        appended = self._appended.setdefault(name, set())
        fresh = [message for message, _ in granted if message.seq not in appended]
        try:
            for index, entries in by_partition(fresh, self._clock_ms()).items():
                async with self._turn(topic, index):
                    async for piece in deliver(self._streams, topic, index, entries):
                        appended.update(one.seq for one in piece)
                        self._remember(topic, piece)
            done = [Complete(lease.seq, lease.token) for message, lease in granted if message.seq in appended]
            outcomes = await self._timelines.settle(name, done)
        except TidemillError as error:
            log.warning("scheduled_delivery_failed", topic=topic, messages=len(granted), error=str(error))
            return
        for command, outcome in zip(done, outcomes, strict=True):
            if outcome is Outcome.DONE or outcome is Outcome.MISSING:
                appended.discard(command.seq)

    def _remember(self, topic: str, delivered: Iterable[Due]) -> None:
        self._delivered.update(((topic, one.origin), None) for one in delivered if one.origin is not None)
        while len(self._delivered) > DELIVERED_MAX:
            self._delivered.popitem(last=False)

    async def _recover(self, name: str) -> None:
        doubtful = await self._doubtful(name)
        if not doubtful:
            return
        topic = name.removeprefix(PREFIX)
        since_ms = min(message.due_ms for message in doubtful) - LEASE_MS - SLACK_MS
        found = await delivered_since(self._partitions(topic), since_ms)
        appended = self._appended[name] = found & {message.seq for message in doubtful}
        log.info("scheduled_recovered", topic=topic, doubtful=len(doubtful), appended=len(appended))
        await self._settle_doubtful(name, doubtful, appended)

    async def _settle_doubtful(self, name: str, doubtful: Iterable[Message], appended: set[int]) -> None:
        """End the leases of the last process at once; those that have ended come again by themselves."""
        now_ms = self._timelines.clock.now_ms()
        commands: list[Complete | Release] = [
            Complete(one.seq, one.token) if one.seq in appended else Release(one.seq, one.token, now_ms)
            for one in doubtful
            if one.due_ms > now_ms
        ]
        for first in range(0, len(commands), BATCH_MESSAGES_MAX):
            batch = commands[first : first + BATCH_MESSAGES_MAX]
            for command, outcome in zip(batch, await self._timelines.settle(name, batch), strict=True):
                if outcome is Outcome.DONE:
                    appended.discard(command.seq)

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

    def _partitions(self, topic: str) -> Iterable[Partition]:
        known = self._streams.topic(topic)
        for info in known.partitions if known else ():
            with contextlib.suppress(UnknownTopicOrPartition, NotLeaderOrFollower):
                yield self._streams.partition(topic, info.index)
