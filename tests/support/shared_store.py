"""A coordination store shared by several brokers, on a virtual clock. Brokers can be cut off, and sessions expire.

The store keeps a session for its full time after it received the last renewal. Its owner counts from the time when that
renewal was sent, and gives up a quarter earlier, as with etcd.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

from tidemill.cluster.controller import Controller
from tidemill.cluster.core.image import PartitionInfo, Topic, encode_topic
from tidemill.cluster.core.registration import Endpoint, Registration
from tidemill.cluster.core.view import Touched
from tidemill.cluster.interface import (
    Changed,
    ClockReading,
    CoordinationAway,
    CoordinationSession,
    KeyGuard,
    PrefixListing,
    VersionedValue,
)
from tidemill.cluster.membership import Membership
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.model.topic_settings import parse

TTL_MS = 4_000
ANSWER_S = 0.01
AWAY_S = 1.0
TOPIC_ID = UUID(int=77)


class Store:
    """The shared state."""

    def __init__(self) -> None:
        self.entries: dict[str, VersionedValue] = {}
        self.owners: dict[str, StoreSession] = {}
        self.revision = 0
        self.keeps_sessions = False
        """As in a restarted etcd: sessions that expired meanwhile get their full time again."""
        self._history: list[Changed] = []
        self._news = asyncio.Event()

    def put(self, key: str, value: bytes | None) -> int:
        """Write unconditionally."""
        self.revision += 1
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = VersionedValue(value, self.revision)
        self._history.append(Changed(key, value, self.revision))
        self._news.set()
        self._news = asyncio.Event()
        return self.revision

    def revision_of(self, key: str) -> int:
        """The revision of the key; 0 when it does not exist."""
        found = self.entries.get(key)
        return found.revision if found else 0

    async def changes(self, after: int) -> AsyncIterator[Changed]:
        """All later changes."""
        while True:
            news = self._news
            for change in self._history[after:]:
                yield change
                after = change.revision
            await news.wait()


class StoreSession:
    """A session of one broker."""

    def __init__(self, store: Store, reached: Callable[[], bool], ttl_s: float) -> None:
        self._store = store
        self._reached = reached
        self._ttl_s = ttl_s
        self._until = asyncio.get_running_loop().time() + ttl_s * 3 / 4
        self._kept_until = asyncio.get_running_loop().time() + ttl_s
        self._ended = asyncio.Event()
        self._tasks = [asyncio.create_task(self._renew()), asyncio.create_task(self._expire())]

    @property
    def alive(self) -> bool:
        """Whether its owner may act."""
        return not self._ended.is_set() and asyncio.get_running_loop().time() < self._until

    async def ended(self) -> None:
        """Wait until its owner may not act any more."""
        await self._ended.wait()

    def end(self) -> None:
        """Release the session."""
        self._ended.set()
        if self._reached():
            self._drop()
            self._tasks[1].cancel()

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self._until:
            if self._reached():
                self._until = loop.time() + self._ttl_s * 3 / 4
                self._kept_until = loop.time() + self._ttl_s
            await asyncio.sleep(min(self._ttl_s / 6, max(0.001, self._until - loop.time())))
        self._ended.set()

    async def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while (left := self._kept_until - loop.time()) > 0 or self._store.keeps_sessions:  # noqa: ASYNC110 -- the end moves
            await asyncio.sleep(max(left, ANSWER_S))
        self._drop()

    def _drop(self) -> None:
        for key in sorted(key for key, owner in self._store.owners.items() if owner is self):
            del self._store.owners[key]
            if key in self._store.entries:
                self._store.put(key, None)


class Line:
    """The connection of one broker to the store, which can be cut."""

    shared = True

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cut = False
        self.loses_answers_to: str | None = None

    async def get(self, key: str) -> VersionedValue | None:
        """The key's entry."""
        await self._reach()
        return self.store.entries.get(key)

    async def get_prefix(self, prefix: str) -> PrefixListing:
        """All entries whose key has this prefix."""
        await self._reach()
        found = {key: entry for key, entry in self.store.entries.items() if key.startswith(prefix)}
        return PrefixListing(found, self.store.revision)

    async def clock(self) -> ClockReading | None:
        """None: the store has no clock of its own."""
        return None

    async def compare_and_put(
        self,
        key: str,
        value: bytes | None,
        revision: int,
        *,
        session: CoordinationSession | None = None,
        guard: KeyGuard | None = None,
    ) -> int | None:
        """Write if the revision is unchanged."""
        await self._reach()
        if self.store.revision_of(key) != revision:
            return None
        if guard is not None and self.store.revision_of(guard.key) != guard.revision:
            return None
        if isinstance(session, StoreSession):
            self.store.owners[key] = session
        written = self.store.put(key, value)
        if key == self.loses_answers_to:
            raise CoordinationAway("the answer was lost")
        return written

    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Changed]:
        """All later changes. They wait while the connection is cut."""
        async for change in self.store.changes(after_revision):
            while self.cut:  # noqa: ASYNC110 -- tests cut by setting a flag
                await asyncio.sleep(AWAY_S)
            if change.key.startswith(prefix):
                yield change

    @asynccontextmanager
    async def session(self, ttl_ms: int) -> AsyncIterator[CoordinationSession]:
        """A session that is renewed while the block runs."""
        await self._reach()
        mine = StoreSession(self.store, lambda: not self.cut, ttl_ms / 1000)
        try:
            yield mine
        finally:
            mine.end()

    async def close(self) -> None:
        """Nothing to release."""

    async def _reach(self) -> None:
        await asyncio.sleep(AWAY_S if self.cut else ANSWER_S)
        if self.cut:
            raise CoordinationAway("the store was not reached")


class Node:
    """The membership and the controller of one broker, as the broker runs them."""

    def __init__(self, store: Store, number: int, directory: int | None = None) -> None:
        self.line = Line(store)
        self.metadata = ClusterMetadata(self.line, {})
        self.stepped_down: list[float] = []
        self._ids = iter(range(1000 * number, 1000 * number + 1000))
        place = Registration(
            number,
            UUID(int=next(self._ids)),
            UUID(int=directory or number),
            kafka=Endpoint("127.0.0.1", 9000 + number),
        )
        self.membership = Membership(
            self.line,
            self.metadata,
            place,
            ttl_ms=TTL_MS,
            new_id=lambda: UUID(int=next(self._ids)),
            step_down=lambda: self.stepped_down.append(asyncio.get_running_loop().time()),
        )
        self.controller = Controller(self.line, self.metadata, self.membership, rebalance_s=None, copies={})
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *, controls: bool = False) -> None:
        """Join the cluster and stay in it."""
        await self.metadata.load()
        self._tasks.append(asyncio.create_task(self.metadata.follow(self._changed)))
        await self.membership.join()
        self._tasks.append(asyncio.create_task(self.membership.stay()))
        if controls:
            self._tasks.append(asyncio.create_task(self.controller.run()))

    def state(self, index: int = 0) -> PartitionInfo:
        """The partition as this broker sees it."""
        return self.metadata.image.by_id[TOPIC_ID].partitions[index]

    async def _changed(self, touched: Touched) -> None:
        self.controller.changed(touched)


def put_topic(store: Store, *replicas: int, partitions: int = 1) -> None:
    """Create a topic on these brokers."""
    infos = tuple(PartitionInfo(index, replicas[0], replicas, replicas, 0) for index in range(partitions))
    store.put("topics/orders", encode_topic(Topic("orders", TOPIC_ID, infos, {}, parse({}))))
