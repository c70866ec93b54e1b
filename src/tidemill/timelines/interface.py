"""What the dispatcher asks of a place that keeps timelines, and of whoever knows the consumers of other brokers.

A store is durable when a call returns, compares and writes in one step, and never reads a clock: `now_ms` comes with
the call (see `core/clock.py` for the one clock that may be passed). Calls may overlap; each is atomic as a whole,
except that the entries of a batch succeed or fail one by one. The walk of a message:

    schedule -> find (prefetch, bodies and all) -> acquire (at its due time) -> settle(Complete | Release | Extend)
                                                                         or -> settle(Cancel | Move) by its producer

Errors are those of `core/errors.py`; a store that cannot be reached raises StoreUnavailable and, as with any network,
the call may have happened: repeat it (natural ids, versions and tokens make that safe).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tidemill.timelines.core.dealer import DealtConsumer
from tidemill.timelines.core.lease import Claim, Command, CommandOutcome, LeaseGrant
from tidemill.timelines.core.message import EVERYTHING, NewMessage, Scheduled, Selection, TimedMessage, TimelinePosition
from tidemill.timelines.core.shared_windows import ConsumerPlace
from tidemill.timelines.core.timeline import Catalogue, Step, TimelineInfo


class ClockTrust(Protocol):
    """Whether this broker's wall clock is trusted."""

    def reasons(self) -> tuple[str, ...]:
        """Why it is in doubt; nothing while it is trusted."""

    @property
    def has_base(self) -> bool:
        """Whether lengths of time can be added to a right time of day."""

    def read_store(self, their_ms: int) -> None:
        """The clock of the store was read."""


class TimelineStore(Protocol):
    """A durable home of timelines and their messages."""

    async def catalogue(self) -> Catalogue:
        """All timelines with their settings and states."""

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the life of a timeline; the timeline afterwards, None when the last purge removed it."""

    async def claim(self, timeline: TimelineInfo, owner: str, *, for_ms: int) -> bool:
        """Become or stay the only broker that finishes this creation or deletion, for this long by the store's clock.

        False when another broker's claim still holds, or the timeline is gone.
        """

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Keep the messages; an id that is there already is answered as a duplicate and changes nothing."""

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

        With bodies the answer also ends at FIND_BYTES_MAX, so a short answer is not the end: an empty one is.
        """

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        """Lease the claimed messages: those still at the version seen and due by now (see `core.lease.take`)."""

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        """Complete, release, extend, cancel, move or bury, each if its token, version or owner still holds."""

    async def tally(self, timeline: str, selection: Selection = EVERYTHING, *, now_ms: int, bars: int = 1) -> list[int]:
        """How many of the selected messages are due in each of `bars` equal parts of the selection's range."""

    async def close(self) -> None:
        """Finish what was accepted and let go of files and connections."""


class SharedConsumers(Protocol):
    """The consumers of all brokers that share a store, as each of these brokers knows them."""

    def enter(self, timeline: str, member: DealtConsumer) -> None:
        """A consumer is connected here: let everybody know, also when others have one of that id."""

    def leave(self, timeline: str, consumer: str) -> None:
        """It is not, or cannot work."""

    def places(self, timeline: str) -> Sequence[ConsumerPlace]:
        """Everybody who is registered, as far as this broker has heard."""

    def displaced(self, timeline: str) -> Sequence[str]:
        """Consumers here whose id another broker's consumer has by now."""

    def listen(self, heard: Callable[[Iterable[str]], None]) -> None:
        """From now on `heard` is told the timelines whose consumers have changed."""
