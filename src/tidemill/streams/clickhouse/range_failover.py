"""Watches the lost owner of a range, and moves the range to a replica.

Each broker watches for itself, from the moment at which a server does not answer it. If another broker has moved the
range already, the new owner is used at once. Otherwise the owner must be lost for `?takeover=SECONDS`. A take-over that
cannot be decided (`takeover.py`) is tried again, and the partitions of the range have no leader until then.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import structlog

from tidemill.streams.clickhouse import takeover
from tidemill.streams.clickhouse.client import Lane
from tidemill.streams.clickhouse.errors import EngineError
from tidemill.streams.clickhouse.takeover import Ownership
from tidemill.streams.clickhouse.url import Server, ServerLayout

LOOK_S = 1.0
ANSWER_S = 5.0
"""A server that does not answer a look for this long counts as lost."""
TAKEOVER_ANSWER_S = 300.0

T = TypeVar("T")
log = structlog.get_logger("tidemill.streams")


class RangeOwner(NamedTuple):
    """The server that owns a range, by its place among the candidates."""

    place: int
    ownership: Ownership


class RangeFailover:
    """The candidates of one range. `moved` is called when another one owns it."""

    def __init__(self, layout: ServerLayout, server: Server, moved: Callable[[RangeOwner], None]) -> None:
        self.layout = layout
        self.owner: RangeOwner | None = None
        self._candidates: Sequence[Server] = server.candidates
        self._lanes = [Lane(layout, each, "replica") for each in self._candidates]
        self._moved = moved
        self._watch: asyncio.Task[None] | None = None

    async def locate(self) -> int:
        """Return the place of the owner, by the newest ownership that any reachable candidate knows."""
        found = await self._newest()
        if found is not None:
            self.owner = found
        return 0 if self.owner is None else self.owner.place

    def prepared(self, place: int, ownership: Ownership) -> None:
        """Note the ownership after the tables of the owner were prepared."""
        at = self._place_of(ownership)
        self.owner = RangeOwner(place if at is None else at, ownership)

    def doubt(self) -> None:
        """Watch the owner, because a call to it failed."""
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End the watch and the connections."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await asyncio.gather(*(lane.close() for lane in self._lanes))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        began, refused = loop.time(), ""
        while not await self._is_healthy():
            found = await self._newest()
            if found is not None and self._is_later(found):
                self._move(found)
                return
            if loop.time() - began >= self.layout.takeover_s:
                refused = await self._take_over(refused)
                if not refused:
                    return
            await asyncio.sleep(LOOK_S)

    async def _take_over(self, refused: str) -> str:
        """Let the first candidate that can take the range over; return the reasons if none can."""
        reasons = []
        for place in range(len(self._candidates)):
            if self.owner is not None and place == self.owner.place:
                continue
            candidate = self._candidates[place]
            try:
                ownership = await self._call(
                    place, partial(takeover.take_over, self.layout, candidate), TAKEOVER_ANSWER_S
                )
            except (EngineError, TimeoutError) as error:
                reasons.append(f"{candidate.name}: {error or 'no answer'}")
                continue
            at = self._place_of(ownership)
            if at is None:
                reasons.append(f"{ownership.server} owns the range, but --streams does not name it")
                continue
            self._move(RangeOwner(at, ownership))
            return ""
        found = "; ".join(reasons) or "the range has no replica"
        if found != refused:
            log.warning("clickhouse_takeover_refused", owner=self._name, reasons=found)
        return found

    def _move(self, owner: RangeOwner) -> None:
        log.warning("clickhouse_range_moved", owner=self._candidates[owner.place].name, previous_owner=self._name)
        self.owner = owner
        self._moved(owner)

    @property
    def _name(self) -> str:
        return self._candidates[0 if self.owner is None else self.owner.place].name

    async def _is_healthy(self) -> bool:
        if self.owner is None:
            return False
        try:
            check = partial(takeover.is_healthy, self.layout, self.owner.ownership)
            return await self._call(self.owner.place, check)
        except (EngineError, TimeoutError):
            return False

    async def _newest(self) -> RangeOwner | None:
        looks = (self._look(place) for place in range(len(self._candidates)))
        known = [each for each in await asyncio.gather(*looks) if each is not None]
        return max(known, key=lambda each: each.ownership.number, default=None)

    async def _look(self, place: int) -> RangeOwner | None:
        try:
            found = await self._call(place, partial(takeover.newest_ownership, self.layout))
        except (EngineError, TimeoutError):
            return None
        at = None if found is None else self._place_of(found)
        return None if found is None or at is None else RangeOwner(at, found)

    def _is_later(self, found: RangeOwner) -> bool:
        return self.owner is None or found.ownership.number > self.owner.ownership.number

    def _place_of(self, ownership: Ownership) -> int | None:
        names = [each.name for each in self._candidates]
        return names.index(ownership.server) if ownership.server in names else None

    async def _call(self, place: int, call: Callable[[Any], T], answer_s: float = ANSWER_S) -> T:
        return await asyncio.wait_for(self._lanes[place].run(call), answer_s)
