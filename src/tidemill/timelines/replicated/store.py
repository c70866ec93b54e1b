"""Timelines in a replicated journal: routes each call to the partitions that it concerns, wherever they are led.

Every broker has this store, and every call may be made on any broker, as with a shared PostgreSQL. Messages are divided
among the partitions of the journal by their ids. The leader of a partition decides about its messages. Partition 0 also
has the catalogue: a step in the lifecycle of a timeline is taken there, and is then copied to the other partitions. An
interrupted copy is repeated, because a timeline is only ready, and its name only free, when all partitions have it so.

A call waits for a partition that is moving, and ends with StoreUnavailable when that takes too long.
"""

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.core.backlog import Backlog, backlog_of
from tidemill.timelines.core.errors import PartitionMoved, StoreUnavailable, UnknownTimeline
from tidemill.timelines.core.lease import (
    Cancel,
    Claim,
    Command,
    CommandOutcome,
    LeaseGrant,
    Move,
    MoveToTimeline,
    check_claims,
    check_commands,
)
from tidemill.timelines.core.message import (
    COUNT_MAX,
    EVERYTHING,
    DueSpan,
    NewMessage,
    Scheduled,
    Selection,
    TimedMessage,
    TimelinePosition,
    bar_width_ms,
    check_find,
    check_new,
    within_bytes,
)
from tidemill.timelines.core.timeline import (
    Alter,
    Catalogue,
    Delete,
    MakeReady,
    Purge,
    Step,
    TimelineInfo,
    TimelineState,
    usable,
)
from tidemill.timelines.replicated.core.calls import ANSWER_BYTES_MAX, REQUEST_BYTES_MAX, REQUEST_MESSAGES_MAX
from tidemill.timelines.replicated.core.placement import partition_of_id, partition_of_seq
from tidemill.timelines.replicated.interface import (
    Adopted,
    JournalTopic,
    OpenIndex,
    PartitionCalls,
    RemoveIndex,
    TimelinePeers,
)
from tidemill.timelines.replicated.partition import TimelinePartition
from tidemill.timelines.replicated.peers import CallAnswers, RemotePartition

JOURNAL_BYTES = 64 * 1024 * 1024
"""Up to this size a partition of the journal is not restated."""
WAIT_S = 8.0
"""How long a call waits for a partition that is moving to another broker."""
RETRY_S = 0.1
TRIES_MAX = 5
"""A listing whose messages all change while their bodies are fetched is read again, at most so often."""
CATALOGUE = 0
"""The partition that decides about timelines."""

SLOW_ANSWER_MS = 400
"""The clock of the leader is not compared with an answer that took longer."""

T = TypeVar("T")
Result = TypeVar("Result")


