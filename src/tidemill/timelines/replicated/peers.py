"""Calls to a partition of the timelines that another broker leads, and the answers to such calls."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tidemill.model.errors import TidemillError
from tidemill.timelines.core.backlog import Backlog
from tidemill.timelines.core.errors import PartitionMoved, StoreCorrupt
from tidemill.timelines.core.frames import (
    BlobReader,
    command_rows,
    commands_from,
    new_from,
    new_rows,
    pack,
    timed_from,
    timed_rows,
    timeline_from,
    timeline_row,
    unpack,
)
from tidemill.timelines.core.lease import Claim, Command, CommandOutcome, LeaseGrant
from tidemill.timelines.core.message import (
    COUNT_MAX,
    EVERYTHING,
    DueSpan,
    NewMessage,
    Scheduled,
    Selection,
    TimedMessage,
    TimelinePosition,
)
from tidemill.timelines.core.timeline import Catalogue, Step, TimelineInfo
from tidemill.timelines.replicated.core.calls import (
    error_from,
    selection_from,
    selection_row,
    step_from,
    step_row,
)
from tidemill.timelines.replicated.interface import PartitionCalls, TimelinePeers

MOVED = "moved"


class RemotePartition:
    """The partition at the broker that leads it."""

    def __init__(self, peers: TimelinePeers, node_id: int, number: int) -> None:
        self._peers = peers
        self._node_id = node_id
        self._number = number

    async def catalogue(self) -> Catalogue:
        """All timelines, and the clock of the leader."""
        (rows, now_ms), _ = await self._ask("catalogue")
        return Catalogue(tuple(timeline_from(row) for row in rows), now_ms)

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline."""
        row, _ = await self._ask("govern", step_row(step))
        return None if row is None else timeline_from(row)

    async def keep(self, timeline: TimelineInfo) -> None:
        """Store a timeline as another partition has it."""
        await self._ask("keep", timeline_row(timeline))

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Store the messages."""
        rows, blobs = new_rows(messages)
        found, _ = await self._ask("schedule", timeline, rows, blobs=blobs)
        return [Scheduled(*row) for row in found]

    async def adopt(
        self, timeline: str, source: str, messages: Sequence[TimedMessage], *, only_check: bool
    ) -> list[str]:
        """Store messages of another store."""
        rows, blobs = timed_rows(messages)
        taken, _ = await self._ask("adopt", timeline, source, rows, only_check, blobs=blobs)
        return list(taken)

    async def page(
        self,
        timeline: str,
        selection: Selection,
        *,
        now_ms: int,
        limit: int,
        after: TimelinePosition | None,
        bodies_bytes_max: int,
    ) -> list[TimedMessage]:
        """The selected messages in order."""
        row = selection_row(selection)
        rows, blobs = await self._ask("page", timeline, row, now_ms, limit, after, bodies_bytes_max)
        return timed_from(rows, blobs)

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        """Lease the claimed messages."""
        rows, _ = await self._ask("acquire", timeline, claims, now_ms, early_ms)
        return [None if row is None else LeaseGrant(*row) for row in rows]

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        """Apply the commands that still hold."""
        rows, _ = await self._ask("settle", timeline, command_rows(commands), now_ms)
        return [CommandOutcome(row) for row in rows]

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
        counts, _ = await self._ask("tally", timeline, selection_row(selection), now_ms, bars, bar_max)
        return [int(count) for count in counts]

    async def span(self, timeline: str) -> DueSpan | None:
        """The due times of the first and of the last message."""
        row, _ = await self._ask("span", timeline)
        return None if row is None else DueSpan(*row)

    async def backlogs(self, *, now_ms: int) -> dict[str, Backlog]:
        """The backlog of every timeline that clients may use."""
        rows, _ = await self._ask("backlogs", now_ms)
        return {name: Backlog(available, leased, tuple(waiting)) for name, (available, leased, waiting) in rows.items()}

    async def _ask(self, name: str, *arguments: Any, blobs: Sequence[bytes | None] = ()) -> tuple[Any, BlobReader]:
        request = pack([self._number, name, *arguments], blobs)
        (kind, *values), rest = unpack(await self._peers.call(self._node_id, request))
        if kind == MOVED:
            raise PartitionMoved(*values)
        if kind == "error":
            raise error_from(*values)
        return values[0], rest


class CallAnswers:
    """Answers the calls of other brokers. `find` finds a partition that this broker leads."""

    def __init__(self, find: Callable[[int], Awaitable[PartitionCalls]], clock_ms: Callable[[], int]) -> None:
        self._find = find
        self._clock_ms = clock_ms

    async def answer(self, request: bytes) -> bytes:
        """Do what another broker asks for."""
        try:
            values, blobs = unpack(request)
            number, name, *arguments = values
            operation = _OPERATIONS[name]
            return await operation(await self._find(number), arguments, blobs, self._clock_ms)
        except PartitionMoved as error:
            return pack([MOVED, str(error)])
        except TidemillError as error:
            return pack(["error", type(error).__name__, str(error)])
        except (KeyError, TypeError, ValueError, IndexError):
            text = "a call of another broker cannot be read; run one version on all brokers"
            return pack(["error", StoreCorrupt.__name__, text])


Clock = Callable[[], int]
Operation = Callable[[PartitionCalls, list[Any], BlobReader, Clock], Awaitable[bytes]]


async def _catalogue(calls: PartitionCalls, _: list[Any], __: BlobReader, clock_ms: Clock) -> bytes:
    found = await calls.catalogue()
    return pack(["ok", [[timeline_row(one) for one in found.timelines], clock_ms()]])


async def _govern(calls: PartitionCalls, arguments: list[Any], _: BlobReader, __: Clock) -> bytes:
    timeline = await calls.govern(step_from(arguments[0]))
    return pack(["ok", None if timeline is None else timeline_row(timeline)])


async def _keep(calls: PartitionCalls, arguments: list[Any], _: BlobReader, __: Clock) -> bytes:
    await calls.keep(timeline_from(arguments[0]))
    return pack(["ok", None])


async def _schedule(calls: PartitionCalls, arguments: list[Any], blobs: BlobReader, _: Clock) -> bytes:
    timeline, rows = arguments
    return pack(["ok", await calls.schedule(timeline, new_from(rows, blobs))])


async def _adopt(calls: PartitionCalls, arguments: list[Any], blobs: BlobReader, _: Clock) -> bytes:
    timeline, source, rows, only_check = arguments
    return pack(["ok", await calls.adopt(timeline, source, timed_from(rows, blobs), only_check=only_check)])


async def _page(calls: PartitionCalls, arguments: list[Any], _: BlobReader, __: Clock) -> bytes:
    timeline, selection, now_ms, limit, after, bodies_bytes_max = arguments
    found = await calls.page(
        timeline,
        selection_from(selection),
        now_ms=now_ms,
        limit=limit,
        after=None if after is None else TimelinePosition(*after),
        bodies_bytes_max=bodies_bytes_max,
    )
    rows, parts = timed_rows(found)
    return pack(["ok", rows], parts)


async def _acquire(calls: PartitionCalls, arguments: list[Any], _: BlobReader, __: Clock) -> bytes:
    timeline, claims, now_ms, early_ms = arguments
    leases = await calls.acquire(timeline, [Claim(*one) for one in claims], now_ms=now_ms, early_ms=early_ms)
    return pack(["ok", leases])


async def _settle(calls: PartitionCalls, arguments: list[Any], _: BlobReader, __: Clock) -> bytes:
    timeline, commands, now_ms = arguments
    outcomes = await calls.settle(timeline, commands_from(commands), now_ms=now_ms)
    return pack(["ok", [outcome.value for outcome in outcomes]])


async def _tally(calls: PartitionCalls, arguments: list[Any], _: BlobReader, __: Clock) -> bytes:
    timeline, selection, now_ms, bars, bar_max = arguments
    counts = await calls.tally(timeline, selection_from(selection), now_ms=now_ms, bars=bars, bar_max=bar_max)
    return pack(["ok", counts])


async def _span(calls: PartitionCalls, arguments: list[Any], _: BlobReader, __: Clock) -> bytes:
    return pack(["ok", await calls.span(arguments[0])])


async def _backlogs(calls: PartitionCalls, arguments: list[Any], _: BlobReader, __: Clock) -> bytes:
    return pack(["ok", await calls.backlogs(now_ms=arguments[0])])


_OPERATIONS: dict[str, Operation] = {
    "catalogue": _catalogue,
    "govern": _govern,
    "keep": _keep,
    "schedule": _schedule,
    "adopt": _adopt,
    "page": _page,
    "acquire": _acquire,
    "settle": _settle,
    "tally": _tally,
    "span": _span,
    "backlogs": _backlogs,
}
