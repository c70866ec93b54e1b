"""The lifecycle of timelines: created in two steps, deleted at once for clients and in bounded steps for the store.

When a broker does not finish a creation or deletion, the next broker that starts finishes it. With a shared store,
another running broker does. It claims the entry in the store, renews the claim with each step, and works only while it
holds the claim. A purge pauses after each step, so that the writes of other timelines are not delayed.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any

import structlog

from tidemill.model.timeline_errors import BadSetting, StoreUnavailable, TimelineError, UnknownTimeline
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.core.timeline import (
    Alter,
    Create,
    Created,
    DealerKind,
    Delete,
    MakeReady,
    Purge,
    Step,
    TimelineInfo,
    TimelineSettings,
    TimelineState,
    check_chain,
    check_name,
    usable,
)
from tidemill.timelines.health import HealthMonitor
from tidemill.timelines.interface import TimelineStore

PURGE_PAUSE_S = 0.02
PURGE_STEP = 2_000
PURGE_RETRY_S = 1.0
CLAIM_MS = 30_000
"""How long after its last step a broker keeps its claim; after that another broker takes over."""

log = structlog.get_logger(__name__)


def settings_from(texts: Mapping[str, str], base: TimelineSettings | None = None) -> TimelineSettings:
    """The settings with the given ones changed, by name and as text; hyphens and dots count as underscores."""
    known = {one.name: one.type for one in fields(TimelineSettings)}
    values: dict[str, Any] = {}
    for given, text in texts.items():
        name = given.replace("-", "_").replace(".", "_")
        if name not in known:
            raise BadSetting(f"unknown setting {given!r}; use one of {', '.join(sorted(known))}")
        try:
            values[name] = text if name == "dead_letter" else DealerKind(text) if name == "dealer" else int(text)
        except ValueError:
            raise BadSetting(f"{text!r} is not a valid value of {given}") from None
    settings = replace(base or TimelineSettings(), **values)
    settings.check()
    return settings


def settings_to(settings: TimelineSettings) -> dict[str, str]:
    """The settings as text, by name."""
    return {
        name: value.value if isinstance(value, DealerKind) else str(value) for name, value in asdict(settings).items()
    }


class Lifecycle:
    """The known timelines, and their creation and removal."""

    def __init__(
        self,
        store: TimelineStore,
        guard: HealthMonitor,
        owner: str,
        supervisor: Supervisor,
        *,
        gone: Callable[[str], None],
    ) -> None:
        self.timelines: dict[str, TimelineInfo] = {}
        self._store = store
        self._guard = guard
        self._owner = owner
        self._supervisor = supervisor
        self._gone = gone
        self._purges: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> int | None:
        """Read the catalogue and continue interrupted work; the time by the store's clock, if it has one."""
        catalogue = await self._guard.ask_store(self._store.catalogue, reads=True)
        self.timelines = {one.name: one for one in catalogue.timelines}
        for timeline in catalogue.timelines:
            try:
                await self._take_over(timeline)
            except StoreUnavailable as error:
                if catalogue.now_ms is None:
                    raise
                log.warning("timeline_takeover_failed", timeline=timeline.name, error=str(error))  # refresh repeats it
        return catalogue.now_ms

    async def refresh(self) -> int | None:
        """Read the changes of other brokers; the time by the store's own clock, if it has one."""
        catalogue = await self._guard.ask_store(self._store.catalogue, reads=True)
        fresh = {one.name: one for one in catalogue.timelines}
        known, self.timelines = self.timelines, fresh
        for name, one in known.items():
            if fresh.get(name) != one:
                self._gone(name)
            else:  # unchanged since the last refresh: if it is unfinished, its broker may be dead
                await self._take_over(one)
        return catalogue.now_ms

    def usable(self, name: str) -> TimelineInfo:
        """The timeline, if clients may use it."""
        return usable(self.timelines.get(name), name)

    async def create(self, name: str, settings: TimelineSettings) -> Created:
        """Create the timeline, and the one for its dead letters; repeating it changes nothing."""
        check_name(name)
        check_chain(name, settings, self.timelines)
        await self.create_dead_letter_timeline(name, settings)
        entered = await self._take(Create(name, settings))
        if entered.state is not TimelineState.CREATING:
            return Created(entered, is_new=False)
        return Created(await self._take(MakeReady(name)), is_new=True)

    async def alter(self, name: str, settings: TimelineSettings) -> TimelineInfo:
        """Give the timeline other settings; consumers reconnect."""
        self.usable(name)
        check_chain(name, settings, self.timelines)
        await self.create_dead_letter_timeline(name, settings)
        altered = await self._take(Alter(name, settings))
        self._gone(name)
        return altered

    async def create_dead_letter_timeline(self, name: str, settings: TimelineSettings) -> None:
        """Create the timeline for dead letters that these settings name, if it does not exist."""
        settings.check()
        kind, _, target = settings.dead_letter.partition(":")
        if kind == "timeline" and target != name and target not in self.timelines:
            await self.create(target, TimelineSettings(body_bytes_max=settings.body_bytes_max))

    async def delete(self, name: str) -> None:
        """Make the timeline unusable and remove it in the background."""
        deleted = await self._take(Delete(name))
        self._gone(name)
        self._purge(deleted)

    async def removed(self, name: str) -> None:
        """Wait until a deleted timeline is removed completely."""
        task = self._purges.get(name)
        if task is not None:
            await asyncio.wait([task])

    async def close(self) -> None:
        """Stop purging; the next start continues."""
        for task in self._purges.values():
            task.cancel()
        await asyncio.gather(*self._purges.values(), return_exceptions=True)

    async def _take(self, step: Step) -> TimelineInfo:
        timeline = await self._guard.ask_store(lambda: self._store.govern(step))
        if timeline is None:
            raise TimelineError(f"timeline {step.name!r} was deleted by another broker")
        self.timelines[timeline.name] = timeline
        return timeline

    async def _take_over(self, timeline: TimelineInfo) -> None:
        """Finish what another broker, or an earlier process of this one, may have left unfinished."""
        if timeline.state is TimelineState.DELETING:
            self._purge(timeline)
        elif timeline.state is TimelineState.CREATING and await self._claims(timeline):
            await self._take(MakeReady(timeline.name))
            log.info("timeline_creation_finished", timeline=timeline.name)

    async def _claims(self, timeline: TimelineInfo) -> bool:
        return await self._guard.ask_store(lambda: self._store.claim(timeline, self._owner, for_ms=CLAIM_MS))

    def _purge(self, timeline: TimelineInfo) -> None:
        name = timeline.name
        if name not in self._purges:
            self._purges[name] = self._supervisor.keep(
                "timeline removal", partial(self._purge_all, timeline), about=name
            )
            self._purges[name].add_done_callback(lambda _: self._purges.pop(name, None))

    async def _purge_all(self, timeline: TimelineInfo) -> None:
        name = timeline.name
        while True:
            try:
                if not await self._claims(timeline):
                    return  # another broker removes it, or has removed it; the next refresh checks again
                left = await self._guard.ask_store(lambda: self._store.govern(Purge(name, PURGE_STEP)))
            except UnknownTimeline:
                break
            except TimelineError as error:
                log.warning("timeline_purge_failed", timeline=name, error=str(error))
                await asyncio.sleep(PURGE_RETRY_S)
                continue
            if left is None:
                break
            await asyncio.sleep(PURGE_PAUSE_S)
        self.timelines.pop(name, None)
        log.info("timeline_deleted", timeline=name)
