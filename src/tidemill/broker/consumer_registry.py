"""The consumers of timelines in coordination: what is connected here is written there, what others wrote is read.

One task writes. It compares who should be registered with what the view shows and mends the difference, so that it does
not matter what was lost on the way: a write, an answer, or a whole session with every key of it. There is no traffic
between brokers: each hears of the others' consumers by the watch that tells it everything else.

An id is one consumer. Who connects takes the place of one of the same id at another broker; that broker sees that the
key is not its own any more, and does not fight for it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import structlog

from tidemill.cluster.core.consumer_registry import RegisteredConsumer, consumer_key, encode_consumer
from tidemill.cluster.interface import Coordination, CoordinationAway, CoordinationSession
from tidemill.cluster.membership import Membership
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.timelines.core.dealer import DealtConsumer
from tidemill.timelines.core.shared_windows import ConsumerPlace

RETRY_S = 0.5
WRITES_MAX = 64
"""Consumers that are written at the same time: etcd makes many writes durable together."""

log = structlog.get_logger("tidemill.broker")


class ConsumerRegistry:
    """Who is at the timelines, here and elsewhere."""

    def __init__(
        self, coordination: Coordination, metadata: ClusterMetadata, membership: Membership, clock_ms: Callable[[], int]
    ) -> None:
        self._coordination = coordination
        self._metadata = metadata
        self._membership = membership
        self._node_id = membership.registration.node_id
        self._clock_ms = clock_ms
        self._here: dict[tuple[str, str], DealtConsumer] = {}
        self._claims: set[tuple[str, str]] = set()
        """Those that came after whoever has their key."""
        self._heard: Callable[[Iterable[str]], None] = lambda _timelines: None
        self._fresh = asyncio.Event()

    def enter(self, timeline: str, member: DealtConsumer) -> None:
        """A consumer is connected here."""
        self._here[timeline, member.id] = member
        self._claims.add((timeline, member.id))
        self._fresh.set()

    def leave(self, timeline: str, consumer: str) -> None:
        """It is not, or cannot work."""
        if self._here.pop((timeline, consumer), None) is not None:
            self._claims.discard((timeline, consumer))
            self._fresh.set()

    def seats(self, timeline: str) -> list[ConsumerPlace]:
        """Everybody who is registered, as far as this broker has heard."""
        known = self._metadata.view.consumers.get(timeline, {})
        return [
            ConsumerPlace(DealtConsumer(one.id, one.rack), one.since_ms, one.node_id == self._node_id)
            for one in known.values()
        ]

    def ousted(self, timeline: str) -> list[str]:
        """Consumers here whose id another broker's consumer has by now."""
        return [
            seat.member.id
            for seat in self.seats(timeline)
            if not seat.here and (timeline, seat.member.id) in self._here.keys() - self._claims
        ]

    def listen(self, heard: Callable[[Iterable[str]], None]) -> None:
        """From now on `heard` is told the timelines whose consumers have changed."""
        self._heard = heard

    def changed(self, timelines: Iterable[str]) -> None:
        """The view shows other consumers."""
        self._fresh.set()
        self._heard(timelines)

    async def run(self) -> None:
        """Keep what is written as it should be, for ever; each start compares everything."""
        self._fresh.set()
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            session = await self._membership.joined()
            try:
                await self._mend(session)
            except CoordinationAway as error:
                log.warning("consumers cannot be registered yet", error=str(error))
                await asyncio.sleep(RETRY_S)
                self._fresh.set()

    async def _mend(self, session: CoordinationSession) -> None:
        known = self._metadata.view.consumers
        missing = [
            self._write(timeline, member, session)
            for (timeline, consumer), member in self._here.items()
            if (timeline, consumer) in self._claims or consumer not in known.get(timeline, {})
        ]
        left = [
            self._remove(timeline, one.id)
            for timeline, there in known.items()
            for one in there.values()
            if one.node_id == self._node_id and (timeline, one.id) not in self._here
        ]
        room = asyncio.Semaphore(WRITES_MAX)

        async def one_of(work: Coroutine[Any, Any, None]) -> None:
            async with room:
                await work

        ended = await asyncio.gather(*map(one_of, [*missing, *left]), return_exceptions=True)
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure

    async def _write(self, timeline: str, member: DealtConsumer, session: CoordinationSession) -> None:
        """Register one, over whoever has its id where it came later; who lost the race looks again."""
        key = consumer_key(timeline, member.id)
        there = self._metadata.view.consumers.get(timeline, {}).get(member.id)
        # Who takes a place goes on in it: the buckets of an id are the same wherever it is connected.
        since_ms = self._clock_ms() if there is None else there.since_ms
        attendee = RegisteredConsumer(member.id, member.rack, self._node_id, since_ms)
        if attendee == there:
            self._claims.discard((timeline, member.id))
            return
        revision = self._metadata.view.revision_of(key)
        written = await self._coordination.compare_and_put(key, encode_consumer(attendee), revision, session=session)
        if written is not None:
            self._claims.discard((timeline, member.id))
        else:
            await self._see(key)

    async def _remove(self, timeline: str, consumer: str) -> None:
        key = consumer_key(timeline, consumer)
        if await self._coordination.compare_and_put(key, None, self._metadata.view.revision_of(key)) is None:
            await self._see(key)

    async def _see(self, key: str) -> None:
        """Somebody else was faster: look again when this broker has heard of it."""
        entry = await self._coordination.get(key)
        revision = 0 if entry is None else entry.revision
        await self._metadata.until(lambda: self._metadata.view.revision_of(key) == revision, RETRY_S)
        self._fresh.set()
