"""Timelines in memory: `core/` applied to plain dictionaries, for tests and for brokers that keep nothing.

It is the shortest complete store, so it is also the reading of the contract: what the SQL stores do must come out as
`core.lease.take` and `core.lease.decide` say here. Each call runs to its end without awaiting, which makes it atomic.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import count, islice

from tidemill.timelines.core.lease import (
    Bury,
    Cancel,
    Claim,
    Command,
    Lease,
    Move,
    Outcome,
    buried_id,
    check_claims,
    check_commands,
    decide,
    take,
)
from tidemill.timelines.core.message import (
    EVERYTHING,
    Message,
    NewMessage,
    Place,
    Scheduled,
    Selection,
    bar_width_ms,
    check_find,
    check_new,
    selected,
    within_bytes,
)
from tidemill.timelines.core.timeline import Catalogue, Purge, Step, Timeline, after, usable

_BEFORE_ALL = -1


class _Line:
    """The messages of one timeline: by number, by id, and in their order."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.messages: dict[int, Message] = {}
        self.seq_of: dict[str, int] = {}
        self.order: list[tuple[int, int]] = []

    def put(self, message: Message) -> None:
        """Enter the message, in place of its former state if there is one."""
        self.drop(message.seq)
        self.messages[message.seq] = message
        self.seq_of[message.id] = message.seq
        insort(self.order, (message.due_ms, message.seq))

    def drop(self, seq: int) -> None:
        """Remove the message if it is here."""
        message = self.messages.pop(seq, None)
        if message is not None:
            del self.seq_of[message.id]
            del self.order[bisect_left(self.order, (message.due_ms, seq))]

    def walk(self, selection: Selection, now_ms: int, start: tuple[int, int]) -> Iterator[Message]:
        """The selected messages after `start`, in order."""
        first = bisect_right(self.order, max(start, (selection.start_ms, _BEFORE_ALL)))
        for index in range(first, bisect_left(self.order, (selection.end_ms, _BEFORE_ALL))):
            message = self.messages[self.order[index][1]]
            if selected(message, selection, now_ms):
                yield message


class MemoryStore:
    """A TimelineStore that forgets when it is closed."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._numbers = count(1)

    async def catalogue(self) -> Catalogue:
        """All timelines."""
        return Catalogue(tuple(line.timeline for _, line in sorted(self._lines.items())), None)

    async def govern(self, step: Step) -> Timeline | None:
        """Take one step in the life of a timeline."""
        line = self._lines.get(step.name)
        timeline = after(line.timeline if line else None, step, next(self._numbers))
        line = self._lines.setdefault(step.name, line or _Line(timeline))
        line.timeline = timeline
        if isinstance(step, Purge):
            for seq in list(islice(line.messages, step.limit)):
                line.drop(seq)
            if not line.messages:
                del self._lines[step.name]
                return None
        return timeline

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Keep the messages."""
        line = self._line(timeline)
        check_new(messages, line.timeline.settings.body_bytes_max)
        return [self._schedule(line, message) for message in messages]

    async def find(
        self,
        timeline: str,
        selection: Selection = EVERYTHING,
        *,
        now_ms: int,
        limit: int,
        after: Place | None = None,
        bodies: bool = False,
    ) -> list[Message]:
        """The selected messages in order."""
        check_find(selection, limit)
        walk = self._line(timeline).walk(selection, now_ms, after or (_BEFORE_ALL, _BEFORE_ALL))
        found = islice(walk, limit)
        return list(within_bytes(found)) if bodies else [message._replace(body=None) for message in found]

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[Lease | None]:
        """Lease the claimed messages."""
        line = self._line(timeline)
        check_claims(claims, now_ms, early_ms)
        return [_acquire(line, claim, now_ms, early_ms) for claim in claims]

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[Outcome]:
        """Carry out the commands that still hold."""
        line = self._line(timeline)
        check_commands(commands, now_ms)
        graves = {command.to: self._line(command.to) for command in commands if isinstance(command, Bury)}
        return [_settle(line, command, now_ms, graves) for command in commands]

    async def tally(self, timeline: str, selection: Selection = EVERYTHING, *, now_ms: int, bars: int = 1) -> list[int]:
        """Count the selected messages by due time."""
        width_ms = bar_width_ms(selection, bars)
        counts = [0] * bars
        for message in self._line(timeline).walk(selection, now_ms, (_BEFORE_ALL, _BEFORE_ALL)):
            counts[(message.due_ms - selection.start_ms) // width_ms] += 1
        return counts

    async def close(self) -> None:
        """Forget everything."""
        self._lines.clear()

    def _line(self, name: str) -> _Line:
        line = self._lines.get(name)
        usable(line.timeline if line else None, name)
        return self._lines[name]

    def _schedule(self, line: _Line, new: NewMessage) -> Scheduled:
        seq = line.seq_of.get(new.id)
        if seq is not None:
            known = line.messages[seq]
            return Scheduled(known.id, seq, known.version, known.due_ms, duplicate=True)
        seq = next(self._numbers)
        line.put(
            Message(
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
            )
        )
        return Scheduled(new.id, seq, 1, new.due_ms, duplicate=False)


def _acquire(line: _Line, claim: Claim, now_ms: int, early_ms: int) -> Lease | None:
    taken = take(line.messages.get(claim.seq), claim, now_ms, early_ms)
    if taken is None:
        return None
    line.put(taken)
    return Lease(taken.seq, taken.token, claim.holder, taken.due_ms, taken.attempts)


def _settle(line: _Line, command: Command, now_ms: int, graves: dict[str, _Line]) -> Outcome:
    seq = line.seq_of.get(command.id, 0) if isinstance(command, Cancel | Move) else command.seq
    message = line.messages.get(seq)
    outcome, changed = decide(message, command, now_ms)
    if outcome is not Outcome.DONE:
        return outcome
    if changed is None:
        line.drop(seq)
    elif isinstance(command, Bury):
        line.drop(seq)
        graves[command.to].put(changed._replace(id=buried_id(line.timeline.name, changed.id, seq)))
    else:
        line.put(changed)
    return outcome
