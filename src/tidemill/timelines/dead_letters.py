"""Dead letters: where messages go whose attempts are used up.

The store moves them to a dead-letter timeline in one step, so they are in exactly one of the two. For a topic they are
leased, appended, and completed afterwards. A crash in between appends them twice; none is lost. A message that its
topic rejects (it is too large there) stays, and is tried again when that lease ends. The others continue without it.

An occurrence of a recurring message is copied to the dead-letter timeline and completed, which schedules the next one.
The copy has an id of its own, so a crash in between leaves one copy.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial

from tidemill.model.timeline_errors import StoreUnavailable, TimelineError
from tidemill.timelines.clock import Clock
from tidemill.timelines.core.lease import (
    TOOK_EFFECT,
    Claim,
    CommandOutcome,
    Complete,
    LeaseGrant,
    MoveToTimeline,
    dead_occurrence_id,
)
from tidemill.timelines.core.message import FIND_LIMIT_MAX, NewMessage, Selection, TimedMessage
from tidemill.timelines.core.timeline import TimelineInfo, TimelineSettings
from tidemill.timelines.health import HealthMonitor
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.stats import DEAD, SCHEDULED, TimelineStats

DEAD_LETTER_HOLDER = "tidemill-dead-letters"
APPEND_LEASE_MS = 30_000

Append = Callable[[str, bytes | None, bytes, list[tuple[str, bytes]]], Awaitable[None]]
"""Appends one record to a topic: topic, key, value, headers."""


class DeadLetterRouter:
    """Moves the dead letters of all timelines of a broker."""

    def __init__(
        self,
        store: TimelineStore,
        clock: Clock,
        guard: HealthMonitor,
        *,
        append: Append | None,
        create_target: Callable[[str, TimelineSettings], Awaitable[None]],
        arrived: Callable[[str], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._guard = guard
        self._append = append
        self._create_target = create_target
        self._arrived = arrived

    async def move(self, timeline: TimelineInfo, stats: TimelineStats, dead: Sequence[TimedMessage]) -> None:
        """Move the messages to the target in the timeline's settings."""
        kind, _, target = timeline.settings.dead_letter.partition(":")
        before = stats.messages[DEAD]
        try:
            if kind == "timeline":
                await self._create_target(timeline.name, timeline.settings)
                await self._to_timeline(timeline.name, target, stats, dead)
            else:
                await self._to_topic(timeline.name, target, stats, dead)
        except TimelineError as error:
            stats.failed(DEAD, type(error).__name__, len(dead) - (stats.messages[DEAD] - before))
            raise

    async def _to_timeline(self, name: str, target: str, stats: TimelineStats, dead: Sequence[TimedMessage]) -> None:
        if recurring := [message for message in dead if message.recurrence]:
            await self._under_leases(name, stats, recurring, lambda message: self._copy(name, target, message))
        now_ms = self._clock.now_ms()
        commands = [MoveToTimeline(message.seq, message.version, target) for message in dead if not message.recurrence]
        outcomes = await self._guard.ask_store(lambda: self._store.settle(name, commands, now_ms=now_ms))
        stats.messages[DEAD] += outcomes.count(CommandOutcome.DONE)
        self._arrived(target)

    async def _copy(self, name: str, target: str, message: TimedMessage) -> None:
        new = NewMessage(
            dead_occurrence_id(name, message),
            self._clock.now_ms(),
            message.body or b"",
            message.bucket,
            message.key,
            message.group,
        )
        await self._guard.ask_store(lambda: self._store.schedule(target, [new]))

    async def _to_topic(self, name: str, topic: str, stats: TimelineStats, dead: Sequence[TimedMessage]) -> None:
        append = self._append
        if append is None:
            raise StoreUnavailable(f"the dead letters of {name!r} cannot be moved: this broker has no topics")

        async def append_one(message: TimedMessage) -> None:
            headers = [("tidemill-timeline", name.encode()), ("tidemill-id", message.id.encode())]
            headers.append(("tidemill-attempts", b"%d" % (message.attempts - 1)))
            await append(topic, message.key, message.body or b"", headers)

        await self._under_leases(name, stats, dead, append_one)

    async def _under_leases(
        self,
        name: str,
        stats: TimelineStats,
        dead: Sequence[TimedMessage],
        hand_over: Callable[[TimedMessage], Awaitable[None]],
    ) -> None:
        """Lease the messages, hand each over, and complete those that were taken."""
        now_ms = self._clock.now_ms()
        claims = [Claim(one.seq, one.version, DEAD_LETTER_HOLDER, now_ms + APPEND_LEASE_MS, one.due_ms) for one in dead]
        leases = await self._guard.ask_store(lambda: self._store.acquire(name, claims, now_ms=now_ms))
        leased = {one.id: lease for one, lease in zip(dead, leases, strict=True) if lease is not None}
        done: list[Complete] = []
        failure: TimelineError | None = None
        async for message in self._with_bodies(name, leased):
            try:
                await hand_over(message)
            except TimelineError as error:
                failure = error
            else:
                done.append(Complete(leased[message.id].seq, leased[message.id].token))
        outcomes = await self._guard.ask_store(lambda: self._store.settle(name, done, now_ms=self._clock.now_ms()))
        stats.messages[DEAD] += sum(outcome in TOOK_EFFECT for outcome in outcomes)
        stats.messages[SCHEDULED] += outcomes.count(CommandOutcome.RECURRED)
        if failure is not None:
            raise failure

    async def _with_bodies(self, name: str, leased: Mapping[str, LeaseGrant]) -> AsyncIterator[TimedMessage]:
        """The messages with their bodies; a store returns only as many at a time as fit into memory."""
        left = dict.fromkeys(leased)
        while left:
            find = partial(self._store.find, name, Selection(ids=tuple(left)), now_ms=self._clock.now_ms())
            found = await self._guard.ask_store(partial(find, limit=FIND_LIMIT_MAX, bodies=True), reads=True)
            if not found:
                return
            for message in found:
                del left[message.id]
                yield message
