"""The timelines of one broker: the operations for its servers, and the deliveries of timelines with consumers.

Every call that changes a message writes to the store first and notifies the timeline's delivery afterwards. A delivery
runs while a timeline has consumers, or a limit of attempts (its dead letters need no consumer). A timeline without
consumers costs nothing. Once a second the health monitor checks the clocks. Every few seconds the catalogue of a shared
store is read again, and its clock is compared with ours.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import structlog

from tidemill.model.message_ids import RANDOM_BITS, new_id
from tidemill.model.timeline_errors import (
    BatchTooLarge,
    ClockInDoubt,
    ConsumerReplaced,
    TimelineError,
    TimelineNotReady,
)
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.backlog import BacklogCount, BacklogReader
from tidemill.timelines.clock import Clock
from tidemill.timelines.consumer import ConsumerTerms, Granted, TimelineConsumer
from tidemill.timelines.core.backlog import Backlog
from tidemill.timelines.core.buckets import BUCKETS
from tidemill.timelines.core.circuit import CircuitState
from tidemill.timelines.core.lease import (
    Cancel,
    Command,
    CommandOutcome,
    Complete,
    CompleteAs,
    Extend,
    Move,
    MoveToTimeline,
    Release,
    check_commands,
    error_of,
)
from tidemill.timelines.core.load import LoadFigures
from tidemill.timelines.core.message import (
    BATCH_MESSAGES_MAX,
    COUNT_MAX,
    DueSpan,
    MessageStatus,
    NewMessage,
    Scheduled,
    Selection,
    TimedMessage,
    TimelinePosition,
    check_new,
)
from tidemill.timelines.core.recurrence import Recurrence, first_occurrence
from tidemill.timelines.core.timeline import Created, TimelineInfo, TimelineSettings, TimelineState
from tidemill.timelines.dead_letters import Append, DeadLetterRouter
from tidemill.timelines.delivery import TimelineDelivery
from tidemill.timelines.future import FutureHistogram, FutureReader, future_selection
from tidemill.timelines.health import ClientKind, Health, HealthMonitor
from tidemill.timelines.interface import ClockTrust, SharedConsumers, TimelineStore
from tidemill.timelines.lifecycle import Lifecycle
from tidemill.timelines.stats import (
    ALTERED,
    CANCELLED,
    COMPLETED,
    CREATED,
    DELETED,
    DUPLICATE,
    EXTENDED,
    MOVED,
    RELEASED,
    RETRIED,
    SCHEDULED,
    TimelineCounts,
    TimelineStats,
)

CHECK_S = 1.0
RECURRING_MESSAGES_MAX = 100
"""The most recurring messages in one call: computing the first time of an odd cron expression takes milliseconds."""
REFRESH_S = 5.0
COUNTED_AS: dict[type[Command], str] = {Complete: COMPLETED, CompleteAs: COMPLETED, Release: RELEASED, Extend: EXTENDED}

log = structlog.get_logger(__name__)


class ScheduleRequest(NamedTuple):
    """A message as a producer sends it; without an id one is drawn."""

    body: bytes
    due_ms: int
    id: str = ""
    key: bytes | None = None
    recurrence: Recurrence | None = None
    """With a recurrence, `due_ms` is the time before which it does not begin; 0 for now."""
    rule: str = ""
    """A recurrence that has begun, as stores keep it; `due_ms` is its next occurrence."""


class Dispatcher:
    """All timelines of a broker."""

    def __init__(
        self,
        store: TimelineStore,
        clock: Clock,
        rng: random.Random,
        *,
        append: Append | None = None,
        registry: SharedConsumers | None = None,
        trust: ClockTrust | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.supervisor = supervisor or Supervisor()
        self.clock = clock
        self.guard = HealthMonitor(clock, rng, trust=trust)
        self._trust = trust
        self.stats = TimelineCounts()
        self._store = store
        self._rng = rng
        self._shared = False
        self._registry = registry
        self._lifecycle = Lifecycle(store, self.guard, f"{rng.getrandbits(128):032x}", self.supervisor, gone=self._gone)
        self._dead_letters = DeadLetterRouter(
            store,
            clock,
            self.guard,
            append=append,
            create_target=self._lifecycle.create_dead_letter_timeline,
            arrived=self._arrived,
        )
        self._deliveries: dict[str, TimelineDelivery] = {}
        self._future = FutureReader(self._tally)
        self._backlog = BacklogReader(clock, self._count_backlog)
        self._closing: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read the catalogue, finish interrupted creations and deletions, and start."""
        store_ms = await self._lifecycle.open()
        self._shared = store_ms is not None
        if not self._shared:
            self._registry = None
        elif self._registry is not None:
            self._registry.listen(self._heard)
        self._compare(store_ms)
        self.guard.activate(active=True)
        self.guard.check()
        for timeline in self.timelines():
            if timeline.settings.max_attempts:
                self._delivery(timeline)
        self._task = self.supervisor.keep("timeline clock watch", self._watch)

    async def close(self) -> None:
        """Stop delivering and close the store."""
        self.guard.activate(active=False)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for name in list(self._deliveries):
            self._gone(name)
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._lifecycle.close()
        await self._backlog.close()
        await self._store.close()

    @property
    def shared(self) -> bool:
        """Whether other brokers may use the same store."""
        return self._shared

    def health(self) -> Health:
        """The state and its reasons, for `/health`."""
        return self.guard.health()

    def timelines(self) -> list[TimelineInfo]:
        """All timelines, in the order of their names."""
        return [self._lifecycle.timelines[name] for name in sorted(self._lifecycle.timelines)]

    def timeline(self, name: str) -> TimelineInfo:
        """The timeline, if clients may use it."""
        return self._lifecycle.usable(name)

    async def find(self, name: str) -> TimelineInfo:
        """The timeline, if clients may use it, also when another broker has just created it."""
        if self._shared and name not in self._lifecycle.timelines:
            await self._refresh()
        return self.timeline(name)

    def consumers(self, name: str) -> list[TimelineConsumer]:
        """The consumers that are connected here."""
        delivery = self._deliveries.get(name)
        return list(delivery.queues.consumers.values()) if delivery else []

    def served(self) -> dict[str, int]:
        """The number of consumers that are connected here, by timeline; only timelines that have some."""
        counts = ((name, len(self._deliveries[name].queues.consumers)) for name in sorted(self._deliveries))
        return {name: count for name, count in counts if count}

    def attending(self, name: str) -> int:
        """The number of consumers of the timeline, at all brokers that share it."""
        return len(self.consumers(name) if self._registry is None else self._registry.places(name))

    @property
    def is_shared(self) -> bool:
        """Whether other brokers have the same timelines."""
        return self._shared

    def shares(self, name: str) -> dict[str, float]:
        """The part of the messages that each consumer gets in this window, from 0 to 1, as this broker sees it."""
        delivery = self._deliveries.get(name)
        return {} if delivery is None else delivery.queues.shares()

    async def create(self, name: str, settings: TimelineSettings) -> Created:
        """Create a timeline; repeating it changes nothing."""
        with self.stats.command(CREATED):
            created = await self._lifecycle.create(name, settings)
        if created.timeline.settings.max_attempts:
            self._delivery(created.timeline)
        return created

    def look_again(self) -> None:
        """Rescan after the clock was advanced: many messages may be due, and no consumer counts as silent."""
        now_ms = self.clock.now_ms()
        for delivery in self._deliveries.values():
            for consumer in delivery.queues.consumers.values():
                consumer.heard_ms = now_ms
            delivery.rescan()
            delivery.wake()

    async def alter(self, name: str, settings: TimelineSettings) -> TimelineInfo:
        """Change the settings of a timeline; its consumers reconnect."""
        with self.stats.command(ALTERED):
            timeline = await self._lifecycle.alter(name, settings)
        if timeline.settings.max_attempts:
            self._delivery(timeline)
        return timeline

    async def delete(self, name: str) -> None:
        """Delete a timeline: at once for clients, in the background for the store."""
        with self.stats.command(DELETED):
            await self._lifecycle.delete(name)

    async def removed(self, name: str) -> None:
        """Wait until a deleted timeline is removed completely and its name is free."""
        await self._lifecycle.removed(name)

    async def schedule(self, name: str, messages: Sequence[ScheduleRequest], *, group: str = "") -> list[Scheduled]:
        """Store messages for later; durable when it returns. One invalid message rejects the whole batch."""
        timeline, stats = self.timeline(name), self.stats.of(name)
        with stats.failures(SCHEDULED, len(messages)):
            self._check_recurring(messages)
            new = []
            for one in messages:
                new.append(self._new_message(one, group))
                if one.recurrence is not None:
                    await asyncio.sleep(0)  # computing the first time of an odd expression takes milliseconds
            check_new(new, timeline.settings.body_bytes_max)
            kept = await self.guard.ask_store(lambda: self._store.schedule(name, new))
        stored = [(one.id, one.due_ms) for one in kept if not one.duplicate]
        stats.messages[SCHEDULED] += len(stored)
        stats.messages[DUPLICATE] += len(kept) - len(stored)
        stats.scheduled(stored, self.clock.now_ms())
        delivery = self._deliveries.get(name)
        if delivery is not None:
            delivery.scheduled(new, kept)
        return kept

    def _check_recurring(self, messages: Iterable[ScheduleRequest]) -> None:
        recurring = sum(one.recurrence is not None for one in messages)
        if recurring > RECURRING_MESSAGES_MAX:
            raise BatchTooLarge(f"{recurring} recurring messages in one call; at most {RECURRING_MESSAGES_MAX}")
        if recurring and not self.guard.may_count:
            raise ClockInDoubt

    def _new_message(self, wanted: ScheduleRequest, group: str) -> NewMessage:
        due_ms, rule = wanted.due_ms, wanted.rule
        if wanted.recurrence is not None:
            first = first_occurrence(wanted.recurrence, wanted.due_ms, self.clock.now_ms())
            due_ms, rule = first.due_ms, first.recurrence.to_text()
        message_id = wanted.id or self._new_id()
        return NewMessage(message_id, due_ms, wanted.body, self._rng.randrange(BUCKETS), wanted.key, group, rule)

    async def cancel(self, name: str, ids: Sequence[str], *, group: str = "") -> list[CommandOutcome]:
        """Cancel messages that no consumer holds."""
        return await self._change(name, [Cancel(one, group) for one in ids], CANCELLED)

    async def move(self, name: str, ids: Sequence[str], due_ms: int, *, group: str = "") -> list[CommandOutcome]:
        """Give messages another due time."""
        self.timeline(name)
        stats = self.stats.of(name)
        outcomes = await self._change(name, [Move(one, due_ms, group) for one in ids], MOVED)
        delivery = self._deliveries.get(name)
        moved = [one for one, outcome in zip(ids, outcomes, strict=True) if outcome is CommandOutcome.DONE]
        stats.scheduled(((one, due_ms) for one in moved), self.clock.now_ms())
        for message_id in moved:
            if delivery is not None:
                delivery.moved(message_id, due_ms)
        return outcomes

    async def retry(self, name: str, dead: Sequence[MoveToTimeline]) -> list[CommandOutcome]:
        """Return dead letters of the timeline `name` to the timelines where they come from, to be delivered again."""
        for target in {one.to for one in dead}:
            self.timeline(target)
        outcomes = await self._change(name, dead, RETRIED)
        for target in {one.to for one in dead}:
            self._future.forget(target)
            self._arrived(target)
        return outcomes

    async def release(self, name: str, leased: Sequence[TimedMessage]) -> list[CommandOutcome | TimelineError]:
        """End the leases of consumers, wherever they are connected; the messages are due now."""
        now_ms = self.clock.now_ms()
        outcomes = await self.settle(name, [Release(one.seq, one.token, now_ms) for one in leased])
        self._future.forget(name)
        self._arrived(name)
        return outcomes

    async def span(self, name: str) -> DueSpan | None:
        """The due times of the first and of the last message."""
        self.timeline(name)
        return await self.guard.ask_store(lambda: self._store.span(name), reads=True)

    async def count_up_to(self, name: str, selection: Selection, limit: int) -> int:
        """The number of selected messages; reads hardly more than `limit` of them, and returns no larger number."""
        self.timeline(name)
        (found,) = await self._tally(name, selection, 1, limit)
        return found

    async def _change(self, name: str, commands: Sequence[Command], counted_as: str) -> list[CommandOutcome]:
        self.timeline(name)
        now_ms, stats = self.clock.now_ms(), self.stats.of(name)
        with stats.failures(counted_as, len(commands)):
            check_commands(commands, now_ms)
            outcomes = await self.guard.ask_store(lambda: self._store.settle(name, commands, now_ms=now_ms))
        self._future.forget(name)
        _count(stats, counted_as, outcomes)
        return outcomes

    async def settle(self, name: str, commands: Sequence[Command]) -> list[CommandOutcome | TimelineError]:
        """Settle leases on behalf of consumers; an invalid command is rejected by itself."""
        if len(commands) > BATCH_MESSAGES_MAX:
            raise BatchTooLarge(f"{len(commands)} operations in one batch; at most {BATCH_MESSAGES_MAX}")
        delivery, now_ms = self._delivery(self.timeline(name)), self.clock.now_ms()
        may_count = self.guard.may_count
        refused = {
            at: error for at, one in enumerate(commands) if (error := _refusal(one, now_ms, may_count)) is not None
        }
        good = [one for at, one in enumerate(commands) if at not in refused]
        stats = self.stats.of(name)
        for at, error in refused.items():
            stats.failed(COUNTED_AS[type(commands[at])], type(error).__name__)
        with ExitStack() as failures:
            for kind, count in Counter(type(one) for one in good).items():
                failures.enter_context(stats.failures(COUNTED_AS[kind], count))
            outcomes = await delivery.settle(good) if good else []
        for kind in {type(one) for one in good}:
            of_kind = [outcome for one, outcome in zip(good, outcomes, strict=True) if type(one) is kind]
            _count(stats, COUNTED_AS[kind], of_kind)
        if not refused:
            return list(outcomes)
        answers = iter(outcomes)
        return [refused[at] if at in refused else next(answers) for at in range(len(commands))]

    async def count(self, name: str, selection: Selection) -> int:
        """The number of selected messages."""
        return sum(await self.histogram(name, selection, 1))

    async def histogram(self, name: str, selection: Selection, bars: int) -> list[int]:
        """The number of selected messages that are due in each part of the selection's range."""
        self.timeline(name)
        return await self._tally(name, selection, bars, COUNT_MAX)

    async def future_histogram(
        self, name: str, start_ms: int, end_ms: int, *, bars: int, status: MessageStatus | None = None
    ) -> FutureHistogram:
        """The messages that are due between two times, in up to 200 bars; cheap also with millions (`future.py`)."""
        self.timeline(name)
        return await self._future.histogram(name, future_selection(start_ms, end_ms, status), bars)

    def circuit_state(self, name: str) -> CircuitState:
        """Whether the messages of a timeline are pushed to the consumers here."""
        delivery = self._deliveries.get(name)
        return CircuitState.CLOSED if delivery is None else delivery.circuit.state

    def stopped_reason(self, name: str) -> str:
        """Why they are not; empty when they are."""
        delivery = self._deliveries.get(name)
        return "" if delivery is None else delivery.stopped_reason

    def load(self, name: str) -> LoadFigures | None:
        """The load of a timeline that has consumers here; None before it was measured."""
        delivery = self._deliveries.get(name)
        return None if delivery is None else delivery.load.newest

    async def backlog(self) -> BacklogCount | None:
        """The available, leased and waiting messages of all timelines, some seconds old (`backlog.py`)."""
        return await self._backlog.read()

    async def _count_backlog(self, now_ms: int) -> dict[str, Backlog]:
        return await self.guard.ask_store(lambda: self._store.backlogs(now_ms=now_ms), reads=True)

    async def _tally(self, name: str, selection: Selection, bars: int, bar_max: int) -> list[int]:
        now_ms = self.clock.now_ms()
        return await self.guard.ask_store(
            lambda: self._store.tally(name, selection, now_ms=now_ms, bars=bars, bar_max=bar_max), reads=True
        )

    async def messages(
        self, name: str, selection: Selection, limit: int, *, after: TimelinePosition | None = None, bodies: bool = True
    ) -> list[TimedMessage]:
        """The first of the selected messages, from a position on."""
        self.timeline(name)
        now_ms = self.clock.now_ms()
        return await self.guard.ask_store(
            lambda: self._store.find(name, selection, now_ms=now_ms, limit=limit, after=after, bodies=bodies),
            reads=True,
        )

    def attach(
        self,
        name: str,
        terms: ConsumerTerms,
        *,
        push: Callable[[list[Granted]], None],
        end: Callable[[TimelineError], None],
        notify: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> TimelineConsumer:
        """Connect a consumer; it replaces one with the same id."""
        delivery = self._delivery(self.timeline(name))
        consumer = TimelineConsumer(terms, push=push, end=end, now_ms=self.clock.now_ms(), notify=notify)
        if self.guard.clock_reasons:
            notify(self.guard.clock_reasons)
        before = delivery.queues.consumers.get(terms.id)
        if before is not None:
            before.end(ConsumerReplaced(f"another consumer {terms.id!r} has connected to {name!r}"))
            delivery.leave(before)
        delivery.join(consumer)
        return consumer

    def detach(self, name: str, consumer: TimelineConsumer) -> None:
        """Disconnect a consumer; a timeline without consumers is no longer delivered."""
        self.guard.forget(f"{name}/{consumer.id}")
        delivery = self._deliveries.get(name)
        if delivery is not None:
            delivery.leave(consumer)

    def heard(self, name: str, consumer: TimelineConsumer, *, latency_us: int, drift_us: int) -> None:
        """A consumer answered a ping."""
        consumer.measured(latency_us, drift_us)
        self.guard.witness(f"{name}/{consumer.id}", drift_us / 1_000, ClientKind.CONSUMER)

    def alive(self, name: str, consumer: TimelineConsumer) -> None:
        """A consumer sent something; one that was silent can work again."""
        now_ms = self.clock.now_ms()
        was_silent = consumer.silent(now_ms)
        consumer.heard_ms = now_ms
        delivery = self._deliveries.get(name)
        if was_silent and delivery is not None:
            delivery.wake()

    def ready(self, name: str, consumer: TimelineConsumer, *, busy: bool) -> None:
        """A consumer reports whether it can take more."""
        if consumer.busy == busy:
            return
        consumer.busy = busy
        delivery = self._deliveries.get(name)
        if delivery is not None:
            delivery.wake()

    def _delivery(self, timeline: TimelineInfo) -> TimelineDelivery:
        delivery = self._deliveries.get(timeline.name)
        if delivery is None:
            stats = self.stats.of(timeline.name)
            delivery = self._deliveries[timeline.name] = TimelineDelivery(
                timeline.name,
                timeline.settings,
                self._store,
                self.clock,
                self.guard,
                stats,
                self.supervisor,
                shared=self._shared,
                registry=self._registry,
                move_dead=lambda dead: self._dead_letters.move(timeline, stats, dead),
                draw=self._rng.randrange,
            )
            self._update_places(timeline.name, delivery)
        return delivery

    def _heard(self, timelines: Iterable[str]) -> None:
        """Consumers joined or left at any broker."""
        for name in timelines:
            delivery = self._deliveries.get(name)
            if delivery is not None:
                self._update_places(name, delivery)

    def _update_places(self, name: str, delivery: TimelineDelivery) -> None:
        if self._registry is None:
            return
        for consumer_id in self._registry.displaced(name):
            consumer = delivery.queues.consumers.get(consumer_id)
            if consumer is not None:
                consumer.end(ConsumerReplaced(f"another consumer {consumer_id!r} has connected to {name!r}"))
                delivery.leave(consumer)
        delivery.update_places(self._registry.places(name), self._registry.deal(name))

    def _gone(self, name: str) -> None:
        """Disconnect the consumers of a timeline that was deleted or altered; they must reconnect."""
        known = self._lifecycle.timelines.get(name)
        if known is None or known.state is TimelineState.DELETING:
            self.stats.forget(name)
            if self._registry is not None:
                self._registry.publish_deal(name, None)
        delivery = self._deliveries.pop(name, None)
        if delivery is None:
            return
        for consumer in list(delivery.queues.consumers.values()):
            if self._registry is not None:
                self._registry.leave(name, consumer.id)
            consumer.end(TimelineNotReady(f"timeline {name!r} has changed; connect again"))
        task = self.supervisor.spawn("timeline delivery stop", delivery.close(), about=name)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _arrived(self, name: str) -> None:
        delivery = self._deliveries.get(name)
        if delivery is not None:
            delivery.rescan()

    def _new_id(self) -> str:
        return new_id(self.clock.now_ms(), self._rng.getrandbits(RANDOM_BITS))

    def _compare(self, store_ms: int | None) -> None:
        if store_ms is not None:
            self.guard.store_drift(store_ms - self.clock.now_ms())
            if self._trust is not None:
                self._trust.read_store(store_ms)

    async def _watch(self) -> None:
        beats_per_refresh = round(REFRESH_S / CHECK_S)
        beat = 0
        while True:
            await asyncio.sleep(CHECK_S)
            beat += 1
            if self._shared and beat % beats_per_refresh == 0:
                await self._refresh()
            self.check_clock()

    def check_clock(self) -> None:
        """Check the clocks, and notify consumers when the clock becomes doubtful or is trusted again."""
        if not self.guard.check():
            return
        for delivery in self._deliveries.values():
            delivery.wake()
            for consumer in delivery.queues.consumers.values():
                consumer.notify(self.guard.clock_reasons)

    async def _refresh(self) -> None:
        try:
            self._compare(await self._lifecycle.refresh())
        except TimelineError as error:
            log.warning("timeline_refresh_failed", error=str(error))


def _count(stats: TimelineStats, counted_as: str, outcomes: Sequence[CommandOutcome]) -> None:
    for outcome, count in Counter(outcomes).items():
        error = error_of(outcome)
        if error is not None:
            stats.failed(counted_as, type(error).__name__, count)
        elif counted_as == EXTENDED:
            stats.leases[EXTENDED] += count
        else:
            stats.messages[counted_as] += count
        if outcome is CommandOutcome.RECURRED:
            stats.messages[SCHEDULED] += count


def _refusal(command: Command, now_ms: int, may_count: bool) -> TimelineError | None:
    if isinstance(command, Complete | CompleteAs):
        return None
    if not may_count:
        return ClockInDoubt()
    try:
        check_commands([command], now_ms)
    except TimelineError as error:
        return error
    return None
