"""Membership: the registration of this broker in the cluster, under a session.

To join, the broker starts a session, checks that no other broker uses its node id, gives up the leaderships of its
earlier incarnation, and registers. Giving them up raises the epochs, which records that the broker was away. When the
session ends (etcd was not reached in time), the broker is no longer a member. It steps down at once, by its own clock,
and joins again as a new incarnation.

An existing registration that names our data directory belongs to the previous process on it, because only one process
can hold the directory. Such a registration is taken over. The broker waits for any other registration as long as a
session lasts without renewal, and then refuses to start.

A record of every member stays in coordination after the member stops (core/known_brokers.py), until an operator deletes
it with `tidemill cluster forget`.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from uuid import UUID

import structlog

from tidemill.cluster.core.changes import retirements
from tidemill.cluster.core.image import Image
from tidemill.cluster.core.known_brokers import decode_known, encode_known, known_from, known_key
from tidemill.cluster.core.registration import (
    INACTIVE,
    Registration,
    broker_key,
    decode_registration,
    encode_registration,
)
from tidemill.cluster.interface import Coordination, CoordinationAway, CoordinationSession, KeyGuard
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.cluster.partition_states import States
from tidemill.model.errors import BrokerIdNotRegistered, InvalidConfig, InvalidRequest

PAUSE_S = 0.5
RETIRING_S = 15.0

log = structlog.get_logger("tidemill.cluster")


class Membership:
    """This broker as a member."""

    def __init__(
        self,
        coordination: Coordination,
        metadata: ClusterMetadata,
        registration: Registration,
        *,
        ttl_ms: int,
        new_id: Callable[[], UUID],
        step_down: Callable[[], None],
    ) -> None:
        self.registration = registration
        self.states = States(coordination, metadata, registration.node_id, lambda: self.alive)
        self._coordination = coordination
        self._metadata = metadata
        self._ttl_ms = ttl_ms
        self._new_id = new_id
        self._step_down = step_down
        self.lost_partitions: Collection[tuple[str, int]] = ()
        """Partitions whose records are missing from this data directory; given up when this broker joins."""
        self._session: CoordinationSession | None = None
        self._opened = AsyncExitStack()
        self._joined = asyncio.Event()
        self._turn = asyncio.Lock()
        self._left = False
        self._stepped_down = False

    @property
    def session(self) -> CoordinationSession | None:
        """The session under which this broker is a member now, or None."""
        return self._session if self.alive else None

    @property
    def alive(self) -> bool:
        """Whether this broker is a member."""
        return self._session is not None and self._session.alive

    def step_down_if_over(self) -> None:
        """Give up all leaderships when the session has ended.

        Every request calls this. A paused process resumes with the requests of its clients, before its own timers run.
        """
        if self.alive:
            self._stepped_down = False
        elif not self._stepped_down and not self._left:
            self._stepped_down = True
            self._step_down()

    async def joined(self) -> CoordinationSession:
        """Wait for the session."""
        while True:
            await self._joined.wait()
            if self._session is not None:
                return self._session

    async def number_is_ours(self) -> None:
        """Check the node id before anything is opened; InvalidConfig when another broker keeps using it."""
        await self._claim_number()

    async def join(self) -> None:
        """Become a member; InvalidConfig or CoordinationAway when that fails."""
        session = await self._opened.enter_async_context(self._coordination.session(self._ttl_ms))
        registered = False
        while not registered:  # the registration that was found may expire while this broker gives up its leaderships
            found = await self._claim_number()
            if self._coordination.shared:
                await self._retire_before(session)
            registered = await self._register(session, found)
        self._session = session
        self._joined.set()

    async def stay(self) -> None:
        """Step down when the session ends, and join again; without end."""
        if self._session is None and not self._left:  # an earlier run failed before it had joined again
            self.step_down_if_over()
            await self._join_again()
        while True:
            session = await self.joined()
            await session.ended()
            if self._left:
                return
            self._joined.clear()
            self._session = None
            self.step_down_if_over()
            log.warning("session_lost", node=self.registration.node_id)
            await self._join_again()

    async def leave(self) -> None:
        """Hand over the leaderships of this broker, then end the session."""
        if self._coordination.shared and self.alive:
            # Announce the stop first. The controller would otherwise elect this broker again for partitions that only
            # it has.
            with suppress(CoordinationAway):
                await self.announce(replace(self.registration, state=INACTIVE, reason="the broker is stopping"))
            await self._retire()
        self._left = True
        self._joined.clear()
        self._session = None
        await self._opened.aclose()

    async def announce(self, registration: Registration) -> None:
        """Publish a new registration of this broker."""
        async with self._turn:
            before = self.registration
            self.registration = replace(registration, incarnation=before.incarnation)
            session = self.session
            if session is None:
                return
            reported = False
            try:
                entry = await self._coordination.get(broker_key(registration.node_id))
                reported = await self._register(session, entry.revision if entry else 0)
            finally:
                if not reported:  # keep the published one, so that the next comparison publishes again
                    self.registration = replace(before, incarnation=self.registration.incarnation)

    async def remember(self) -> None:
        """Store the record that outlives this broker's registration, unless it is stored already."""
        node_id, image, view = self.registration.node_id, self._metadata.image, self._metadata.view
        mine = image.brokers.get(node_id)
        if not self._coordination.shared or not self.alive or mine is None:
            return
        if mine.incarnation != self.registration.incarnation or image.known.get(node_id) == known_from(mine):
            return
        document = encode_known(known_from(mine))
        guard = KeyGuard(broker_key(node_id), view.revision_of(broker_key(node_id)))
        key = known_key(node_id)
        await self._coordination.compare_and_put(key, document, view.revision_of(key), guard=guard)

    async def forget(self, node_id: int) -> None:
        """Delete the record of a broker that will not come back."""
        _check_forgettable(self._metadata.image, node_id)
        key, view = known_key(node_id), self._metadata.view
        gone = KeyGuard(broker_key(node_id), 0)
        written = await self._coordination.compare_and_put(key, None, view.revision_of(key), guard=gone)
        if written is None:
            raise InvalidRequest(f"broker {node_id} has joined again; stop it before you forget it")
        await self._metadata.caught_up(written)

    async def _join_again(self) -> None:
        while True:
            await self._opened.aclose()
            self._opened = AsyncExitStack()
            self.registration = replace(self.registration, incarnation=self._new_id())
            try:
                await self.join()
            except (CoordinationAway, InvalidConfig) as error:
                log.warning("cluster_join_failed", error=str(error))
                await asyncio.sleep(PAUSE_S)
                continue
            log.info("cluster_rejoined", node=self.registration.node_id)
            return

    async def _claim_number(self) -> int:
        """The revision of a registration that may be replaced; 0 when there is none."""
        key = broker_key(self.registration.node_id)
        loop = asyncio.get_running_loop()
        # etcd keeps a lease longer than its TTL when its own leader changes.
        deadline = loop.time() + 2 * self._ttl_ms / 1000
        reported = False
        while True:
            entry = await self._coordination.get(key)
            if entry is None:
                return 0
            other = decode_registration(entry.value)
            if other.directory == self.registration.directory:
                return entry.revision
            if loop.time() > deadline:
                where = f" at {other.kafka}" if other.kafka else ""
                number = self.registration.node_id
                raise InvalidConfig(f"node id {number} is used by another broker{where}; choose another with --node-id")
            if not reported:
                log.warning("waiting_for_node_id", node=other.node_id)
                reported = True
            await asyncio.sleep(min(PAUSE_S, self._ttl_ms / 4000))

    async def _retire_before(self, session: CoordinationSession) -> None:
        """Give up the leaderships of the previous process; with a new disk, also its places in the in-sync sets."""
        key = known_key(self.registration.node_id)
        entry = await self._coordination.get(key)
        lost = entry is not None and decode_known(entry.value).directory != self.registration.directory
        if lost:
            log.warning("data_directory_replaced", node=self.registration.node_id)
        if await self._retire(lost=lost):
            self.lost_partitions = ()
        if entry is None or lost:
            mine = encode_known(known_from(self.registration))
            await self._coordination.compare_and_put(key, mine, entry.revision if entry else 0)
        if not session.alive:
            raise CoordinationAway("the session ended while this broker joined the cluster")

    async def _retire(self, *, lost: bool = False) -> bool:
        """Move leaderships away until the view shows it, because others may change the same partitions.

        Returns whether all were moved before the deadline.
        """
        deadline = asyncio.get_running_loop().time() + RETIRING_S
        node_id = self.registration.node_id
        find = partial(retirements, node_id=node_id, lost=lost, lost_partitions=self.lost_partitions)
        while changes := list(find(self._metadata.image)):
            if asyncio.get_running_loop().time() > deadline:
                log.warning("leadership_handover_incomplete", partitions=len(changes))
                return False
            await self.states.write_all(changes)
            await self._metadata.until(lambda: not any(find(self._metadata.image)), PAUSE_S)
        return True

    async def _register(self, session: CoordinationSession, revision: int) -> bool:
        """Write the registration over the revision that was seen; False when that has changed."""
        key, document = broker_key(self.registration.node_id), encode_registration(self.registration)
        written = await self._coordination.compare_and_put(key, document, revision, session=session)
        if written is None and revision and await self._coordination.get(key) is None:
            # The session of the previous process has just ended, and its registration was deleted with it.
            written = await self._coordination.compare_and_put(key, document, 0, session=session)
        if written is None:
            return False
        await self._metadata.caught_up(written)
        return True


def _check_forgettable(image: Image, node_id: int) -> None:
    if node_id in image.brokers:
        raise InvalidRequest(f"broker {node_id} is running; stop it before you forget it")
    carried = image.carried_by(node_id)
    if carried:
        raise InvalidRequest(
            f"broker {node_id} still has replicas of {len(carried)} partitions, such as {carried[0]}; move them first:"
            " tidemill cluster rebalance, or tidemill topic reassign"
        )
    if node_id not in image.known:
        raise BrokerIdNotRegistered(f"broker {node_id} is not known; list the brokers with: tidemill cluster status")