class ReplicatedTimelineStore:
    """A TimelineStore on the brokers of a cluster."""

    def __init__(
        self,
        node_id: int,
        topic: JournalTopic,
        peers: TimelinePeers,
        *,
        open_index: OpenIndex,
        remove_index: RemoveIndex,
        clock_ms: Callable[[], int],
        journal_bytes: int = JOURNAL_BYTES,
        supervisor: Supervisor | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        self._node_id = node_id
        self._topic = topic
        self._peers = peers
        self._open_index = open_index
        self._remove_index = remove_index
        self._clock_ms = clock_ms
        self._supervisor = supervisor or Supervisor()
        self._journal_bytes = journal_bytes
        self._wait_s = wait_s
        self._known: dict[str, TimelineInfo] = {}
        self._here: list[TimelinePartition] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._companions: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()
        self.answers = CallAnswers(self._led, clock_ms)

    @property
    def partitions(self) -> Sequence[TimelinePartition]:
        """The replicas of the partitions on this broker, also of those that it does not have."""
        return self._here

    async def start(self) -> None:
        """Begin to follow the journal."""
        async with self._starting:
            if self._here or not self._topic.exists:
                return
            for number in range(self._topic.partitions):
                journal = self._topic.partition(number)
                partition = TimelinePartition(
                    number, journal, self._open_index, self._remove_index, journal_bytes=self._journal_bytes
                )
                self._here.append(partition)
                self._tasks.append(self._supervisor.keep("timeline partition", partition.run, about=str(number)))

    def attach(self, task: asyncio.Task[None]) -> None:
        """Stop this task, which calls the store, before the store is closed."""
        self._companions.append(task)

    async def catalogue(self) -> Catalogue:
        """All timelines; from the replica on this broker while their partition has no leader."""
        if not self._topic.exists:
            return Catalogue((), self._clock_ms())
        await self.start()
        began_ms = self._clock_ms()
        found = await self._read_catalogue()
        self._known = {one.name: one for one in found.timelines}
        took_ms = self._clock_ms() - began_ms
        if found.now_ms is None or not 0 <= took_ms <= SLOW_ANSWER_MS:
            return Catalogue(found.timelines, self._clock_ms())
        return Catalogue(found.timelines, found.now_ms + took_ms // 2)

    async def _read_catalogue(self) -> Catalogue:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._wait_s
        while True:
            try:
                return await self._of(CATALOGUE, lambda calls: calls.catalogue(), wait_s=0.0)
            except StoreUnavailable:
                replica = self._here[CATALOGUE].replica
                if replica is not None:
                    return await replica.catalogue()
                if loop.time() >= until_s:
                    raise
            await asyncio.sleep(RETRY_S)

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline: in partition 0, and in the others before or after it."""
        await self._topic.ensure()
        await self.start()
        if isinstance(step, MakeReady):
            await self._copy_ready(step.name)
        elif isinstance(step, Purge) and await self._purge_others(step):
            return await self._timeline(step.name)
        timeline = await self._of(CATALOGUE, lambda calls: calls.govern(step))
        if timeline is None:
            self._known.pop(step.name, None)
        else:
            self._known[step.name] = timeline
            if isinstance(step, Alter | Delete):
                await self._copy(timeline)
        return timeline

    async def claim(self, timeline: TimelineInfo, owner: str, *, for_ms: int) -> bool:  # noqa: ARG002 - the same steps may be taken twice
        """Always true: two brokers that finish the same creation or deletion do no harm, and only repeat steps."""
        return True

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Store the messages."""
        known = await self._timeline(timeline)
        check_new(messages, usable(known, timeline).settings.body_bytes_max)
        by_partition: defaultdict[int, list[int]] = defaultdict(list)
        for place, message in enumerate(messages):
            by_partition[self._of_id(message.id)].append(place)
        answers: list[Scheduled | None] = [None] * len(messages)

        async def schedule_in(number: int, places: Sequence[int]) -> None:
            for some in _pieces(places, messages):
                kept = await self._of(number, partial(_scheduled, timeline, [messages[place] for place in some]))
                for place, answer in zip(some, kept, strict=True):
                    answers[place] = answer

        await _all(schedule_in(number, places) for number, places in by_partition.items())
        return [answer for answer in answers if answer is not None]

    async def adopt(
        self, timeline: str, source: str, messages: Sequence[TimedMessage], *, only_check: bool = False
    ) -> Adopted:
        """Store messages of another store, which have its numbers, unless that was done before.

        `source` is unique to that store, and its messages are given in the order of their numbers. Messages whose
        partition has one of the ids already are left. With `only_check` nothing is stored.
        """
        await self._check(timeline)
        by_partition: defaultdict[int, list[TimedMessage]] = defaultdict(list)
        for message in messages:
            by_partition[self._of_id(message.id)].append(message)
        taken: list[str] = []
        left: list[TimedMessage] = []

        async def adopt_in(number: int, some: Sequence[TimedMessage]) -> None:
            found = await self._of(number, lambda calls: calls.adopt(timeline, source, some, only_check=only_check))
            taken.extend(found)
            left.extend(some if found else ())

        await _all(adopt_in(number, some) for number, some in by_partition.items())
        return Adopted(sorted(taken), left)

    async def find(
        self,
        timeline: str,
        selection: Selection = EVERYTHING,
        *,
        now_ms: int,
        limit: int,
        after: TimelinePosition | None = None,
        bodies: bool = False,
    ) -> list[TimedMessage]:
        """The selected messages in order."""
        check_find(selection, limit)
        for _ in range(TRIES_MAX):
            found = await self._page(timeline, selection, now_ms, limit, after, ANSWER_BYTES_MAX if bodies else 0)
            if not bodies or not found:
                return found
            whole = await self._with_bodies(timeline, list(within_bytes(found)), now_ms)
            if whole:
                return whole
        return []

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        """Lease the claimed messages."""
        check_claims(claims, now_ms, early_ms)
        numbers = [partition_of_seq(claim.seq, self._topic.partitions) for claim in claims]
        return await self._each(
            timeline,
            claims,
            numbers,
            lambda calls, some: calls.acquire(timeline, some, now_ms=now_ms, early_ms=early_ms),
        )

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        """Apply the commands that still hold."""
        check_commands(commands, now_ms)
        placed = [self._placed(command) for command in commands]
        return await self._each(
            timeline,
            [command for _, command in placed],
            [number for number, _ in placed],
            lambda calls, some: calls.settle(timeline, some, now_ms=now_ms),
        )

    async def tally(
        self,
        timeline: str,
        selection: Selection = EVERYTHING,
        *,
        now_ms: int,
        bars: int = 1,
        bar_max: int = COUNT_MAX,
    ) -> list[int]:
        """Count the selected messages by due time."""
        bar_width_ms(selection, bars)
        await self._check(timeline)
        counts = await self._everywhere(
            lambda calls: calls.tally(timeline, selection, now_ms=now_ms, bars=bars, bar_max=bar_max)
        )
        return [min(bar_max, sum(of_bar)) for of_bar in zip(*counts, strict=True)]

    async def span(self, timeline: str) -> DueSpan | None:
        """The due times of the first and of the last message."""
        await self._check(timeline)
        found = [one for one in await self._everywhere(lambda calls: calls.span(timeline)) if one is not None]
        return DueSpan(min(one.first_ms for one in found), max(one.last_ms for one in found)) if found else None

    async def backlogs(self, *, now_ms: int) -> dict[str, Backlog]:
        """The backlog of every timeline that clients may use."""
        if not self._topic.exists:
            return {}
        counted = await self._everywhere(lambda calls: calls.backlogs(now_ms=now_ms))
        return {name: _sum([each[name] for each in counted if name in each]) for name in counted[CATALOGUE]}

    async def close(self) -> None:
        """Stop following the journal and close the indexes."""
        for task in self._companions:
            task.cancel()
        await asyncio.gather(*self._companions, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(partition.close() for partition in self._here))
        await self._peers.close()

    def _of_id(self, message_id: str) -> int:
        return partition_of_id(message_id, self._topic.partitions)

    def _placed(self, command: Command) -> tuple[int, Command]:
        """The partition of a command. A moved message stays there, so an id of another partition is not used."""
        if isinstance(command, Cancel | Move):
            return self._of_id(command.id), command
        number = partition_of_seq(command.seq, self._topic.partitions)
        if isinstance(command, MoveToTimeline) and command.id and self._of_id(command.id) != number:
            return number, command._replace(id="")
        return number, command

    async def _led(self, number: int) -> PartitionCalls:
        """The partition for a call of another broker; PartitionMoved unless this broker leads it."""
        await self.start()
        if not 0 <= number < len(self._here):
            raise PartitionMoved(f"partition {number} of the timelines is not known here; try again")
        return self._here[number].index

    async def _of(self, number: int, call: Callable[[PartitionCalls], Awaitable[T]], wait_s: float | None = None) -> T:
        """The result of a call to the leader of a partition; waits while the partition is moving."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (self._wait_s if wait_s is None else wait_s)
        while True:
            try:
                return await call(await self._leader(number))
            except PartitionMoved:
                if loop.time() >= until_s:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _leader(self, number: int) -> PartitionCalls:
        """The partition at the broker that leads it now."""
        leader = self._topic.leader_of(number)
        if leader == self._node_id:
            return await self._led(number)
        if leader < 0:
            raise PartitionMoved(f"partition {number} of the timelines has no leader at the moment; try again")
        return RemotePartition(self._peers, leader, number)

    async def _everywhere(self, call: Callable[[PartitionCalls], Awaitable[T]]) -> list[T]:
        return await _all(self._of(number, call) for number in range(self._topic.partitions))

    async def _each(
        self,
        timeline: str,
        entries: Sequence[T],
        numbers: Sequence[int],
        call: Callable[[PartitionCalls, Sequence[T]], Awaitable[list[Result]]],
    ) -> list[Result]:
        """The results for entries of several partitions, in their order."""
        if not entries:
            await self._check(timeline)
            return []
        places: defaultdict[int, list[int]] = defaultdict(list)
        for place, number in enumerate(numbers):
            places[number].append(place)
        if len(places) == 1:
            return await self._of(numbers[0], lambda calls: call(calls, entries))
        results: dict[int, Result] = {}

        async def in_one(number: int) -> None:
            some = [entries[place] for place in places[number]]
            results.update(zip(places[number], await self._of(number, lambda calls: call(calls, some)), strict=True))

        await _all(in_one(number) for number in places)
        return [results[place] for place in range(len(entries))]

    async def _page(
        self,
        timeline: str,
        selection: Selection,
        now_ms: int,
        limit: int,
        after: TimelinePosition | None,
        bodies_bytes_max: int,
    ) -> list[TimedMessage]:
        """The selected messages of all partitions in order; not all of them have their bodies."""
        by_partition: defaultdict[int, list[str]] = defaultdict(list)
        if selection.ids is not None:
            for one in selection.ids:
                by_partition[self._of_id(one)].append(one)
            wanted = {number: selection._replace(ids=tuple(ids)) for number, ids in by_partition.items()}
        else:
            wanted = dict.fromkeys(range(self._topic.partitions), selection)
        await self._check(timeline)

        async def page_of(number: int, part: Selection) -> list[TimedMessage]:
            return await self._of(
                number,
                lambda calls: calls.page(
                    timeline, part, now_ms=now_ms, limit=limit, after=after, bodies_bytes_max=bodies_bytes_max
                ),
            )

        pages = await _all(page_of(number, part) for number, part in wanted.items())
        return list(heapq.merge(*pages, key=lambda one: (one.due_ms, one.seq)))[:limit]

    async def _with_bodies(self, timeline: str, found: Sequence[TimedMessage], now_ms: int) -> list[TimedMessage]:
        """The messages with their bodies. One that has changed since it was found is left out."""
        lacking = {one.id: one for one in found if one.body is None}
        whole: dict[int, TimedMessage] = {}
        while lacking:
            ids = tuple(lacking)
            some = await self._page(timeline, Selection(ids=ids), now_ms, len(ids), None, ANSWER_BYTES_MAX)
            fetched = [one for one in some if one.body is not None]
            for one in fetched:
                if lacking[one.id].version == one.version:
                    whole[one.seq] = one
            there = {one.id for one in some} - {one.id for one in fetched}
            lacking = {one: message for one, message in lacking.items() if one in there}
        complete = (one if one.body is not None else whole.get(one.seq) for one in found)
        return [one for one in complete if one is not None]

    async def _check(self, timeline: str) -> None:
        """Reject calls to a timeline that clients may not use, before several partitions are asked."""
        usable(await self._timeline(timeline), timeline)

    async def _timeline(self, name: str) -> TimelineInfo | None:
        """The timeline, as this broker knows it; read again if it seems not to be usable."""
        known = self._known.get(name)
        if (known is None or known.state is not TimelineState.READY) and self._topic.exists:
            found = await self._of(CATALOGUE, lambda calls: calls.catalogue())
            self._known = {one.name: one for one in found.timelines}
        return self._known.get(name)

    async def _copy_ready(self, name: str) -> None:
        """Make a timeline ready in all partitions except the first."""
        timeline = next(
            (one for one in (await self._of(CATALOGUE, lambda calls: calls.catalogue())).timelines if one.name == name),
            None,
        )
        if timeline is not None and timeline.state is not TimelineState.DELETING:
            await self._copy(TimelineInfo(name, timeline.number, TimelineState.READY, timeline.settings))

    async def _copy(self, timeline: TimelineInfo) -> None:
        await _all(self._of(number, lambda calls: calls.keep(timeline)) for number in range(1, self._topic.partitions))

    async def _purge_others(self, step: Purge) -> bool:
        """Remove some messages of a deleted timeline from all partitions except the first; whether some are left."""
        left = False
        timeline = await self._timeline(step.name)
        if timeline is None or timeline.state is not TimelineState.DELETING:
            return False
        for number in range(1, self._topic.partitions):
            with suppress(UnknownTimeline):
                if await self._of(number, lambda calls: _purged(calls, step)) is not None:
                    left = True
        return left


async def _scheduled(timeline: str, new: Sequence[NewMessage], calls: PartitionCalls) -> list[Scheduled]:
    return await calls.schedule(timeline, new)


async def _purged(calls: PartitionCalls, step: Purge) -> TimelineInfo | None:
    await calls.govern(Delete(step.name))
    return await calls.govern(step)


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    """The results, once all have ended; then the first error."""
    results: list[T] = []
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


def _pieces(places: Sequence[int], messages: Sequence[NewMessage]) -> Iterable[Sequence[int]]:
    """The places in groups of messages that fit into one call."""
    piece: list[int] = []
    size = 0
    for place in places:
        size += len(messages[place].body) + len(messages[place].key or b"")
        if piece and (len(piece) == REQUEST_MESSAGES_MAX or size > REQUEST_BYTES_MAX):
            yield piece
            piece, size = [], len(messages[place].body)
        piece.append(place)
    if piece:
        yield piece


def _sum(parts: Sequence[Backlog]) -> Backlog:
    free = zip(*((part.available, *part.waiting) for part in parts), strict=True)
    return backlog_of([sum(numbers) for numbers in free], sum(part.leased for part in parts))
