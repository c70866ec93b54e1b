"""The controller: one overseer at a time decides who leads what.

It holds the key `controller` under its session, and every write it makes is guarded by the revision of that key: one
that was paused and comes back too late writes nothing. What to do is decided by `core/changes` from the image; this
shell is elected, asks, and writes. A controller that dies leaves an image, and the next one goes on from there.
"""

import asyncio
from collections.abc import Mapping

import structlog

from tidemill.cluster.core.changes import IsShared, StateChange, growth, nothing, plan, preferred, spread
from tidemill.cluster.core.image import NOBODY
from tidemill.cluster.core.registration import INACTIVE
from tidemill.cluster.core.tombstones import Tombstone, encode_tombstone, tombstone_key
from tidemill.cluster.core.view import CONTROLLER, Touched
from tidemill.cluster.interface import Coordination, CoordinationAway, CoordinationSession, KeyGuard
from tidemill.cluster.membership import Membership
from tidemill.cluster.metadata import ClusterMetadata

PAUSE_S = 0.5

log = structlog.get_logger("tidemill.cluster")


class Controller:
    """Elected or not, this broker's part in deciding."""

    def __init__(
        self,
        coordination: Coordination,
        metadata: ClusterMetadata,
        membership: Membership,
        *,
        rebalance_s: float | None,
        copies: Mapping[str, int],
        is_shared: IsShared = nothing,
    ) -> None:
        self._coordination = coordination
        self._metadata = metadata
        self._membership = membership
        self._node_id = membership.registration.node_id
        self._rebalance_s = rebalance_s
        self._copies = copies
        self._is_shared = is_shared
        self._topics: set[str] = set()
        self._all = False
        self._fresh = asyncio.Event()

    def changed(self, touched: Touched) -> None:
        """The view has changed: there may be something to decide."""
        self._topics |= touched.topics
        self._all = self._all or touched.brokers or touched.controller
        self._fresh.set()

    async def run(self) -> None:
        """Stand for election and do the work, for ever."""
        while True:
            session = await self._membership.joined()
            try:
                guard = await self._stand(session)
                if guard is not None:
                    log.info("this broker is the controller", node=self._node_id)
                    await self._decide(session, guard)
            except CoordinationAway as error:
                log.warning("the controller waits for coordination", error=str(error))
            await asyncio.sleep(PAUSE_S)

    async def _stand(self, session: CoordinationSession) -> KeyGuard | None:
        """Become the controller once nobody else is; None when the session ended before.

        A key of our own is taken anew: it may be of a session that is over here and not in coordination, or the answer
        to the write was lost. Waiting for it to go would be waiting for ourselves.
        """
        while session.alive:
            if self._vacant():
                value, known = str(self._node_id).encode(), self._metadata.view.revision_of(CONTROLLER)
                revision = await self._coordination.compare_and_put(CONTROLLER, value, known, session=session)
                if revision is not None:
                    return KeyGuard(CONTROLLER, revision)
            await self._metadata.until(self._vacant, PAUSE_S)
        return None

    def _vacant(self) -> bool:
        return self._metadata.view.controller in (NOBODY, self._node_id)

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
                await self._write(list(preferred(self._metadata.image)), guard, "preferred leaders lead again")
                even = list(spread(self._metadata.image, self._is_shared))
                await self._write(even, guard, "brokers lead about as much as each other")
            await self._pause()

    async def _pause(self) -> None:
        """Until something changes; looking now and then all the same, for a write may have been lost."""
        try:
            async with asyncio.timeout(PAUSE_S):
                await self._fresh.wait()
        except TimeoutError:
            self._all = True

    async def _work(self, guard: KeyGuard) -> None:
        self._fresh.clear()
        names = None if self._all else frozenset(self._topics)
        self._topics, self._all = set(), False
        await self._write(list(plan(self._metadata.image, names, self._is_shared)), guard, "partitions changed")
        grown = list(growth(self._metadata.image, self._copies, self._is_shared))
        await self._write(grown, guard, "the broker's own topics grow")
        for tombstone in list(self._metadata.view.tombstones.values()):
            await self._adopt(tombstone, guard)

    async def _write(self, changes: list[StateChange], guard: KeyGuard, what: str) -> None:
        if not changes:
            return
        written = await self._membership.states.write_all(changes, guard)
        log.info(what, partitions=len(changes), written=written)

    async def _adopt(self, tombstone: Tombstone, guard: KeyGuard) -> None:
        """A deletion whose owner is gone is finished by the controller."""
        owner = self._metadata.image.brokers.get(tombstone.owner)
        if tombstone.owner == self._node_id or (owner is not None and owner.state != INACTIVE):
            return
        key = tombstone_key(tombstone.name)
        mine = encode_tombstone(tombstone.owned_by(self._node_id))
        revision = self._metadata.view.revision_of(key)
        await self._coordination.compare_and_put(key, mine, revision, guard=guard)
