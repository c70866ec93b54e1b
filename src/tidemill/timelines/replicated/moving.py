"""Moves the timelines of a local file into the replicated store, in the background, while the cluster serves clients.

A message keeps its id, due time, bucket, producer group, key, body and attempts. A lease ends when it would have ended,
and has no holder any more. Messages go in the order of their numbers, some hundred at a time. The store remembers for
each file up to which number it has the messages, in the same journal entry that stores them. So a move that was killed
at any point continues without a message lost or stored twice, also when a consumer has completed it meanwhile.

A timeline that exists in the cluster gets the messages too, if its settings are the same. Nothing of a timeline is
moved while one of its ids is used by another message, or its settings differ: the operator is asked to change that,
and the move looks again. Only a file whose timelines have all moved gets another name.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from tidemill.model.errors import TidemillError
from tidemill.timelines.core.errors import TimelineError
from tidemill.timelines.core.message import TimedMessage
from tidemill.timelines.core.timeline import (
    WAITING_PREFIX,
    Catalogue,
    Create,
    MakeReady,
    Step,
    TimelineInfo,
    TimelineState,
    check_chain,
)
from tidemill.timelines.replicated.interface import Adopted

PAGE_MESSAGES = 500
PAGE_BYTES = 4 * 1024 * 1024
RETRY_S = 5.0
FAILURES_MAX = 3
"""After so many failures in a row the operator is asked to look at the reason."""
NAMED_MAX = 5
"""The most ids in one problem."""
LOGGED_MESSAGES = 50_000
"""Progress is logged each time so many messages have moved."""

log = structlog.get_logger(__name__)


class MovedFile(Protocol):
    """The file that the messages leave."""

    path: Path

    async def open(self) -> None:
        """Open the file."""

    async def identity(self) -> str | None:
        """The identity of the file; None while the move has not begun."""

    async def begin(self, drawn: str) -> str:
        """Give the file this identity, unless it has one; its identity."""

    async def timelines(self) -> Sequence[TimelineInfo]:
        """The timelines of the file."""

    async def progress(self, timeline: TimelineInfo) -> int:
        """The number up to which the messages of a timeline have moved."""

    async def moved(self, timeline: TimelineInfo, until: int) -> None:
        """The other store has all messages of the timeline up to this number."""

    async def count(self, timeline: TimelineInfo, after_seq: int) -> int:
        """The messages of a timeline after this number."""

    async def page(
        self, timeline: TimelineInfo, after_seq: int, *, messages_max: int, bytes_max: int
    ) -> list[TimedMessage]:
        """The next messages with their bodies; at least one, unless there are no more."""

    async def retire(self, name: str) -> None:
        """Close the file and give it another name."""

    async def close(self) -> None:
        """Close the file."""


class AdoptingStore(Protocol):
    """The store that gets the messages."""

    async def catalogue(self) -> Catalogue:
        """All timelines."""

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline."""

    async def adopt(
        self, timeline: str, source: str, messages: Sequence[TimedMessage], *, only_check: bool = False
    ) -> Adopted:
        """Store messages of another store, unless that was done before."""


@dataclass(frozen=True, slots=True)
class TimelineMoveRules:
    """What the composition knows of the timelines: `refuse` says why one may not move, `change` prepares a message."""

    refuse: Callable[[str], str]
    """Why a timeline may not move now; empty when it may."""
    change: Callable[[str, TimedMessage], TimedMessage]
    """A message of a timeline as the cluster stores it."""


