"""The delivery of one timeline: from the prefetch, at the due time, under a lease, to one consumer.

How it works. One loop deals. It takes back leases that ended, advances the window, queues ripe messages, and leases one
batch for all consumers with capacity in one write to the store; then it starts again. While one batch is written the
next one collects, so the batches grow with the load and the store gets few, large writes. When there is nothing to do,
the loop sleeps until the next message is ripe, the next lease ends or the window changes. It does not poll.

A lease is written up to `EARLY_MS` before the due time and pushed at the due time (`push_timer.py`). So the time that
the store needs does not make messages late, and none is early. A consumer that holds early messages back gets a message
earlier by the measured latency. A message in flight cannot be stopped when the latency has dropped, but such a consumer
can delay it. Every other consumer gets nothing before its due time.

A message whose attempts are used up is never leased again. It goes to the dead-letter timeline or topic, also when
there is no consumer. Invariant: every message is held by a consumer, or is in the prefetch, a queue, the notes, or the
part of the store after the frontier. Otherwise only the next rescan would find it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from tidemill.model.timeline_errors import TimelineError
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.clock import Clock
from tidemill.timelines.consumer import Granted, TimelineConsumer
from tidemill.timelines.consumer_queues import ConsumerQueues
from tidemill.timelines.core.circuit import CircuitState, DeliveryCircuit
from tidemill.timelines.core.lease import (
    Claim,
    Command,
    CommandOutcome,
    Complete,
    CompleteAs,
    Extend,
    LeaseGrant,
    Release,
)
from tidemill.timelines.core.load import AVAILABLE_MAX
from tidemill.timelines.core.message import MessageStatus, NewMessage, Scheduled, Selection, TimedMessage
from tidemill.timelines.core.message_queue import Draw
from tidemill.timelines.core.shared_windows import ConsumerPlace
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.dead_letter_queue import DeadLetterQueue, MoveDeadLetters
from tidemill.timelines.health import HealthMonitor
from tidemill.timelines.interface import SharedConsumers, TimelineStore
from tidemill.timelines.leases import Held, LeaseTable
from tidemill.timelines.load_reader import LoadReader
from tidemill.timelines.missed_occurrences import MissedOccurrences, is_missed
from tidemill.timelines.prefetch import Prefetch
from tidemill.timelines.prefetcher import Prefetcher
from tidemill.timelines.push_timer import PushTimer
from tidemill.timelines.stats import CHANGED, CONSUMER_LEFT, EXPIRED, LEASED, TimelineStats
from tidemill.timelines.wakeup import Wakeup

EARLY_MS = 100
GATHER_MS = 20
"""The part of EARLY_MS in which messages collect for one write; the rest is for the write itself."""
LEASE_BATCH_MAX = 1_000
QUEUED_MESSAGES_MAX = 10_000
QUEUED_BYTES_MAX = 64 * 1024 * 1024
RETRY_MS = 500
PAUSE_S_MIN = 0.001
PAUSE_S_MAX = 1.0
"""The loop runs at least this often while there are consumers, in case the clock was set."""

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
        registry: SharedConsumers | None,
        move_dead: MoveDeadLetters,
        draw: Draw,
    ) -> None:
        self.name = name
        self.settings = settings
        self.queues = ConsumerQueues(name, settings, registry, draw)
        self._store = store
        self._clock = clock
        self._guard = guard
        self._stats = stats
        self._supervisor = supervisor
        self._dead_letters = DeadLetterQueue(name, move_dead, moved=self._dead_moved)
        missed = MissedOccurrences(name, store, clock, guard, stats)
        self._missed = DeadLetterQueue(
            name, missed.pass_over, moved=self._passed_over, failure="missed_occurrence_failed"
        )
        self._wakeup = Wakeup()
        self._leases = LeaseTable()
        self._prefetch = Prefetch(early_ms=EARLY_MS, gather_ms=GATHER_MS)
        self._push_timer = PushTimer(clock, self._pushed)
        self._moving: dict[int, int] = {}
        self.circuit = DeliveryCircuit(settings.failing_percent)
        self.load = LoadReader(clock, self._count_available, self.queues.oldest_ms, self.queues.share_here)
        self._feed = Prefetcher(
            name, store, clock, guard, self._prefetch, shared=shared, skip=self._in_hand, fed=self._wakeup.notify
        )
        self._feed.wanted = settings.max_attempts > 0
        self._dealing = False
        self._returning: set[asyncio.Task[None]] = set()
        self._tasks = [
            supervisor.keep("timeline delivery", self._deal, about=name),
            supervisor.keep("timeline feed", self._feed.run, about=name),
            supervisor.keep("timeline dead letters", self._dead_letters.run, about=name),
            supervisor.keep("timeline load", self.load.run, about=name),
            supervisor.keep("timeline missed occurrences", self._missed.run, about=name),
        ]

    async def close(self) -> None:
        """Stop; leased messages return when their leases end."""
        self._push_timer.close()
        self._guard.stopped(self.name, "")
        for task in (*self._tasks, *self._returning):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._returning, return_exceptions=True)

    def join(self, consumer: TimelineConsumer) -> None:
        """Add a consumer."""
        self.queues.join(consumer, self._clock.now_ms())
        if not self._feed.wants_bodies:
            self._feed.wanted = self._feed.wants_bodies = True
            self._feed.start_over()
        self._want_load()
        self._dealt()

    def leave(self, consumer: TimelineConsumer) -> None:
        """Remove a consumer; without consumers, no messages are kept in memory."""
        self.queues.leave(consumer, self._clock.now_ms())
        if not self.queues.consumers:
            for message in self.queues.give_up():
                self._moving.pop(message.seq, None)
            self._feed.wants_bodies = False
            self._feed.wanted = self.settings.max_attempts > 0
            self._feed.start_over()
        self._want_load()
        self._dealt()

    def _want_load(self) -> None:
        self.load.want(wanted=not all(one.terms.in_process for one in self.queues.consumers.values()))

    async def _count_available(self) -> int:
        """What is due, or is within EARLY_MS, and not leased. The store counts only what is not all in memory."""
        now_ms, available = self._clock.now_ms(), Selection(status=MessageStatus.AVAILABLE)
        share = self.queues.share_here()
        if share > 0 and self._queue_capacity() > 0 and self._prefetch.covers(now_ms):
            return min(AVAILABLE_MAX, round(self.queues.queued / share))
        tally = partial(self._store.tally, self.name, available, now_ms=now_ms, bar_max=AVAILABLE_MAX)
        return sum(await self._guard.ask_store(tally, reads=True))

    def update_places(self, places: Iterable[ConsumerPlace], record: bytes | None) -> None:
        """Consumers of other brokers joined or left, all brokers know ours, or the deal is recorded."""
        self.queues.update(places, record, self._clock.now_ms())
        self._dealt()

    def _dealt(self) -> None:
        """The buckets may have been dealt again: fetch what is ours now, release what is another broker's."""
        self._let_go()
        self._feed.deal(self.queues.own(), self.queues.backed_up())
        self._wakeup.notify()

    def _let_go(self) -> None:
        for message in self.queues.let_go():
            self._moving.pop(message.seq, None)

    def wake(self) -> None:
        """Something changed: run the loop."""
        self._wakeup.notify()

    def scheduled(self, new: Sequence[NewMessage], kept: Sequence[Scheduled]) -> None:
        """Messages were written to the store."""
        self._feed.add_new(new, kept)

    def moved(self, message_id: str, due_ms: int) -> None:
        """A message has another due time."""
        self._feed.note(message_id, due_ms)

    def rescan(self) -> None:
        """Messages arrived in the store by another path."""
        self._feed.rescan()

    async def settle(self, commands: Sequence[Command]) -> list[CommandOutcome]:
        """Settle leases on behalf of consumers."""
        now_ms = self._clock.now_ms()
        outcomes = await self._guard.ask_store(lambda: self._store.settle(self.name, commands, now_ms=now_ms))
        now_ms = self._clock.now_ms()
        for command, outcome in zip(commands, outcomes, strict=True):
            self._settled(command, outcome, now_ms)
        self._wakeup.notify()
        return outcomes

    def _settled(self, command: Command, outcome: CommandOutcome, now_ms: int) -> None:
        if not isinstance(command, Complete | CompleteAs | Release | Extend):
            return
        if outcome is CommandOutcome.DONE and isinstance(command, Extend):
            self._leases.extend(command.seq, command.token, command.until_ms)
        elif outcome in {CommandOutcome.DONE, CommandOutcome.RECURRED, CommandOutcome.MISSING}:
            held = self._leases.drop(command.seq, command.token)
            if held is not None:
                held.consumer.moved_ms = now_ms
                if isinstance(command, Release):
                    self._feed.note(held.id, command.due_ms)
                elif outcome is CommandOutcome.RECURRED:
                    self._feed.note(held.id, now_ms)
                if isinstance(command, Release) and self._has_returned(held):
                    self.circuit.returned(held.seq, held.token)
                else:
                    self._judge(held, now_ms, failed=isinstance(command, Release))

    def _judge(self, held: Held, now_ms: int, *, failed: bool) -> None:
        """Record what became of a lease."""
        if not held.consumer.terms.in_process:
            self.circuit.settled(held.consumer.id, held.seq, held.token, failed=failed, now_ms=now_ms)

    def _has_returned(self, held: Held) -> bool:
        """Whether a released message was only given back: its consumer is busy, is about to close, or has left."""
        return held.consumer.busy or self.queues.consumers.get(held.consumer.id) is not held.consumer

    def _in_hand(self, message: TimedMessage) -> bool:
        """Whether this state of the message is queued, being leased, or leased by this broker."""
        if self._moving.get(message.seq, -1) >= message.version:
            return True
        return message.holder is not None and self._leases.get(message.seq, message.token) is not None

    def _start_over(self) -> None:
        """After an unexpected error, read everything that is not leased from the store again."""
        self.queues.give_up()
        self.queues.let_go()
        self._moving.clear()
        for consumer in self.queues.consumers.values():
            consumer.reserved = 0
        self._feed.start_over()
        self._push_timer.flush()

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
                    log.warning("timeline_lease_failed", timeline=self.name, error=str(error))
                failing = True
                await asyncio.sleep(RETRY_MS / 1_000)

    async def _deal_once(self) -> bool:
        """Run one round; whether there may be more to do at once."""
        now_ms = self._clock.now_ms()
        for held in self._leases.expire(now_ms):
            self._stats.leases[EXPIRED] += 1
            held.consumer.moved_ms = held.consumer.suspect_ms = now_ms
            self._judge(held, now_ms, failed=True)
            self._feed.note(held.id, held.until_ms)  # its position, even when this is noticed late
        for consumer in self.queues.consumers.values():
            if consumer.capacity():
                consumer.moved_ms = now_ms
        if self.queues.consumers and now_ms >= self.queues.ends_ms:
            self.queues.turn(now_ms)
            self._dealt()
        if not self._guard.may_lease:
            return False
        self._dead_letters.add(self._ripen(now_ms))
        pairs = self._take(now_ms)
        if pairs:
            await self._lease(pairs)
        return bool(pairs)

    def _take(self, now_ms: int) -> list[tuple[TimelineConsumer, TimedMessage]]:
        """What is leased now: nothing, or a few probes, while most consumers fail."""
        if self.circuit.needs_check:
            able = [one.id for one in self.queues.consumers.values() if not one.busy and not one.terms.in_process]
            if self.circuit.check(now_ms, able):
                self._circuit_changed(now_ms)
        allowance = self.circuit.allowance()
        if allowance is None:
            return self.queues.take(now_ms, LEASE_BATCH_MAX)
        return self.queues.take_probes(now_ms, allowance, self.circuit.rounds) if allowance else []

    def _circuit_changed(self, now_ms: int) -> None:
        state, verdict = self.circuit.state, self.circuit.verdict
        self._guard.stopped(self.name, self.stopped_reason)
        about = {"timeline": self.name, "failing": verdict.failing, "consumers": verdict.consumers}
        if state is CircuitState.OPEN:
            self._stats.stops += 1
            log.warning("timeline_pushes_stopped", **about, probe_in_ms=self.circuit.retry_ms - now_ms)
        elif state is CircuitState.CLOSED:
            log.info("timeline_pushes_resumed", **about)

    @property
    def stopped_reason(self) -> str:
        """Why the pushes are stopped; empty while they run."""
        if self.circuit.state is CircuitState.CLOSED:
            return ""
        failing, consumers = self.circuit.verdict
        what = "probes are sent" if self.circuit.state is CircuitState.HALF_OPEN else "pushes are stopped"
        return f"{failing} of {consumers} consumers release or lose most of their leases; {what}"

    def _ripen(self, now_ms: int) -> list[TimedMessage]:
        """Queue ripe messages; return those whose attempts are used up."""
        exhausted: list[TimedMessage] = []
        missed: list[TimedMessage] = []
        ripe: list[TimedMessage] = []
        wake_ms = self._prefetch.wake_ms()
        if wake_ms is None or wake_ms > now_ms:
            return exhausted
        for message in self._prefetch.pop_ripe(now_ms, self._queue_capacity()):
            if self.settings.exhausted(message.attempts):
                exhausted.append(message)
                self._moving[message.seq] = message.version
            elif is_missed(message, now_ms):
                missed.append(message)
                self._moving[message.seq] = message.version
            elif self.queues.consumers:
                ripe.append(message)
                self._moving[message.seq] = message.version
        self.queues.queue(ripe, now_ms)
        self._missed.add(missed)
        self._let_go()
        self._feed.taken_out()
        return exhausted

    def _queue_capacity(self) -> int:
        return QUEUED_MESSAGES_MAX - self.queues.queued if self.queues.queued_bytes < QUEUED_BYTES_MAX else 0

    def _dead_moved(self, dead: Sequence[TimedMessage], done: bool) -> None:
        for message in dead:
            self._moving.pop(message.seq, None)
        if not done:
            self._feed.rescan()

    def _passed_over(self, missed: Sequence[TimedMessage], done: bool) -> None:
        self._dead_moved(missed, done)
        now_ms = self._clock.now_ms()
        for message in missed:
            self._feed.note(message.id, now_ms)

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
            with self._stats.failures(LEASED, len(claims)):
                leases = await self._guard.ask_store(
                    lambda: self._store.acquire(self.name, claims, now_ms=now_ms, early_ms=EARLY_MS)
                )
            self._stats.failed(LEASED, CHANGED, leases.count(None))
        finally:
            for consumer, message in pairs:
                consumer.reserved -= 1
                self._moving.pop(message.seq, None)
            if not leases:
                self._feed.rescan()
        gone = [one for one in map(self._grant, pairs, leases) if one is not None]
        self._push_timer.flush()
        if gone:
            await self._give_back(gone)

    def _grant(self, pair: tuple[TimelineConsumer, TimedMessage], lease: LeaseGrant | None) -> Held | None:
        """Record the lease and send it; returns it instead when its consumer left in the meantime."""
        consumer, message = pair
        if lease is None:
            return None
        held = Held(consumer, message.seq, message.id, lease.token, lease.until_ms)
        self._leases.grant(held)
        self.circuit.probed(lease.seq, lease.token)
        if self.queues.consumers.get(consumer.id) is not consumer:
            return held
        self._push_timer.add(consumer, Granted(message, lease))
        return None

    async def _give_back(self, gone: Iterable[Held]) -> None:
        commands = [Release(one.seq, one.token, self._clock.now_ms()) for one in gone]
        self._stats.failed(LEASED, CONSUMER_LEFT, len(commands))
        with suppress(TimelineError):  # on an error they return when their leases end
            await self.settle(commands)

    def _pushed(self, consumer: TimelineConsumer, granted: list[Granted]) -> None:
        now_ms = self._clock.late_ms(0)
        if self.queues.consumers.get(consumer.id) is not consumer:
            self._return(granted)
            return
        self._stats.delivered(granted, now_ms)
        self.load.pushed(granted, now_ms)
        try:
            consumer.push(granted)
        except Exception as error:  # noqa: BLE001 - one consumer must not stop the delivery to the others
            # Its leases must end first: returned at once, they would go to the same consumer again without a pause.
            self._supervisor.note_failure("timeline push", error, about=self.name)

    def _return(self, granted: Iterable[Granted]) -> None:
        """Return leases of a consumer that left before they were sent, so that others do not wait for their end."""
        held = (self._leases.get(lease.seq, lease.token) for _, lease in granted)
        give_back = self._give_back([one for one in held if one is not None])
        task = self._supervisor.spawn("timeline lease return", give_back, about=self.name)
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _sleep(self) -> None:
        until_ms = self._next_ms()
        if until_ms is None:
            await self._wakeup.wait(PAUSE_S_MAX if self.queues.consumers else None)
            return
        pause_s = self._clock.delay_s(until_ms)
        await self._wakeup.wait(min(max(pause_s, PAUSE_S_MIN), PAUSE_S_MAX))
        late_ms = self._clock.late_ms(until_ms)
        if 0 < pause_s < PAUSE_S_MAX and late_ms >= 0:
            self._stats.wakeup.add(late_ms / 1_000)

    def _next_ms(self) -> int | None:
        """When there is something to do next: a message is ripe, a lease ends, or the window changes."""
        times = [end_ms for end_ms in (self._leases.next_end_ms(),) if end_ms is not None]
        if self.queues.consumers:
            times.append(self.queues.ends_ms)
        wake_ms = self._prefetch.wake_ms()
        probe_ms = self.circuit.next_ms()
        if probe_ms is not None and self._guard.may_lease:
            times.append(probe_ms)
        if wake_ms is not None and self._guard.may_lease and self._queue_capacity() > 0:
            times.append(wake_ms)
        return min(times, default=None)
