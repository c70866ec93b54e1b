"""Dead letters: where messages go whose attempts are used up.

To a timeline the store moves them in one step, so that they are in exactly one of the two. Onto a topic they are
appended under a lease of their own and completed afterwards: a crash in between appends them twice, never not at all.
"""

from collections.abc import Awaitable, Callable, Sequence

from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.timelines.clock import Clock
from tidemill.timelines.core.lease import Bury, Claim, Complete, Lease, Outcome
from tidemill.timelines.core.message import Message, Selection
from tidemill.timelines.core.timeline import Timeline
from tidemill.timelines.guard import Guard
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.stats import TimelineStats

GRAVEDIGGER = "tidemill-dead-letters"
APPEND_LEASE_MS = 30_000

Append = Callable[[str, bytes | None, bytes, list[tuple[str, bytes]]], Awaitable[None]]
"""Appends one record to a topic: topic, key, value, headers."""


class Graves:
    """The dead letters of all timelines of a broker."""

    def __init__(
        self,
        store: TimelineStore,
        clock: Clock,
        guard: Guard,
        *,
        append: Append | None,
        arrived: Callable[[str], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._guard = guard
        self._append = append
        self._arrived = arrived

    async def bury(self, timeline: Timeline, stats: TimelineStats, dead: Sequence[Message]) -> None:
        """Move the messages to where the timeline's settings say."""
        kind, _, target = timeline.settings.dead_letter.partition(":")
        if kind == "timeline":
            buried = await self._to_timeline(timeline.name, target, dead)
        else:
            buried = await self._to_topic(timeline.name, target, dead)
        stats.messages["dead"] += buried

    async def _to_timeline(self, name: str, target: str, dead: Sequence[Message]) -> int:
        now_ms = self._clock.now_ms()
        commands = [Bury(message.seq, message.version, target) for message in dead]
        outcomes = await self._guard.ask_store(lambda: self._store.settle(name, commands, now_ms=now_ms))
        self._arrived(target)
        return outcomes.count(Outcome.DONE)

    async def _to_topic(self, name: str, topic: str, dead: Sequence[Message]) -> int:
        append = self._append
        if append is None:
            raise StoreUnavailable(f"there are no topics here for the dead letters of {name!r}")
        now_ms = self._clock.now_ms()
        claims = [Claim(one.seq, one.version, GRAVEDIGGER, now_ms + APPEND_LEASE_MS) for one in dead]
        leases = await self._guard.ask_store(lambda: self._store.acquire(name, claims, now_ms=now_ms))
        leased = {one.id: lease for one, lease in zip(dead, leases, strict=True) if lease is not None}
        for message in await self._with_bodies(name, leased):
            headers = [("tidemill-timeline", name.encode()), ("tidemill-id", message.id.encode())]
            headers.append(("tidemill-attempts", b"%d" % (message.attempts - 1)))
            await append(topic, message.key, message.body or b"", headers)
        done = [Complete(lease.seq, lease.token) for lease in leased.values()]
        outcomes = await self._guard.ask_store(lambda: self._store.settle(name, done, now_ms=self._clock.now_ms()))
        return outcomes.count(Outcome.DONE)

    async def _with_bodies(self, name: str, leased: dict[str, Lease]) -> list[Message]:
        if not leased:
            return []
        selection, now_ms = Selection(ids=tuple(leased)), self._clock.now_ms()
        return await self._guard.ask_store(
            lambda: self._store.find(name, selection, now_ms=now_ms, limit=len(leased), bodies=True)
        )
