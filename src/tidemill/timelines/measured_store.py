"""A timeline store that counts its calls. It is around every store, so the stores themselves measure nothing."""

from collections.abc import Sequence
from time import perf_counter

from tidemill.model.storage_queries import QueryFilter, QueryKind, QueryOperation, QueryType, StorageQueries
from tidemill.tcp_connections import UsesNetwork
from tidemill.timelines.core.backlog import Backlog
from tidemill.timelines.core.errors import StoreCorrupt, StoreTooNew, StoreUnavailable, TimelineError
from tidemill.timelines.core.lease import (
    Cancel,
    Claim,
    Command,
    CommandOutcome,
    Complete,
    Extend,
    LeaseGrant,
    Move,
    Release,
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
)
from tidemill.timelines.core.timeline import Catalogue, Create, Purge, Step, TimelineInfo
from tidemill.timelines.interface import TimelineStore

FILTERS = {
    None: QueryFilter.ALL,
    MessageStatus.AVAILABLE: QueryFilter.AVAILABLE,
    MessageStatus.WAITING: QueryFilter.WAITING,
    MessageStatus.LEASED: QueryFilter.PROCESSING,
}
READ_ALL = QueryKind(QueryOperation.READ, QueryType.RANGE)
CREATE_ONE = QueryKind(QueryOperation.CREATE, QueryType.LOOKUP)
UPDATE_ONE = QueryKind(QueryOperation.UPDATE, QueryType.LOOKUP)
PURGE = QueryKind(QueryOperation.DELETE, QueryType.RANGE)
ACQUIRE = UPDATE_ONE._replace(filter=QueryFilter.AVAILABLE)
FILTER_OF = {
    Complete: QueryFilter.PROCESSING,
    Release: QueryFilter.PROCESSING,
    Extend: QueryFilter.PROCESSING,
    Cancel: QueryFilter.WAITING,
    Move: QueryFilter.WAITING,
}
"""The state of the messages that a command is meant for. The others are about available ones."""


class MeasuredTimelineStore:
    """Passes each call to a store, and counts it with its duration and its failure."""

    def __init__(self, store: TimelineStore, name: str) -> None:
        traffic = store.traffic.totals if isinstance(store, UsesNetwork) else None
        self.queries = StorageQueries(name, perf_counter, is_answer=is_rejection, traffic=traffic)
        self._store = store

    async def catalogue(self) -> Catalogue:
        """All timelines with their settings and states."""
        with self.queries.measured(READ_ALL):
            return await self._store.catalogue()

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline."""
        with self.queries.measured(kind_of_step(step)):
            return await self._store.govern(step)

    async def claim(self, timeline: TimelineInfo, owner: str, *, for_ms: int) -> bool:
        """Become or stay the only broker that finishes this creation or deletion."""
        with self.queries.measured(UPDATE_ONE):
            return await self._store.claim(timeline, owner, for_ms=for_ms)

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Store the messages."""
        with self.queries.measured(CREATE_ONE):
            return await self._store.schedule(timeline, messages)

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
        with self.queries.measured(kind_of_selection(selection)):
            return await self._store.find(timeline, selection, now_ms=now_ms, limit=limit, after=after, bodies=bodies)

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        """Lease the claimed messages."""
        with self.queries.measured(ACQUIRE):
            return await self._store.acquire(timeline, claims, now_ms=now_ms, early_ms=early_ms)

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        """Apply the commands that still hold."""
        with self.queries.measured(kind_of_commands(commands)):
            return await self._store.settle(timeline, commands, now_ms=now_ms)

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
        with self.queries.measured(kind_of_selection(selection)):
            return await self._store.tally(timeline, selection, now_ms=now_ms, bars=bars, bar_max=bar_max)

    async def span(self, timeline: str) -> DueSpan | None:
        """The due times of the first and of the last message."""
        with self.queries.measured(READ_ALL):
            return await self._store.span(timeline)

    async def backlogs(self, *, now_ms: int) -> dict[str, Backlog]:
        """The backlog of every timeline that clients may use."""
        with self.queries.measured(READ_ALL):
            return await self._store.backlogs(now_ms=now_ms)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


def is_rejection(error: Exception) -> bool:
    """Whether a store that works has rejected a call."""
    return isinstance(error, TimelineError) and not isinstance(error, StoreUnavailable | StoreCorrupt | StoreTooNew)


def kind_of_step(step: Step) -> QueryKind:
    """The query of a step in the lifecycle of a timeline."""
    if isinstance(step, Purge):
        return PURGE
    return CREATE_ONE if isinstance(step, Create) else UPDATE_ONE


def kind_of_selection(selection: Selection) -> QueryKind:
    """The query that reads or counts these messages."""
    kind = QueryType.RANGE if selection.ids is None else QueryType.LOOKUP
    return QueryKind(QueryOperation.READ, kind, FILTERS[selection.status])


def kind_of_commands(commands: Sequence[Command]) -> QueryKind:
    """The query that applies these commands: a deletion only if all of them remove their message."""
    deletes = all(isinstance(one, Complete | Cancel) for one in commands)
    filters = {FILTER_OF.get(type(one), QueryFilter.AVAILABLE) for one in commands}
    return QueryKind(
        QueryOperation.DELETE if deletes else QueryOperation.UPDATE,
        QueryType.LOOKUP,
        filters.pop() if len(filters) == 1 else QueryFilter.ALL,
    )
