"""The delivery of one timeline: from the prefetch, at the due time, under a lease, to one consumer.

Theory of operation. One loop deals: it takes back leases that ended, turns the window, queues what is ripe, and
leases one batch for all consumers with room in one write to the store; then it looks again. While a batch is being
written the next one gathers, so that the batches grow with the load and the store sees few, large writes. With
nothing to do the loop sleeps until the next message is ripe, the next lease ends or the window turns; there is no
polling.

A lease is written up to `EARLY_MS` before the due time and pushed at the due time itself (`outgoing.py`): the time
the store needs does not make messages late, and none is early. To a consumer that says it holds back what is early,
a message is sent sooner by the measured way to it: a message on the wire cannot be stopped when the way has become
shorter, but at its end it can. To every other consumer nothing is sent before its due time.

A message whose attempts are used up is never leased again: it goes to the dead-letter timeline or topic, also when no
consumer is there. What must never happen: a message that is in nobody's hands and in none of prefetch, queue, notes or
the part of the store behind the frontier. It would be found by the next rescan only.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

import structlog

from tidemill.model.timeline_errors import TimelineError
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.clock import Clock
from tidemill.timelines.consumer import Granted, TimelineConsumer
from tidemill.timelines.consumer_queues import ConsumerQueues
from tidemill.timelines.core.lease import Claim, Command, CommandOutcome, Complete, Extend, LeaseGrant, Release
from tidemill.timelines.core.message import NewMessage, Scheduled, TimedMessage
from tidemill.timelines.core.shared_windows import ConsumerPlace
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.dead_letter_queue import Bury, DeadLetterQueue
from tidemill.timelines.health import HealthMonitor
from tidemill.timelines.interface import SharedConsumers, TimelineStore
from tidemill.timelines.leases import Held, LeaseTable
from tidemill.timelines.prefetch import Prefetch
from tidemill.timelines.prefetcher import Prefetcher
from tidemill.timelines.push_timer import PushTimer
from tidemill.timelines.stats import TimelineStats
from tidemill.timelines.wakeup import Wakeup

EARLY_MS = 100
GATHER_MS = 20
"""Part of that time, in which messages gather for one write; the rest is for the write itself."""
LEASE_BATCH_MAX = 1_000
QUEUED_MESSAGES_MAX = 10_000
QUEUED_BYTES_MAX = 64 * 1024 * 1024
RETRY_MS = 500
PAUSE_S_MIN = 0.001
PAUSE_S_MAX = 1.0
"""Looks again at least this often while consumers are there, should the clock have been set."""

log = structlog.get_logger(__name__)


class TimelineDelivery:
    """Delivers the messages of one timeline to its consumers."""

    def __init__(
        self,
        name: str,
        settings: TimelineSettings,
        store: TimelineStore,
        clock: Clock,
        guard: HealthMonitor,
        stats: TimelineStats,
        supervisor: Supervisor,
        *,
        shared: bool,
        attendance: SharedConsumers | None,
        bury: Bury,
    ) -> None:
        self.name = name
        self.settings = settings
        self.roster = ConsumerQueues(name, settings, attendance)
        self._store = store
        self._clock = clock
        self._guard = guard
        self._stats = stats
        self._supervisor = supervisor
        self._burial = DeadLetterQueue(name, bury, buried=self._buried)
        self._alarm = Wakeup()
        self._ledger = LeaseTable()
        self._prefetch = Prefetch(early_ms=EARLY_MS, gather_ms=GATHER_MS)
        self._outgoing = PushTimer(clock, self._pushed)
        self._moving: dict[int, int] = {}
        self._feed = Prefetcher(
            name, store, clock, guard, self._prefetch, shared=shared, skip=self._in_hand, fed=self._alarm.ring
        )
        self._feed.wanted = settings.max_attempts > 0
        self._dealing = False
        self._returning: set[asyncio.Task[None]] = set()
        self._tasks = [
            supervisor.keep("timeline delivery", self._deal, about=name),
            supervisor.keep("timeline feed", self._feed.run, about=name),
            supervisor.keep("timeline dead letters", self._burial.run, about=name),
        ]

    async def close(self) -> None:
        """Stop; what is leased returns when its lease ends."""
        self._outgoing.close()
        for task in (*self._tasks, *self._returning):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._returning, return_exceptions=True)

    def join(self, consumer: TimelineConsumer) -> None:
        """A consumer is there."""
        self.roster.join(consumer, self._clock.now_ms())
        if not self._feed.wants_bodies:
            self._feed.wanted = self._feed.wants_bodies = True
            self._feed.start_over()
        self._dealt()

    def leave(self, consumer: TimelineConsumer) -> None:
        """A consumer is gone; without any, nothing is kept in memory for nobody."""
        self.roster.leave(consumer, self._clock.now_ms())
        if not self.roster.consumers:
            for message in self.roster.give_up():
                self._moving.pop(message.seq, None)
            self._feed.wants_bodies = False
            self._feed.wanted = self.settings.max_attempts > 0
            self._feed.start_over()
        self._dealt()

    def attend(self, seats: Iterable[ConsumerPlace]) -> None:
        """Consumers of other brokers came or went, or ours are known to all."""
        self.roster.told(seats, self._clock.now_ms())
        self._dealt()

    def _dealt(self) -> None:
        """The buckets may have been dealt anew: bring what is ours now, let go of what is another broker's."""
        self._let_go()
        self._feed.deal(self.roster.own(), self.roster.backed_up())
        self._alarm.ring()

    def _let_go(self) -> None:
        for message in self.roster.let_go():
            self._moving.pop(message.seq, None)

    def wake(self) -> None:
        """Something changed: look again."""
        self._alarm.ring()

    def scheduled(self, new: Sequence[NewMessage], kept: Sequence[Scheduled]) -> None:
        """Messages were written to the store."""
        self._feed.add_new(new, kept)

    def moved(self, message_id: str, due_ms: int) -> None:
        """A message has another due time."""
        self._feed.note(message_id, due_ms)

    def rescan(self) -> None:
        """Messages came in by another way."""
        self._feed.rescan()

    async def settle(self, commands: Sequence[Command]) -> list[CommandOutcome]:
        """Carry out what consumers report about their leases."""
        now_ms = self._clock.now_ms()
        outcomes = await self._guard.ask_store(lambda: self._store.settle(self.name, commands, now_ms=now_ms))
        now_ms = self._clock.now_ms()
        for command, outcome in zip(commands, outcomes, strict=True):
            self._settled(command, outcome, now_ms)
        self._alarm.ring()
        return outcomes

    def _settled(self, command: Command, outcome: CommandOutcome, now_ms: int) -> None:
        if not isinstance(command, Complete | Release | Extend):
            return
        if outcome is CommandOutcome.DONE and isinstance(command, Extend):
            self._ledger.extend(command.seq, command.token, command.until_ms)
        elif outcome is CommandOutcome.DONE or outcome is CommandOutcome.MISSING:
            held = self._ledger.drop(command.seq, command.token)
            if held is not None:
                held.consumer.moved_ms = now_ms
                if isinstance(command, Release):
                    self._feed.note(held.id, command.due_ms)

    def _in_hand(self, message: TimedMessage) -> bool:
        """Whether this state of the message is queued, being leased, or leased by us."""
        if self._moving.get(message.seq, -1) >= message.version:
            return True
        return message.holder is not None and self._ledger.get(message.seq, message.token) is not None

    def _start_over(self) -> None:
        """After an unexpected error: read everything that is not leased from the store again."""
        self.roster.give_up()
        self.roster.let_go()
        self._moving.clear()
        for consumer in self.roster.consumers.values():
            consumer.reserved = 0
        self._feed.start_over()
        self._outgoing.flush()

    async def _deal(self) -> None:
        if self._dealing:
            self._start_over()
        self._dealing, failing = True, False
        while True:
            try:
                if not await self._deal_once():
                    await self._sleep()
                failing = False
            except TimelineError as error:
                if not failing:
                    log.warning("messages could not be leased", timeline=self.name, error=str(error))
                failing = True
                await asyncio.sleep(RETRY_MS / 1_000)

    async def _deal_once(self) -> bool:
        """One round; whether there may be more to do at once."""
        now_ms = self._clock.now_ms()
        for held in self._ledger.expire(now_ms):
            held.consumer.moved_ms = held.consumer.suspect_ms = now_ms
            self._feed.note(held.id, held.until_ms)  # where it stands now, also if that is noticed late
        for consumer in self.roster.consumers.values():
            if consumer.room():
                consumer.moved_ms = now_ms
        if self.roster.consumers and now_ms >= self.roster.ends_ms:
            self.roster.turn(now_ms)
            self._dealt()
        if not self._guard.may_lease:
            return False
        self._burial.add(self._ripen(now_ms))
        pairs = self.roster.take(now_ms, LEASE_BATCH_MAX)
        if pairs:
            await self._lease(pairs)
        return bool(pairs)

    def _ripen(self, now_ms: int) -> list[TimedMessage]:
        """Queue what is ripe; the messages whose attempts are used up are returned instead."""
        exhausted: list[TimedMessage] = []
        ripe: list[TimedMessage] = []
        wake_ms = self._prefetch.wake_ms()
        if wake_ms is None or wake_ms > now_ms:
            return exhausted
        for message in self._prefetch.pop_ripe(now_ms, self._queue_room()):
            if self.settings.exhausted(message.attempts):
                exhausted.append(message)
                self._moving[message.seq] = message.version
            elif self.roster.consumers:
                ripe.append(message)
                self._moving[message.seq] = message.version
        self.roster.queue(ripe, now_ms)
        self._let_go()
        self._feed.taken_out()
        return exhausted

    def _queue_room(self) -> int:
        return QUEUED_MESSAGES_MAX - self.roster.queued if self.roster.queued_bytes < QUEUED_BYTES_MAX else 0

    def _buried(self, dead: Sequence[TimedMessage], done: bool) -> None:
        for message in dead:
            self._moving.pop(message.seq, None)
        if not done:
            self._feed.rescan()

    async def _lease(self, pairs: Sequence[tuple[TimelineConsumer, TimedMessage]]) -> None:
        now_ms = self._clock.now_ms()
        default_ms = self.settings.lease_ms
        claims = [
            Claim(
                one.seq, one.version, holder.id, max(now_ms, one.due_ms) + (holder.lease_ms or default_ms), one.due_ms
            )
            for holder, one in ((consumer.terms, message) for consumer, message in pairs)
        ]
        leases: Sequence[LeaseGrant | None] = ()
        try:
            leases = await self._guard.ask_store(
                lambda: self._store.acquire(self.name, claims, now_ms=now_ms, early_ms=EARLY_MS)
            )
        finally:
            for consumer, message in pairs:
                consumer.reserved -= 1
                self._moving.pop(message.seq, None)
            if not leases:
                self._feed.rescan()
        gone = [one for one in map(self._grant, pairs, leases) if one is not None]
        self._outgoing.flush()
        if gone:
            await self._give_back(gone)

    def _grant(self, pair: tuple[TimelineConsumer, TimedMessage], lease: LeaseGrant | None) -> Held | None:
        """Enter the lease and send it; returned is one whose consumer left in the meantime."""
        consumer, message = pair
        if lease is None:
            return None
        held = Held(consumer, message.seq, message.id, lease.token, lease.until_ms)
        self._ledger.grant(held)
        if self.roster.consumers.get(consumer.id) is not consumer:
            return held
        self._outgoing.add(consumer, Granted(message, lease))
        return None

    async def _give_back(self, gone: Iterable[Held]) -> None:
        now_ms = self._clock.now_ms()
        with suppress(TimelineError):  # then they return when their leases end
            await self.settle([Release(one.seq, one.token, now_ms) for one in gone])

    def _pushed(self, consumer: TimelineConsumer, granted: list[Granted]) -> None:
        now_ms = self._clock.late_ms(0)
        late_ms = [max(0.0, now_ms - message.scheduled_ms) for message, lease in granted if lease.attempts <= 1]
        self._stats.leased(len(granted), sum(one.message.size for one in granted), late_ms)
        if self.roster.consumers.get(consumer.id) is not consumer:
            self._return(granted)
            return
        try:
            consumer.push(granted)
        except Exception as error:  # noqa: BLE001 - one consumer must not stop the delivery to the others
            # Its leases run out: returned at once, they would go to the same consumer again without a pause.
            self._supervisor.note_failure("timeline push", error, about=self.name)

    def _return(self, granted: Iterable[Granted]) -> None:
        """Give back what was leased for a consumer that left before it was sent: others need not wait for its end."""
        held = (self._ledger.get(lease.seq, lease.token) for _, lease in granted)
        give_back = self._give_back([one for one in held if one is not None])
        task = self._supervisor.spawn("timeline lease return", give_back, about=self.name)
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _sleep(self) -> None:
        until_ms = self._next_ms()
        if until_ms is None:
            await self._alarm.wait(PAUSE_S_MAX if self.roster.consumers else None)
            return
        pause_s = self._clock.delay_s(until_ms)
        await self._alarm.wait(min(max(pause_s, PAUSE_S_MIN), PAUSE_S_MAX))
        late_ms = self._clock.late_ms(until_ms)
        if 0 < pause_s < PAUSE_S_MAX and late_ms >= 0:
            self._stats.wakeup.add(late_ms)

    def _next_ms(self) -> int | None:
        """When there is something to do next: a message is ripe, a lease ends, or the window turns."""
        times = [end_ms for end_ms in (self._ledger.next_end_ms(),) if end_ms is not None]
        if self.roster.consumers:
            times.append(self.roster.ends_ms)
        wake_ms = self._prefetch.wake_ms()
        if wake_ms is not None and self._guard.may_lease and self._queue_room() > 0:
            times.append(wake_ms)
        return min(times, default=None)
