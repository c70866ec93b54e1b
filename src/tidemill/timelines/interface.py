"""The protocols that the dispatcher needs: a store of timelines, and a registry of the consumers of all brokers.

A store is durable when a call returns, compares and writes in one step, and never reads a clock: `now_ms` is an
argument (see `core/clock.py` for the only clock that may be passed). Calls may overlap. Each is atomic as a whole,
except that the entries of a batch succeed or fail one by one. The path of a message:

    schedule -> find (prefetch, with bodies) -> acquire (at its due time) -> settle(Complete | Release | Extend)
                                                                       or -> settle(Cancel | Move) by its producer

Errors are those of `core/errors.py`. A store that cannot be reached raises StoreUnavailable. As with any network, the
call may have happened; repeating it is safe because of natural ids, versions and tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tidemill.timelines.core.backlog import Backlog
from tidemill.timelines.core.dealer import DealtConsumer
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
from tidemill.timelines.core.shared_windows import ConsumerPlace
from tidemill.timelines.core.timeline import Catalogue, Step, TimelineInfo


class ClockTrust(Protocol):
    """Whether this broker's wall clock is trusted."""

    def reasons(self) -> tuple[str, ...]:
        """Why the clock is in doubt; empty while it is trusted."""

    @property
    def has_base(self) -> bool:
        """Whether durations can be added to a correct time of day."""

    def read_store(self, their_ms: int) -> None:
        """Report a reading of the store's clock."""


class TimelineStore(Protocol):
    """A durable store of timelines and their messages."""

    async def catalogue(self) -> Catalogue:
        """All timelines with their settings and states."""

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline; the timeline afterwards, None after the last purge."""

    async def claim(self, timeline: TimelineInfo, owner: str, *, for_ms: int) -> bool:
        """Become or stay the only broker that finishes this creation or deletion, for this long by the store's clock.

        False when another broker's claim still holds, or the timeline does not exist any more.
        """

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Store the messages; an id that exists is reported as a duplicate and changes nothing."""

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
        """The selected messages in order of (due_ms, seq), the first `limit` after `after`; reads nothing beyond.

        With bodies the result also ends at FIND_BYTES_MAX, so a short result is not the end: an empty one is.
        """

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        """Lease the claimed messages: those still at the version seen and due by now (see `core.lease.take`)."""

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        """Apply each command, if its token, version or owner still holds."""

    async def tally(
        self,
        timeline: str,
        selection: Selection = EVERYTHING,
        *,
        now_ms: int,
        bars: int = 1,
        bar_max: int = COUNT_MAX,
    ) -> list[int]:
        """The number of selected messages that are due in each of `bars` equal parts of the selection's range.

        A part counts up to `bar_max` and reads hardly more, so `bars * bar_max` bounds the work. Writes do not wait.
        """

    async def span(self, timeline: str) -> DueSpan | None:
        """The due times of the first and of the last message, in any state; None for an empty timeline."""

    async def backlogs(self, *, now_ms: int) -> dict[str, Backlog]:
        """The backlog of every timeline that clients may use; its numbers are bounded, and writes do not wait."""

    async def close(self) -> None:
        """Finish accepted operations and close files and connections."""


class SharedConsumers(Protocol):
    """The consumers of all brokers that share a store, as this broker sees them."""

    def enter(self, timeline: str, member: DealtConsumer) -> None:
        """Register a consumer that is connected here, also when another broker has one with that id."""

    def leave(self, timeline: str, consumer: str) -> None:
        """Remove a consumer that disconnected or cannot work."""

    def places(self, timeline: str) -> Sequence[ConsumerPlace]:
        """All registered consumers, as far as this broker has seen."""

    def deal(self, timeline: str) -> bytes | None:
        """The record of the deal, as far as this broker has seen."""

    def publish_deal(self, timeline: str, record: bytes | None) -> None:
        """Replace the record of the deal that this broker sees, None to remove it; another broker may be first."""

    def displaced(self, timeline: str) -> Sequence[str]:
        """Consumers here whose id a consumer at another broker has taken over."""

    def listen(self, heard: Callable[[Iterable[str]], None]) -> None:
        """From now on call `heard` with the timelines whose consumers have changed."""
