"""A directory: the values under one prefix of coordination, listed once and then updated by a watch.

Users, ACLs and quotas each have one. Reads use this broker's copy. A write changes the store by compare-and-put and
then this broker's copy, so that the writer sees its own change at once. Other brokers see it through their watch.

A change is applied only when its revision is above the revision of what the copy has for the key. The watch may
report an older change after a write of this broker. For this reason the copy keeps the revision of a deleted key
until the watch has reached it.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from urllib.parse import quote, unquote

import structlog

from tidemill.model.errors import RequestTimedOut, TidemillError
from tidemill.security.interface import SecurityStore, StoreListing
from tidemill.supervision.supervisor import Supervisor

PAUSE_S = 0.2
"""The pause before a failed watch starts again."""
TRIES_MAX = 50
"""How often a write reads the key again because another broker has changed it."""

DirectoryChanges = Mapping[str, bytes | None]
"""The new value of each changed name; None when it was deleted."""
OnChange = Callable[[DirectoryChanges], None]
"""Called after the copy has changed; it must not raise."""
Edit = Callable[[bytes | None], bytes | None]

log = structlog.get_logger("tidemill.security")


class Directory:
    """Named values that all brokers share. Names may have any characters; keys have them percent-encoded."""

    def __init__(self, store: SecurityStore, prefix: str, on_change: OnChange | None = None) -> None:
        self._store = store
        self._prefix = prefix
        self._on_change = on_change
        self._values: dict[str, bytes] = {}
        self._revisions: dict[str, int] = {}
        self._deleted: dict[str, int] = {}
        """The revisions of deleted names that the watch has not reached."""
        self._seen = 0
        self._is_following = False
        self._watch: asyncio.Task[None] | None = None

    @property
    def values(self) -> Mapping[str, bytes]:
        """The values by name, as this broker knows them."""
        return MappingProxyType(self._values)

    def get(self, name: str) -> bytes | None:
        """The value of a name, as this broker knows it."""
        return self._values.get(name)

    async def load(self) -> None:
        """List the prefix; `on_change` gets every difference from what was known before, all in one call."""
        self._take(await self._store.get_prefix(self._prefix))

    async def start(self, supervisor: Supervisor) -> None:
        """List the prefix, then follow its changes until `stop`."""
        await self.load()
        self._watch = supervisor.keep("security watch", self._follow, about=self._prefix)

    async def stop(self) -> None:
        """End the watch."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def put(self, name: str, value: bytes) -> None:
        """Write a value, whatever it was before."""
        await self.update(name, lambda _: value)

    async def delete(self, name: str) -> bool:
        """Delete a name; False when it does not exist."""
        existed = False

        def gone(value: bytes | None) -> None:
            nonlocal existed
            existed = value is not None

        await self.update(name, gone)
        return existed

    async def update(self, name: str, edit: Edit) -> bytes | None:
        """Write what `edit` makes of the current value (None: does not exist, or delete it); the new value.

        `edit` is called again when another broker was faster. It may raise, and nothing is written then.
        """
        key = self._prefix + quote(name, safe="")
        for _ in range(TRIES_MAX):
            found = await self._store.get(key)
            old = None if found is None else found.value
            new = edit(old)
            if found is None and new is None:
                return None
            if found is not None and new == old:
                self._apply({name: (old, found.revision)})
                return new
            written = await self._store.compare_and_put(key, new, 0 if found is None else found.revision)
            if written is not None:
                self._apply({name: (new, written)})
                return new
        raise RequestTimedOut(f"{key} was not written: other brokers changed it {TRIES_MAX} times; try again")

    async def _follow(self) -> None:
        """Apply the changes of the watch, without end. After an error the prefix is listed again."""
        if self._is_following:
            await self.load()  # the loop failed and starts again
        self._is_following = True
        while True:
            try:
                async for change in self._store.watch(self._prefix, self._seen):
                    self._apply({self._name(change.key): (change.value, change.revision)})
                    self._reached(change.revision)
            except TidemillError as error:
                if not error.retriable:
                    raise
                log.warning("security_watch_interrupted", prefix=self._prefix, error=str(error))
                await self._load_again()
            else:
                return  # the store was closed

    async def _load_again(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            try:
                return await self.load()
            except TidemillError as error:
                if not error.retriable:
                    raise

    def _take(self, listing: StoreListing) -> None:
        found = {self._name(key): (each.value, each.revision) for key, each in listing.entries.items()}
        changes: dict[str, tuple[bytes | None, int]] = {
            name: (None, listing.revision)
            for name, revision in self._revisions.items()
            if name not in found and revision <= listing.revision
        }
        self._apply(changes | found)
        self._reached(listing.revision)

    def _apply(self, changes: Mapping[str, tuple[bytes | None, int]]) -> None:
        fresh: dict[str, bytes | None] = {}
        for name, (value, revision) in changes.items():
            if revision <= max(self._revisions.get(name, 0), self._deleted.get(name, 0)):
                continue
            if value != self._values.get(name):
                fresh[name] = value
            if value is None:
                self._values.pop(name, None)
                self._revisions.pop(name, None)
                self._deleted[name] = revision
            else:
                self._values[name] = value
                self._revisions[name] = revision
                self._deleted.pop(name, None)
        if fresh and self._on_change is not None:
            self._on_change(fresh)

    def _reached(self, revision: int) -> None:
        self._seen = max(self._seen, revision)
        if self._deleted:
            self._deleted = {name: at for name, at in self._deleted.items() if at > self._seen}

    def _name(self, key: str) -> str:
        return unquote(key.removeprefix(self._prefix))
