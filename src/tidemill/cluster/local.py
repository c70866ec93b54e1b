"""Coordination for one broker: keys in memory, every change in a journal in the data directory (journal.py).

A write is acknowledged after its line is durable, and the next write comes after that. At start the lines are replayed.
When most lines are history, the next start rewrites the journal. A write that fails on a full disk is truncated, and
the next one may succeed. After a failed flush the content of the file is unknown, so every later write is rejected
until a restart.

Keys of a session are kept in memory only, because a process that has ended has no sessions.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidemill.cluster.interface import (
    Changed,
    ClockReading,
    CoordinationSession,
    KeyGuard,
    PrefixListing,
    VersionedValue,
    WatchGap,
)
from tidemill.cluster.journal import CoordinationJournal, JournalFull
from tidemill.model.errors import KafkaStorageError

HISTORY_MAX = 10_000
"""The number of past changes that a watch can start from."""
REWRITE_LINES_MIN = 1_000
REWRITE_SHARE = 4
"""The journal is rewritten when it has this many times more lines than there are keys."""


class LocalSession:
    """The liveness of the only broker; it ends with the process."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self._ended = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Whether this broker may still act as a member."""
        return not self._ended.is_set()

    async def ended(self) -> None:
        """Wait until the session has ended."""
        await self._ended.wait()

    def end(self) -> None:
        """End the session."""
        self._ended.set()


class LocalCoordination:
    """Keys of one broker, durable in its data directory."""

    shared = False

    def __init__(self, directory: Path) -> None:
        self._journal = CoordinationJournal(directory)
        self._entries: dict[str, VersionedValue] = {}
        self._revision = 0
        self._history: deque[Changed] = deque(maxlen=HISTORY_MAX)
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._failed: OSError | None = None

    @classmethod
    async def open(cls, directory: Path) -> "LocalCoordination":
        """Replay the journal, or create one."""
        self = cls(directory)
        self._load()
        return self

    async def get(self, key: str) -> VersionedValue | None:
        """The key's entry, or None."""
        return self._entries.get(key)

    async def get_prefix(self, prefix: str) -> PrefixListing:
        """All entries whose key has this prefix."""
        found = {key: entry for key, entry in self._entries.items() if key.startswith(prefix)}
        return PrefixListing(found, self._revision)

    async def compare_and_put(
        self,
        key: str,
        value: bytes | None,
        revision: int,
        *,
        session: CoordinationSession | None = None,
        guard: KeyGuard | None = None,
    ) -> int | None:
        """Write (or with None delete) a key that is at `revision`; the new revision, or None when the key is not at it.

        Cancelling the caller does not stop the write half-way, because memory and journal must change together.
        """
        return await asyncio.shield(asyncio.ensure_future(self._put(key, value, revision, session, guard)))

    async def _put(
        self, key: str, value: bytes | None, revision: int, session: CoordinationSession | None, guard: KeyGuard | None
    ) -> int | None:
        async with self._writing:
            if self._revision_of(key) != revision or (guard and self._revision_of(guard.key) != guard.revision):
                return None
            change = Changed(key, value, self._revision + 1)
            if isinstance(session, LocalSession):
                session.keys.add(key)
            else:
                await self._write([change])
            await self._publish(change)
            return change.revision

    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Changed]:
        """Every change under the prefix later than `after_revision`."""
        seen = after_revision
        while True:
            async with self._changed:
                while self._revision <= seen and self._journal.is_open:
                    await self._changed.wait()
                if not self._journal.is_open:
                    return
                if not self._history or self._history[0].revision > seen + 1:
                    raise WatchGap
                fresh = [change for change in self._history if change.revision > seen]
            for change in fresh:
                seen = change.revision
                if change.key.startswith(prefix):
                    yield change

    @asynccontextmanager
    async def session(self, ttl_ms: int) -> AsyncIterator[CoordinationSession]:  # noqa: ARG002 -- one process: nothing to renew
        """A session that lives while the block runs."""
        mine = LocalSession()
        try:
            yield mine
        finally:
            mine.end()
            for key in sorted(mine.keys):
                if key in self._entries:
                    await self._publish(Changed(key, None, self._revision + 1))

    async def clock(self) -> ClockReading | None:
        """None: local coordination has no clock of its own."""
        return None

    async def close(self) -> None:
        """Close the journal and end the watches."""
        async with self._writing, self._changed:
            self._journal.close()
            self._changed.notify_all()

    def _revision_of(self, key: str) -> int:
        held = self._entries.get(key)
        return held.revision if held else 0

    async def _publish(self, change: Changed) -> None:
        self._apply(change)
        self._history.append(change)
        async with self._changed:
            self._changed.notify_all()

    def _apply(self, change: Changed) -> None:
        self._revision = change.revision
        if change.value is None:
            self._entries.pop(change.key, None)
        else:
            self._entries[change.key] = VersionedValue(change.value, change.revision)

    async def _write(self, changes: list[Changed]) -> None:
        path = self._journal.path
        if self._failed is not None or not self._journal.is_open:
            raise KafkaStorageError(f"{path} rejects all changes: {self._failed or 'it is closed'}; restart the broker")
        try:
            await asyncio.to_thread(self._journal.append, changes)
        except JournalFull as error:
            raise KafkaStorageError(f"{path} cannot be written: {error}; free disk space and try again") from error
        except OSError as error:
            self._failed = error
            raise KafkaStorageError(
                f"{path} cannot be written: {error}; free disk space and restart the broker"
            ) from error

    def _load(self) -> None:
        changes = self._journal.load()
        for change in changes:
            self._apply(change)
        rewrite = len(changes) > max(REWRITE_LINES_MIN, REWRITE_SHARE * len(self._entries))
        self._journal.open(changes, self._present() if rewrite else None)

    def _present(self) -> list[Changed]:
        """The current keys without their history, and the last revision, so that revisions never decrease."""
        entries = sorted(self._entries.items(), key=lambda item: item[1].revision)
        kept = [Changed(key, entry.value, entry.revision) for key, entry in entries]
        return [*kept, Changed("", None, self._revision)]
