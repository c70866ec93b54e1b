"""A consumer as the dispatcher sees it: how much it may still get, what it holds, and its outbox.

A consumer gets nothing while it says that it is busy, while it holds `max_in_flight` leases, or while it has been
silent for `SILENCE_MS_MAX`, or since it let a lease run out (it was stopped, or its network is gone): what it was
sent would only wait for the end of its lease. The outbox needs no bound of its own: it can hold no more than what is
in flight."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidemill.model.timeline_errors import TimelineError
from tidemill.timelines.core.dealer import DealtConsumer
from tidemill.timelines.core.lease import LeaseGrant
from tidemill.timelines.core.message import TimedMessage

IN_FLIGHT_MAX = 10_000
SILENCE_MS_MAX = 5_000
LEAD_MS_MAX = 50
WAYS_KEPT = 8
US_PER_MS = 1_000


class Granted(NamedTuple):
    """A message with the lease that its consumer got for it."""

    message: TimedMessage
    lease: LeaseGrant


@dataclass(frozen=True, slots=True)
class ConsumerTerms:
    """What a consumer asked for in its handshake."""

    id: str
    rack: str = ""
    lease_ms: int = 0
    """0: the timeline's own setting."""
    max_in_flight: int = 100
    in_process: bool = False
    """A part of this broker: it is never silent, and needs no pings."""
    holds_back: bool = False
    """It hands nothing out before its due time, whatever was sent to it."""


class TimelineConsumer:
    """One connected consumer of one timeline."""

    def __init__(
        self,
        terms: ConsumerTerms,
        *,
        push: Callable[[list[Granted]], None],
        end: Callable[[TimelineError], None],
        now_ms: int,
        notify: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        self.terms = terms
        self.member = DealtConsumer(terms.id, terms.rack)
        self.busy = False
        self.latency_us = 0
        self._ways_us: deque[int] = deque(maxlen=WAYS_KEPT)
        self.reserved = 0
        """Leases that are being written for it."""
        self.held: dict[int, int] = {}
        """The messages it holds: number and token."""
        self.dealt_in = False
        """Whether the dealer counts on it; a stalled consumer is left out until it moves again."""
        self.moved_ms = now_ms
        """When it last had room or gave something back."""
        self.heard_ms = now_ms
        self.suspect_ms = 0
        """When it last let a lease run out; until it is heard after that it gets nothing."""
        self._push = push
        self._end = end
        self.notify = notify
        """Tells it why the broker's clock is in doubt; no reasons when it is trusted again."""

    @property
    def id(self) -> str:
        """The consumer's id."""
        return self.terms.id

    def room(self) -> int:
        """How many more leases it may get now."""
        if self.busy:
            return 0
        return max(0, self.terms.max_in_flight - len(self.held) - self.reserved)

    def silent(self, now_ms: int) -> bool:
        """Whether it has not answered for too long."""
        if self.terms.in_process:
            return False
        return now_ms - self.heard_ms > SILENCE_MS_MAX or self.heard_ms <= self.suspect_ms

    def measured(self, latency_us: int, drift_us: int) -> None:
        """A ping told how long the way to it is, and how far its clock is ahead of ours."""
        self.latency_us = latency_us
        self._ways_us.append(latency_us - max(0, drift_us))

    @property
    def lead_ms(self) -> int:
        """How long before its due time a message may be sent, so that it is there when it is due.

        It is the shortest way of late, less what the consumer's clock is ahead: what arrives all the same before its
        due time is held back there. A consumer that holds nothing back is sent nothing early.
        """
        if not self.terms.holds_back or not self._ways_us:
            return 0
        return min(max(0, min(self._ways_us) // US_PER_MS), LEAD_MS_MAX)

    def push(self, granted: list[Granted]) -> None:
        """Put leases into the outbox."""
        self._push(granted)

    def end(self, error: TimelineError) -> None:
        """End its stream: it was replaced, or its timeline is gone."""
        self._end(error)
