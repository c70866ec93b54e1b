"""Metadata: the view of this broker, listed once and then kept up to date by a watch.

One watch tells everything in order; what came while the last was worked on is taken together. A gap (coordination
forgot what was in between) is a new listing, of which only the differences are told on. Whoever wrote something waits
with `caught_up` until this broker has seen it too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from tidemill.cluster.core.image import Image
from tidemill.cluster.core.view import Told, Touched, View
from tidemill.cluster.interface import Changed, Coordination, CoordinationAway, PrefixListing, WatchGap
from tidemill.model.errors import RequestTimedOut

CATCH_UP_S = 30.0
PAUSE_S = 0.2
GATHER_S = 0.02
"""A change is worked on at once, but one that follows closely waits for others: a lost broker is a thousand of them."""

OnChange = Callable[[Touched], Awaitable[None]]

log = structlog.get_logger("tidemill.cluster")


class ClusterMetadata:
    """What this broker knows of the cluster."""

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
        """The topics and brokers as they were told last."""
        return self.view.image

    async def load(self) -> Touched:
        """List everything."""
        return self._take_listing(await self._coordination.get_prefix(""))

    async def follow(self, on_change: OnChange) -> None:
        """Apply what the watch tells, for ever; `on_change` is done before the next is applied."""
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
                    pump.result()  # raises what ended it; a watch that ended by itself has told everything
                changes, self._pending = self._pending, []
                if changes:
                    await on_change(self.view.apply(Told(*change) for change in changes))
                    await self._tell(changes[-1].revision)
                    last = loop.time()
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _start_over(self, on_change: OnChange) -> None:
        """After an unexpected error: list and work on everything, since a change may have been applied in part."""
        listing = await self._coordination.get_prefix("")
        gone = [Told(key, None, listing.revision) for key in self.view.revisions if key not in listing.entries]
        self._pending = []
        touched = self.view.apply(gone)
        await on_change(_joined(touched, self._take_listing(listing)))
        await self._tell(listing.revision)

    async def caught_up(self, revision: int) -> None:
        """Wait until everything up to this revision is applied and worked on."""
        if not await self.until(lambda: self._revision >= revision, CATCH_UP_S):
            raise RequestTimedOut("it was written, but this broker has not heard of it yet")

    async def until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is so, looking after each change; False when it is not in time."""
        try:
            async with asyncio.timeout(timeout_s), self._seen:
                await self._seen.wait_for(reached)
        except TimeoutError:
            return False
        return True

    async def _pump(self) -> None:
        """Put what the watch tells where `follow` finds it; after a gap, the difference to a new listing."""
        after = self._revision
        while True:
            try:
                async for change in self._coordination.watch("", after):
                    self._pending.append(change)
                    self._fresh.set()
                    after = change.revision
            except WatchGap:
                log.warning("changes were missed; everything is listed again")
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
        told = [Told(key, entry.value, entry.revision) for key, entry in listing.entries.items()]
        # Topics before the states of their partitions, which are found by the topic's id.
        told.sort(key=lambda change: not change.key.startswith("topics/"))
        self._revision = listing.revision
        return self.view.apply(told)

    async def _tell(self, revision: int) -> None:
        async with self._seen:
            self._revision = max(self._revision, revision)
            self._seen.notify_all()


def _differences(known: Mapping[str, int], listing: PrefixListing) -> list[Changed]:
    """What a listing says that was not known, and what is known that it does not say; in order of topics first."""
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
