"""The registry of timeline consumers: writes the local consumers to coordination and reads those of other brokers.

One task writes. It compares the consumers that should be registered with the view and corrects the differences. So it
does not matter what was lost: a write, an answer, or a whole session with all its keys. Brokers do not send consumers
to each other. Each broker sees the others' consumers through the metadata watch.

An id is one consumer. A new connection takes over the id from a consumer at another broker. That broker sees that the
key is no longer its own, and does not take it back.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import structlog

from tidemill.cluster.core.consumer_registry import RegisteredConsumer, consumer_key, deal_key, encode_consumer
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
    """The consumers of timelines on all brokers."""

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
        """Consumers that connected after the current holder of their key."""
        self._heard: Callable[[Iterable[str]], None] = lambda _timelines: None
        self._fresh = asyncio.Event()
        self._deals: dict[str, tuple[bytes | None, int]] = {}
        """Records to write, with the revision of the record that each replaces."""

    def enter(self, timeline: str, member: DealtConsumer) -> None:
        """Register a consumer that is connected here."""
        self._here[timeline, member.id] = member
        self._claims.add((timeline, member.id))
        self._fresh.set()

    def leave(self, timeline: str, consumer: str) -> None:
        """Remove a consumer that disconnected or cannot work."""
        if self._here.pop((timeline, consumer), None) is not None:
            self._claims.discard((timeline, consumer))
            self._fresh.set()

    def places(self, timeline: str) -> list[ConsumerPlace]:
        """All registered consumers, as far as this broker has seen."""
        known = self._metadata.view.consumers.get(timeline, {})
        return [
            ConsumerPlace(DealtConsumer(one.id, one.rack), one.since_ms, one.node_id == self._node_id)
            for one in known.values()
        ]

    def deal(self, timeline: str) -> bytes | None:
        """The record of the deal, as far as this broker has seen."""
        return self._metadata.view.deals.get(timeline)

    def publish_deal(self, timeline: str, record: bytes | None) -> None:
        """Replace the record of the deal that this broker sees; the first broker that writes counts."""
        self._deals.pop(timeline, None)
        if record != self.deal(timeline):
            self._deals[timeline] = record, self._metadata.view.revision_of(deal_key(timeline))
            self._fresh.set()

    def displaced(self, timeline: str) -> list[str]:
        """Consumers here whose id a consumer at another broker has taken over."""
        return [
            place.member.id
            for place in self.places(timeline)
            if not place.here and (timeline, place.member.id) in self._here.keys() - self._claims
        ]

    def listen(self, heard: Callable[[Iterable[str]], None]) -> None:
        """From now on call `heard` with the timelines whose consumers have changed."""
        self._heard = heard

    def changed(self, timelines: Iterable[str]) -> None:
        """The view shows other consumers."""
        self._fresh.set()
        self._heard(timelines)

    async def run(self) -> None:
        """Keep the registered consumers correct, without end; each start compares everything."""
        self._fresh.set()
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            session = await self._membership.joined()
            try:
                await self._correct(session)
            except CoordinationAway as error:
                log.warning("consumer_registration_failed", error=str(error))
                await asyncio.sleep(RETRY_S)
                self._fresh.set()

    async def _correct(self, session: CoordinationSession) -> None:
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
        slots = asyncio.Semaphore(WRITES_MAX)

        async def one_of(work: Coroutine[Any, Any, None]) -> None:
            async with slots:
                await work

        writes = [*missing, *left]
        try:
            ended = await asyncio.gather(*map(one_of, writes), return_exceptions=True)
        finally:
            for each in writes:
                each.close()  # a caller that is cancelled leaves some that never started
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure
        for timeline in list(self._deals):  # after the consumers, so that all brokers see them before the deal
            await self._write_deal(timeline)

    async def _write(self, timeline: str, member: DealtConsumer, session: CoordinationSession) -> None:
        """Register a consumer, replacing an earlier one with its id; when another write came first, look again."""
        key = consumer_key(timeline, member.id)
        there = self._metadata.view.consumers.get(timeline, {}).get(member.id)
        # A consumer that takes over an id keeps its start time. The buckets of an id are the same on every broker.
        since_ms = self._clock_ms() if there is None else there.since_ms
        registered = RegisteredConsumer(member.id, member.rack, self._node_id, since_ms)
        if registered == there:
            self._claims.discard((timeline, member.id))
            return
        revision = self._metadata.view.revision_of(key)
        written = await self._coordination.compare_and_put(key, encode_consumer(registered), revision, session=session)
        if written is not None:
            self._claims.discard((timeline, member.id))
        else:
            await self._see(key)

    async def _write_deal(self, timeline: str) -> None:
        """Write a record, unless another one was written since; then this broker deals again from that one."""
        record, revision = self._deals[timeline]
        if self._metadata.view.revision_of(deal_key(timeline)) == revision:
            await self._coordination.compare_and_put(deal_key(timeline), record, revision)
        if self._deals.get(timeline) == (record, revision):
            del self._deals[timeline]

    async def _remove(self, timeline: str, consumer: str) -> None:
        key = consumer_key(timeline, consumer)
        if await self._coordination.compare_and_put(key, None, self._metadata.view.revision_of(key)) is None:
            await self._see(key)

    async def _see(self, key: str) -> None:
        """Another broker wrote first: look again when this broker has seen its write."""
        entry = await self._coordination.get(key)
        revision = 0 if entry is None else entry.revision
        await self._metadata.until(lambda: self._metadata.view.revision_of(key) == revision, RETRY_S)
        self._fresh.set()
