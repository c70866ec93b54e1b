"""Timelines in memory: `core/` applied to plain dictionaries, for tests and for brokers without storage.

It is the shortest complete store, so it also serves as the reference: the SQL stores must give the same results as
`core.lease.take` and `core.lease.decide` here. Each call runs to its end without awaiting, which makes it atomic.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice

from tidemill.timelines.core.backlog import Backlog, backlog_of, free_ranges, leased_range
from tidemill.timelines.core.changes import (
    Change,
    answer_schedule,
    plan_commands,
    plan_leases,
    plan_schedule,
    targets,
    wanted_ids,
)
from tidemill.timelines.core.lease import (
    Claim,
    Command,
    CommandOutcome,
    LeaseGrant,
    check_claims,
    check_commands,
)
from tidemill.timelines.core.message import (
    COUNT_MAX,
    EVERYTHING,
    DueSpan,
    MessageStatus,
    NewMessage,
    Scheduled,
    Selection,
    TimedMessage,
    TimelinePosition,
    bar_ranges,
    check_find,
    check_new,
    selected,
    within_bytes,
)
from tidemill.timelines.core.timeline import Catalogue, Purge, Step, TimelineInfo, TimelineState, after, usable

_BEFORE_ALL = -1


class _MemoryTimeline:
    """The messages of one timeline: by number, by id, and in their order."""

    def __init__(self, timeline: TimelineInfo) -> None:
        self.timeline = timeline
        self.messages: dict[int, TimedMessage] = {}
        self.seq_of: dict[str, int] = {}
        self.order: list[tuple[int, int]] = []
        self.held: set[int] = set()
        """The messages with a holder, whose lease may have ended."""

    def put(self, message: TimedMessage) -> None:
        """Add the message, or replace its former state."""
        self.drop(message.seq)
        self.messages[message.seq] = message
        self.seq_of[message.id] = message.seq
        insort(self.order, (message.due_ms, message.seq))
        if message.holder is not None:
            self.held.add(message.seq)

    def drop(self, seq: int) -> None:
        """Remove the message if it exists."""
        message = self.messages.pop(seq, None)
        if message is not None:
            del self.seq_of[message.id]
            del self.order[bisect_left(self.order, (message.due_ms, seq))]
            self.held.discard(seq)

    def numbered(self, numbers: Sequence[int]) -> list[TimedMessage]:
        """The existing messages with these numbers."""
        return [self.messages[seq] for seq in numbers if seq in self.messages]

    def named(self, ids: Sequence[str]) -> list[TimedMessage]:
        """The existing messages with these ids."""
        return [self.messages[self.seq_of[one]] for one in ids if one in self.seq_of]

    def count(self, selection: Selection, now_ms: int, ranges: Sequence[tuple[int, int]]) -> list[int]:
        """The selected messages in each range of due times; a long timeline is counted without looking at each one."""
        if selection.buckets is not None or selection.ids is not None:
            of_range = (selection._replace(start_ms=low, end_ms=high) for low, high in ranges)
            return [sum(1 for _ in self.iterate(each, now_ms, (_BEFORE_ALL, _BEFORE_ALL))) for each in of_range]
        leased = sorted((due_ms, seq) for seq in self.held if (due_ms := self.messages[seq].due_ms) > now_ms)
        if selection.status is MessageStatus.LEASED:
            return _between(leased, ranges)
        counts = _between(self.order, ranges)
        if selection.status is not MessageStatus.WAITING:
            return counts
        return [count - taken for count, taken in zip(counts, _between(leased, ranges), strict=True)]

    def backlog(self, now_ms: int) -> Backlog:
        """What is available, leased, and waiting."""
        available, *waiting = free_ranges(now_ms)
        free = _between(self.order, [available]) + self.count(Selection(status=MessageStatus.WAITING), now_ms, waiting)
        leased = self.count(Selection(status=MessageStatus.LEASED), now_ms, [leased_range(now_ms)])
        return backlog_of(free, *leased)

    def iterate(self, selection: Selection, now_ms: int, start: tuple[int, int]) -> Iterator[TimedMessage]:
        """The selected messages after `start`, in order."""
        first = bisect_right(self.order, max(start, (selection.start_ms, _BEFORE_ALL)))
        for index in range(first, bisect_left(self.order, (selection.end_ms, _BEFORE_ALL))):
            message = self.messages[self.order[index][1]]
            if selected(message, selection, now_ms):
                yield message


def _between(order: Sequence[tuple[int, int]], ranges: Sequence[tuple[int, int]]) -> list[int]:
    """How many of the ordered places are in each range of due times."""
    places = ([bisect_left(order, (end, _BEFORE_ALL)) for end in each] for each in ranges)
    return [max(0, high - low) for low, high in places]


class MemoryTimelineStore:
    """A TimelineStore that loses everything when it is closed."""

    def __init__(self) -> None:
        self._timelines: dict[str, _MemoryTimeline] = {}
        self._numbers = count(1)

    async def catalogue(self) -> Catalogue:
        """All timelines."""
        return Catalogue(tuple(line.timeline for _, line in sorted(self._timelines.items())), None)

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline."""
        line = self._timelines.get(step.name)
        timeline = after(line.timeline if line else None, step, next(self._numbers))
        line = self._timelines.setdefault(step.name, line or _MemoryTimeline(timeline))
        line.timeline = timeline
        if isinstance(step, Purge):
            for seq in list(islice(line.messages, step.limit)):
                line.drop(seq)
            if not line.messages:
                del self._timelines[step.name]
                return None
        return timeline

    async def claim(self, timeline: TimelineInfo, owner: str, *, for_ms: int) -> bool:  # noqa: ARG002 - no other broker
        """Always true: one broker uses this store."""
        return True

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Store the messages."""
        line = self._line(timeline)
        check_new(messages, line.timeline.settings.body_bytes_max)
        there, fresh = plan_schedule(line.named([message.id for message in messages]), messages)
        numbers = {message.id: self._keep(line, message) for message in fresh}
        return answer_schedule(there, numbers, messages)

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
        matching = self._line(timeline).iterate(selection, now_ms, after or (_BEFORE_ALL, _BEFORE_ALL))
        found = islice(matching, limit)
        return list(within_bytes(found)) if bodies else [message._replace(body=None) for message in found]

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        """Lease the claimed messages."""
        line = self._line(timeline)
        check_claims(claims, now_ms, early_ms)
        messages = line.numbered([claim.seq for claim in claims])
        leases, changes = plan_leases(timeline, messages, claims, now_ms, early_ms)
        self._write(line, changes)
        return leases

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        """Apply the commands that still hold."""
        line = self._line(timeline)
        check_commands(commands, now_ms)
        used = {to: [one for one in ids if one in known] for to, ids, known in self._wanted(commands)}
        numbers, ids = targets(commands)
        messages = [*line.numbered(numbers), *line.named(ids)]
        outcomes, changes = plan_commands(timeline, messages, commands, now_ms, used)
        self._write(line, changes)
        return outcomes

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
        ranges = bar_ranges(selection, now_ms, bars)
        return [min(count, bar_max) for count in self._line(timeline).count(selection, now_ms, ranges)]

    async def span(self, timeline: str) -> DueSpan | None:
        """The due times of the first and of the last message."""
        order = self._line(timeline).order
        return DueSpan(order[0][0], order[-1][0]) if order else None

    async def backlogs(self, *, now_ms: int) -> dict[str, Backlog]:
        """The backlog of every timeline that clients may use."""
        return {
            name: line.backlog(now_ms)
            for name, line in self._timelines.items()
            if line.timeline.state is TimelineState.READY
        }

    async def close(self) -> None:
        """Drop everything."""
        self._timelines.clear()

    def _line(self, name: str) -> _MemoryTimeline:
        line = self._timelines.get(name)
        usable(line.timeline if line else None, name)
        return self._timelines[name]

    def _wanted(self, commands: Sequence[Command]) -> list[tuple[str, list[str], Mapping[str, int]]]:
        return [(to, ids, self._line(to).seq_of) for to, ids in wanted_ids(commands).items()]

    def _keep(self, line: _MemoryTimeline, new: NewMessage) -> int:
        seq = next(self._numbers)
        line.put(
            TimedMessage(
                seq=seq,
                id=new.id,
                due_ms=new.due_ms,
                scheduled_ms=new.due_ms,
                bucket=new.bucket,
                group=new.group,
                holder=None,
                token=0,
                version=1,
                attempts=0,
                size=len(new.body),
                key=new.key,
                body=new.body,
                recurrence=new.recurrence,
            )
        )
        return seq

    def _write(self, line: _MemoryTimeline, changes: Sequence[Change]) -> None:
        for before, now, timeline in changes:
            line.drop(before.seq)
            if now is not None:
                self._timelines[timeline].put(now)
