"""Cluster metadata: the view of this broker, listed once and then updated by a watch.

One watch yields every change in order. Changes that arrive while earlier ones are processed are applied together. After
a gap (coordination no longer has the changes in between) everything is listed again, and only the differences are
applied. A writer waits with `caught_up` until this broker has seen its own write.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from tidemill.cluster.core.image import Image
from tidemill.cluster.core.view import KeyChange, Touched, View
from tidemill.cluster.interface import Changed, Coordination, CoordinationAway, PrefixListing, WatchGap
from tidemill.model.errors import RequestTimedOut

CATCH_UP_S = 30.0
PAUSE_S = 0.2
GATHER_S = 0.02
"""A change is processed at once, but one that follows closely waits for more: a lost broker causes a thousand."""

OnChange = Callable[[Touched], Awaitable[None]]

log = structlog.get_logger("tidemill.cluster")


class ClusterMetadata:
    """What this broker knows about the cluster."""

    def __init__(self, coordination: Coordination, defaults: Mapping[str, str]) -> None:
        self.view = View(defaults)
        self._coordination = coordination
        self._revision = 0
        self._seen = asyncio.Condition()
        self._pending: list[Changed] = []
        self._fresh = asyncio.Event()
        self._following = False

    @property
    def image(self) -> Image:
        """The topics and brokers as last seen."""
        return self.view.image

    async def load(self) -> Touched:
        """List everything."""
        return self._take_listing(await self._coordination.get_prefix(""))

    async def follow(self, on_change: OnChange) -> None:
        """Apply the changes of the watch, without end; `on_change` completes before the next changes are applied."""
        if self._following:
            await self._start_over(on_change)
        self._following = True
        pump = asyncio.create_task(self._pump())
        pump.add_done_callback(lambda _: self._fresh.set())
        loop = asyncio.get_running_loop()
        last = 0.0
        try:
            while True:
                await self._fresh.wait()
                if loop.time() - last < GATHER_S:
                    await asyncio.sleep(GATHER_S)
                self._fresh.clear()
                if pump.done():
                    pump.result()  # raises the error of the watch; one that ended by itself has yielded everything
                changes, self._pending = self._pending, []
                if changes:
                    await on_change(self.view.apply(KeyChange(*change) for change in changes))
                    await self._mark_applied(changes[-1].revision)
                    last = loop.time()
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _start_over(self, on_change: OnChange) -> None:
        """After an unexpected error, list and process everything, because a change may have been applied in part."""
        listing = await self._coordination.get_prefix("")
        gone = [KeyChange(key, None, listing.revision) for key in self.view.revisions if key not in listing.entries]
        self._pending = []
        touched = self.view.apply(gone)
        await on_change(_joined(touched, self._take_listing(listing)))
        await self._mark_applied(listing.revision)

    async def caught_up(self, revision: int) -> None:
        """Wait until everything up to this revision is applied and processed."""
        if not await self.until(lambda: self._revision >= revision, CATCH_UP_S):
            raise RequestTimedOut(f"the change was written, but this broker did not see it within {CATCH_UP_S:g} s")

    async def until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition holds, tested after each change; False on timeout."""
        try:
            async with asyncio.timeout(timeout_s), self._seen:
                await self._seen.wait_for(reached)
        except TimeoutError:
            return False
        return True

    async def _pump(self) -> None:
        """Queue the changes of the watch for `follow`; after a gap, the differences from a new listing."""
        after = self._revision
        while True:
            try:
                async for change in self._coordination.watch("", after):
                    self._pending.append(change)
                    self._fresh.set()
                    after = change.revision
            except WatchGap:
                log.warning("metadata_watch_gap", after_revision=after)
                after = await self._list_again(after)
            else:
                return

    async def _list_again(self, after: int) -> int:
        while True:
            try:
                listing = await self._coordination.get_prefix("")
            except CoordinationAway:
                await asyncio.sleep(PAUSE_S)
                continue
            self._pending = _differences(self.view.revisions, listing)
            self._fresh.set()
            return max(after, listing.revision)

    def _take_listing(self, listing: PrefixListing) -> Touched:
        listed = [KeyChange(key, entry.value, entry.revision) for key, entry in listing.entries.items()]
        # Topics come before the states of their partitions, which are found by the topic's id.
        listed.sort(key=lambda change: not change.key.startswith("topics/"))
        self._revision = listing.revision
        return self.view.apply(listed)

    async def _mark_applied(self, revision: int) -> None:
        async with self._seen:
            self._revision = max(self._revision, revision)
            self._seen.notify_all()


def _differences(known: Mapping[str, int], listing: PrefixListing) -> list[Changed]:
    """The deleted and changed keys of a listing compared with the known revisions; topics come first."""
    gone = [Changed(key, None, listing.revision) for key in known if key not in listing.entries]
    new = [
        Changed(key, entry.value, entry.revision)
        for key, entry in listing.entries.items()
        if known.get(key) != entry.revision
    ]
    new.sort(key=lambda change: not change.key.startswith("topics/"))
    return [*gone, *new]


def _joined(first: Touched, second: Touched) -> Touched:
    return Touched(
        first.topics | second.topics,
        first.brokers or second.brokers,
        first.controller or second.controller,
        first.deletions or second.deletions,
        first.timelines | second.timelines,
    )
