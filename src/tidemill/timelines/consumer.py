"""A consumer as the dispatcher sees it: its free capacity, the messages it holds, and its outbox.

A consumer gets no messages in four cases: it reports that it is busy; it holds `max_in_flight` leases; it has been
silent for `SILENCE_MS_MAX`; or it was not heard since it let a lease end (it was stopped, or its network failed).
Messages sent to it then would only wait for the end of their lease. The outbox needs no bound of its own: it can hold
no more than what is in flight.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidemill.model.timeline_errors import TimelineError
from tidemill.timelines.core.dealer import DealtConsumer
from tidemill.timelines.core.lease import LeaseGrant
from tidemill.timelines.core.message import TimedMessage
from tidemill.timelines.core.message_queue import LeaseOrder

IN_FLIGHT_MAX = 10_000
SILENCE_MS_MAX = 5_000
LEAD_MS_MAX = 50
LATENCIES_KEPT = 8
US_PER_MS = 1_000


class Granted(NamedTuple):
    """A message with the lease that its consumer got for it."""

    message: TimedMessage
    lease: LeaseGrant


@dataclass(frozen=True, slots=True)
class ConsumerTerms:
    """The terms of a consumer's handshake."""

    id: str
    rack: str = ""
    lease_ms: int = 0
    """0: the timeline's own setting."""
    max_in_flight: int = 100
    in_process: bool = False
    """Part of this broker: never silent, and needs no pings."""
    holds_back: bool = False
    """The consumer delivers no message before its due time, even if it arrives early."""
    order: LeaseOrder = LeaseOrder.LEASE_END
    """Which of several due messages it gets first."""


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
        self._latencies_us: deque[int] = deque(maxlen=LATENCIES_KEPT)
        self.reserved = 0
        """Leases that are being written for it."""
        self.held: dict[int, int] = {}
        """The messages it holds: number and token."""
        self.dealt_in = False
        """Whether the dealer includes it; a stalled consumer is excluded until it makes progress again."""
        self.moved_ms = now_ms
        """When it last had capacity or settled something."""
        self.heard_ms = now_ms
        self.suspect_ms = 0
        """When it last let a lease end; it gets nothing until it is heard after that."""
        self._push = push
        self._end = end
        self.notify = notify
        """Reports why the broker's clock is in doubt; no reasons when it is trusted again."""

    @property
    def id(self) -> str:
        """The consumer's id."""
        return self.terms.id

    def capacity(self) -> int:
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
        """Record the result of a ping: the latency, and how far the consumer's clock is ahead of ours."""
        self.latency_us = latency_us
        self._latencies_us.append(latency_us - max(0, drift_us))

    @property
    def lead_ms(self) -> int:
        """How long before its due time a message may be sent, so that it arrives when it is due.

        It is the shortest recent latency, minus how far the consumer's clock is ahead. A message that still arrives
        early is held back by the consumer. A consumer that holds nothing back gets nothing early.
        """
        if not self.terms.holds_back or not self._latencies_us:
            return 0
        return min(max(0, min(self._latencies_us) // US_PER_MS), LEAD_MS_MAX)

    def push(self, granted: list[Granted]) -> None:
        """Put leases into the outbox."""
        self._push(granted)

    def end(self, error: TimelineError) -> None:
        """End its stream: it was replaced, or its timeline was deleted."""
        self._end(error)