class TimelineMover:
    """Moves the timelines of one file."""

    def __init__(
        self,
        open_file: Callable[[], MovedFile],
        store: AdoptingStore,
        rules: TimelineMoveRules,
        *,
        drawn: str,
        retired_name: Callable[[], str],
        report: Callable[[Sequence[str]], None],
    ) -> None:
        self._open_file = open_file
        self._file: MovedFile
        self._store = store
        self._rules = rules
        self._drawn = drawn
        self._retired_name = retired_name
        self._report = report
        self.left: dict[str, int] = {}
        """The messages that each timeline still has in the file."""
        self.problems: tuple[str, ...] = ()
        """Why some timelines do not move."""
        self._clashing: dict[str, list[TimedMessage]] = {}
        """Messages whose ids were in use: they are looked at first, before a whole timeline is read again."""
        self._failures = 0

    @property
    def notes(self) -> list[str]:
        """The state of the move for the operator, apart from its problems."""
        return [
            f"timeline {name}: {left} messages of this broker's file still move to the cluster"
            for name, left in sorted(self.left.items())
            if left
        ]

    async def run(self) -> None:
        """Move everything; returns when the file has another name."""
        self._file = self._open_file()
        await self._file.open()
        try:
            has_moved = await self._has_moved()
            while not has_moved:
                await asyncio.sleep(RETRY_S)
                has_moved = await self._has_moved()
        except BaseException:
            await self._file.close()
            raise
        name = self._retired_name()
        await self._file.retire(name)
        log.info("timelines_moved", kept_as=name)

    async def _has_moved(self) -> bool:
        """Move what can be moved; whether that was everything."""
        problems: list[str] = []
        try:
            timelines = [one for one in await self._file.timelines() if _is_moved(one)]
            for one in timelines:
                if one.name not in self.left:
                    self.left[one.name] = await self._file.count(one, await self._file.progress(one))
            for one in timelines:
                problem = await self._problem(one)
                if problem:
                    problems.append(problem)
                elif taken := await self._move(one):
                    problems.append(_clash(one.name, taken))
        except (TidemillError, OSError) as error:  # the partitions of the journal may move, or have no leader yet
            log.info("timelines_move_waits", error=str(error))
            self._failures += 1
            if self._failures >= FAILURES_MAX:
                self._report([f"the timelines of {self._file.path} wait with their move: {error}"])
            return False
        self._failures = 0
        if problems and tuple(problems) != self.problems:
            for each in problems:
                log.error("timeline_not_moved", reason=each)
        self.problems = tuple(problems)
        self._report(problems)
        return not problems

    async def _problem(self, timeline: TimelineInfo) -> str:
        """Why a timeline cannot be moved; empty when it can. It exists in the cluster afterwards."""
        name, settings = timeline.name, timeline.settings
        refused = self._rules.refuse(name)
        if refused:
            return refused
        there = {one.name: one for one in (await self._store.catalogue()).timelines}
        known = there.get(name)
        if known is not None and known.settings != settings:
            return (
                f"timeline {name!r} has other settings in the cluster than in this broker's file "
                f"({_differences(timeline, known)}); change them there with: tidemill timeline alter {name}"
            )
        try:
            check_chain(name, settings, there)
            if known is None or known.state is TimelineState.CREATING:
                await self._store.govern(Create(name, settings))
                await self._store.govern(MakeReady(name))
        except TimelineError as error:
            if error.retriable:
                raise
            return f"timeline {name!r} cannot be created in the cluster: {error}"
        return _clash(name, await self._taken(timeline))

    async def _taken(self, timeline: TimelineInfo) -> Sequence[str]:
        """Some ids of messages that have not moved, and that other messages in the cluster have."""
        name = timeline.name
        source = self._source(await self._file.identity(), timeline)
        bare = self._clashing.pop(name, [])
        after_seq = await self._file.progress(timeline)
        while True:
            found = await self._store.adopt(name, source, bare, only_check=True)
            if found.taken:
                taken = set(found.taken)
                self._clashing[name] = [one for one in bare if one.id in taken]
                return found.taken
            page = await self._next(timeline, after_seq)
            if not page:
                return ()
            after_seq = page[-1].seq
            bare = [one._replace(key=None, body=b"", size=0) for one in page]

    async def _move(self, timeline: TimelineInfo) -> Sequence[str]:
        """Move the messages of a timeline; ids that were taken since the check, or none."""
        name = timeline.name
        source = self._source(await self._file.begin(self._drawn), timeline)
        after_seq = await self._file.progress(timeline)
        total = logged = 0
        while page := await self._next(timeline, after_seq):
            found = await self._store.adopt(name, source, [self._rules.change(name, _released(one)) for one in page])
            if found.taken:
                return found.taken
            after_seq = page[-1].seq
            await self._file.moved(timeline, after_seq)
            total += len(page)
            self.left[name] = max(0, self.left[name] - len(page))
            if total - logged >= LOGGED_MESSAGES:
                logged = total
                log.info("timeline_moves", timeline=name, moved=total, left=self.left[name])
        self.left[name] = 0
        if total:
            log.info("timeline_moved", timeline=name, messages=total)
        return ()

    async def _next(self, timeline: TimelineInfo, after_seq: int) -> list[TimedMessage]:
        return await self._file.page(timeline, after_seq, messages_max=PAGE_MESSAGES, bytes_max=PAGE_BYTES)

    def _source(self, identity: str | None, timeline: TimelineInfo) -> str:
        return f"{identity or self._drawn}/{timeline.name}"


def _is_moved(timeline: TimelineInfo) -> bool:
    """Whether the messages of a timeline move: not those of a deleted one, or that another journal has."""
    return timeline.state is not TimelineState.DELETING and not timeline.name.startswith(WAITING_PREFIX)


def _released(message: TimedMessage) -> TimedMessage:
    return message._replace(holder=None)


def _clash(name: str, taken: Sequence[str]) -> str:
    if not taken:
        return ""
    shown = ", ".join(map(repr, taken[:NAMED_MAX])) + (", ..." if len(taken) > NAMED_MAX else "")
    return (
        f"timeline {name!r} has other messages with the same ids in the cluster ({shown}); complete or "
        "cancel those, and the messages of this broker's file move"
    )


def _differences(local: TimelineInfo, known: TimelineInfo) -> str:
    fields = type(local.settings).__dataclass_fields__
    pairs = ((name, getattr(known.settings, name), getattr(local.settings, name)) for name in fields)
    return ", ".join(f"{name} {there!r}, not {here!r}" for name, there, here in pairs if there != here)
