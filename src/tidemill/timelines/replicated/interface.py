"""The protocols that replicated timelines need: a journal, an index of each of its partitions, and other brokers."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from tidemill.timelines.core.backlog import Backlog
from tidemill.timelines.core.journal_entries import JournalBatch, JournalGroup, JournalPosition
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


class Adopted(NamedTuple):
    """The result of adopting messages: ids that exist here, and the messages that were not stored because of them."""

    taken: Sequence[str]
    left: Sequence[TimedMessage]


class PartitionCalls(Protocol):
    """The calls to the timelines of one partition, on the broker that leads it."""

    async def catalogue(self) -> Catalogue:
        """All timelines, and the clock of the leader."""

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline."""

    async def keep(self, timeline: TimelineInfo) -> None:
        """Store a timeline as another partition has it."""

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Store the messages."""

    async def adopt(
        self, timeline: str, source: str, messages: Sequence[TimedMessage], *, only_check: bool
    ) -> list[str]:
        """Store messages of another store, which have its numbers, unless that was done before.

        Returns the ids that other messages have here; then, or with `only_check`, nothing is stored.
        """

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
        """The selected messages in order; of their bodies only those that fit, and of the first in any case.

        With `bodies_bytes_max` 0 there are no bodies.
        """

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        """Lease the claimed messages."""

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        """Apply the commands that still hold."""

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

    async def span(self, timeline: str) -> DueSpan | None:
        """The due times of the first and of the last message."""

    async def backlogs(self, *, now_ms: int) -> dict[str, Backlog]:
        """The backlog of every timeline that clients may use."""


class TimelineIndex(PartitionCalls, Protocol):
    """The messages of one partition on this broker, in a file that follows the journal."""

    @property
    def is_serving(self) -> bool:
        """Whether calls may change the index."""

    def serve(self, *, as_leader: bool) -> None:
        """Accept calls that change the index, because it has the whole journal; or no more."""

    async def position(self) -> JournalPosition:
        """The position in the journal up to which the index has everything."""

    async def apply(self, groups: Sequence[JournalGroup]) -> None:
        """Change what the entries of the journal say, unless the index has them."""

    async def restate_catalogue(self) -> tuple[JournalPosition, int]:
        """Write all timelines to the journal; returns the position before them, and the last message that exists."""

    async def restate(self, after_seq: int, last_seq: int, limit: int) -> int:
        """Write the next messages to the journal; returns the number of the last one, or `last_seq` at the end."""

    async def close(self) -> None:
        """Close the file."""


class PartitionJournal(Protocol):
    """One partition of the journal on this broker."""

    @property
    def log_id(self) -> str | None:
        """The identity of the log, unique over time; None when this broker has no replica of it."""

    @property
    def leader_epoch(self) -> int | None:
        """The epoch in which this broker leads the partition; None when it does not."""

    @property
    def start_offset(self) -> int:
        """The first offset that is kept."""

    @property
    def committed_offset(self) -> int:
        """The end of what is committed, as far as this broker knows."""

    @property
    def size_bytes(self) -> int:
        """The size of what is kept."""

    def continues(self, position: JournalPosition) -> bool:
        """Whether the log has what follows the position, and what is before it is what was read there."""

    async def settled(self) -> None:
        """Return when everything that is in the log of this leader is committed."""

    async def read(self, offset: int) -> Sequence[JournalBatch]:
        """The next committed values; none when there are no more."""

    async def append(self, values: Sequence[bytes], at: JournalPosition, epoch: int) -> JournalPosition:
        """Append the values as the leader of `epoch`, exactly behind `at`; returns when they are durable.

        StoreUnavailable when it is not known whether they are.
        """

    async def trim(self, start_offset: int) -> None:
        """Delete everything below an offset."""


class JournalTopic(Protocol):
    """The partitions of the journal."""

    @property
    def partitions(self) -> int:
        """Their number; it never changes once the topic exists."""

    @property
    def exists(self) -> bool:
        """Whether the topic exists, as far as this broker knows."""

    async def ensure(self) -> None:
        """Create the topic if it does not exist."""

    def leader_of(self, partition: int) -> int:
        """The broker that leads a partition; -1 when there is none at the moment."""

    def partition(self, number: int) -> PartitionJournal:
        """One partition."""


class TimelinePeers(Protocol):
    """Calls to the other brokers."""

    async def call(self, node_id: int, request: bytes) -> bytes:
        """Send a request to a broker.

        PartitionMoved when it was not sent; StoreUnavailable when it is not known whether it was done.
        """

    async def close(self) -> None:
        """Close the connections."""


AppendEntries: TypeAlias = Callable[[Sequence[bytes], JournalPosition], Coroutine[Any, Any, JournalPosition]]
OpenIndex: TypeAlias = Callable[[str, int, AppendEntries], Awaitable[TimelineIndex]]
"""Opens the index of a log and a partition."""
RemoveIndex: TypeAlias = Callable[[str, int], Awaitable[None]]
"""Removes the index of a log and a partition, which is not open."""
AnswerCalls: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""Answers a call of another broker."""
