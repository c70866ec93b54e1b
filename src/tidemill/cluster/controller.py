"""The controller: the one broker at a time that elects leaders and changes replicas.

It holds the key `controller` under its session. Every write it makes is guarded by the revision of that key, so a
controller that was paused and resumes too late writes nothing. `core/changes` decides from the image what to do; this
module runs for election and writes the changes. When a controller dies, the next one continues from the image.
"""

import asyncio
from collections.abc import Collection, Mapping

import structlog

from tidemill.cluster.core.changes import IsShared, StateChange, nothing, plan, preferred, spread
from tidemill.cluster.core.growth import growth, required
from tidemill.cluster.core.image import NO_BROKER, TOPICS, Topic, encode_topic
from tidemill.cluster.core.registration import INACTIVE
from tidemill.cluster.core.tombstones import Tombstone, encode_tombstone, tombstone_key
from tidemill.cluster.core.view import CONTROLLER, Touched
from tidemill.cluster.interface import Coordination, CoordinationAway, CoordinationSession, KeyGuard
from tidemill.cluster.membership import Membership
from tidemill.cluster.metadata import ClusterMetadata

PAUSE_S = 0.5

log = structlog.get_logger("tidemill.cluster")


class Controller:
    """The controller of this broker, elected or not."""

    def __init__(
        self,
        coordination: Coordination,
        metadata: ClusterMetadata,
        membership: Membership,
        *,
        rebalance_s: float | None,
        copies: Mapping[str, int],
        strict: Collection[str] = (),
        is_shared: IsShared = nothing,
    ) -> None:
        self._coordination = coordination
        self._metadata = metadata
        self._membership = membership
        self._node_id = membership.registration.node_id
        self._rebalance_s = rebalance_s
        self._copies = copies
        """The replicas that internal topics should have; empty when they do not grow."""
        self._strict = strict
        """Of these topics, all replicas but one must have a record before it counts."""
        self._is_shared = is_shared
        self._topics: set[str] = set()
        self._all = False
        self._fresh = asyncio.Event()

    def changed(self, touched: Touched) -> None:
        """The view has changed, so there may be something to decide."""
        self._topics |= touched.topics
        self._all = self._all or touched.brokers or touched.controller
        self._fresh.set()

    async def run(self) -> None:
        """Run for election and do the controller's work, without end."""
        while True:
            session = await self._membership.joined()
            try:
                guard = await self._run_for_election(session)
                if guard is not None:
                    log.info("controller_elected", node=self._node_id)
                    await self._decide(session, guard)
            except CoordinationAway as error:
                log.warning("controller_coordination_unreachable", error=str(error))
            await asyncio.sleep(PAUSE_S)

    async def _run_for_election(self, session: CoordinationSession) -> KeyGuard | None:
        """Become the controller when there is no other; None when the session ended before.

        A `controller` key with our own node id is replaced. It may belong to a session that has ended here and not yet
        in coordination, or the answer to our write was lost. Waiting for it to disappear would mean waiting for
        ourselves.
        """
        while session.alive:
            if self._is_vacant():
                value, known = str(self._node_id).encode(), self._metadata.view.revision_of(CONTROLLER)
                revision = await self._coordination.compare_and_put(CONTROLLER, value, known, session=session)
                if revision is not None:
                    return KeyGuard(CONTROLLER, revision)
            await self._metadata.until(self._is_vacant, PAUSE_S)
        return None

    def _is_vacant(self) -> bool:
        return self._metadata.view.controller in (NO_BROKER, self._node_id)

    async def _decide(self, session: CoordinationSession, guard: KeyGuard) -> None:
        self._all = True
        self._fresh.set()
        rebalancing = asyncio.get_running_loop().time()
        await self._metadata.caught_up(guard.revision)
        while session.alive and self._metadata.view.revision_of(CONTROLLER) == guard.revision:
            await self._work(guard)
            interval = self._rebalance_s
            if interval is not None and asyncio.get_running_loop().time() - rebalancing >= interval:
                rebalancing = asyncio.get_running_loop().time()
                await self._write(list(preferred(self._metadata.image)), guard, "preferred_leaders_elected")
                even = list(spread(self._metadata.image, self._is_shared))
                await self._write(even, guard, "leaders_balanced")
            await self._pause()

    async def _pause(self) -> None:
        """Wait for a change. After a timeout everything is checked again, because a write may have been lost."""
        try:
            async with asyncio.timeout(PAUSE_S):
                await self._fresh.wait()
        except TimeoutError:
            self._all = True

    async def _work(self, guard: KeyGuard) -> None:
        self._fresh.clear()
        names = None if self._all else frozenset(self._topics)
        self._topics, self._all = set(), False
        await self._write(list(plan(self._metadata.image, names, self._is_shared)), guard, "partitions_changed")
        await self._grow(guard)
        for tombstone in list(self._metadata.view.tombstones.values()):
            await self._adopt(tombstone, guard)

    async def _grow(self, guard: KeyGuard) -> None:
        """Add replicas to internal topics, a few at a time; the next ones follow when these are in sync."""
        grown = list(growth(self._metadata.image, self._copies, self._is_shared))
        for topic, before, after in grown:
            log.info(
                "replicas_added",
                partition=f"{topic.name}-{before.index}",
                replicas=before.replicas,
                adding=after.adding,
            )
        await self._write(grown, guard, "internal_topics_extended")
        for topic in list(required(self._metadata.image, self._copies, self._strict)):
            await self._alter(topic, guard)

    async def _alter(self, topic: Topic, guard: KeyGuard) -> None:
        """Write the settings of a topic, unless it has changed."""
        key = TOPICS + topic.name
        revision = self._metadata.view.revision_of(key)
        written = await self._coordination.compare_and_put(key, encode_topic(topic), revision, guard=guard)
        if written is not None:
            log.info(
                "topic_requires_replicas", topic=topic.name, min_insync_replicas=topic.settings.min_insync_replicas
            )
            await self._metadata.caught_up(written)

    async def _write(self, changes: list[StateChange], guard: KeyGuard, event: str) -> None:
        if not changes:
            return
        written = await self._membership.states.write_all(changes, guard)
        log.info(event, partitions=len(changes), written=written)

    async def _adopt(self, tombstone: Tombstone, guard: KeyGuard) -> None:
        """Take over a deletion whose owner has stopped."""
        owner = self._metadata.image.brokers.get(tombstone.owner)
        if tombstone.owner == self._node_id or (owner is not None and owner.state != INACTIVE):
            return
        key = tombstone_key(tombstone.name)
        mine = encode_tombstone(tombstone.owned_by(self._node_id))
        revision = self._metadata.view.revision_of(key)
        await self._coordination.compare_and_put(key, mine, revision, guard=guard)
