"""Missed occurrences of recurring messages: they are passed over, and the next one of the policy is scheduled.

A missed occurrence is leased and completed by the broker itself, so the store schedules the next one as after any other
completion. A crash in between leaves a lease that ends.
"""

from collections.abc import Sequence

from tidemill.timelines.clock import Clock
from tidemill.timelines.core.errors import StoreCorrupt
from tidemill.timelines.core.lease import TOOK_EFFECT, Claim, CommandOutcome, Complete
from tidemill.timelines.core.message import TimedMessage
from tidemill.timelines.core.recurrence import recurrence_from, was_missed
from tidemill.timelines.health import HealthMonitor
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.stats import MISSED, SCHEDULED, TimelineStats

MISSED_HOLDER = "tidemill-missed-occurrences"
PASS_LEASE_MS = 30_000


def is_missed(message: TimedMessage, now_ms: int) -> bool:
    """Whether this is an occurrence that nothing was given, and that its policy passes over."""
    if not message.recurrence or message.attempts:
        return False
    try:
        return was_missed(recurrence_from(message.recurrence), message.scheduled_ms, now_ms)
    except StoreCorrupt:  # its completion reports it
        return False


class MissedOccurrences:
    """Passes over the missed occurrences of one timeline."""

    def __init__(
        self, name: str, store: TimelineStore, clock: Clock, guard: HealthMonitor, stats: TimelineStats
    ) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._guard = guard
        self._stats = stats

    async def pass_over(self, missed: Sequence[TimedMessage]) -> None:
        """Give each message the next due time of its policy."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + PASS_LEASE_MS
        claims = [Claim(one.seq, one.version, MISSED_HOLDER, until_ms, one.due_ms) for one in missed]
        leases = await self._guard.ask_store(lambda: self._store.acquire(self._name, claims, now_ms=now_ms))
        done = [Complete(lease.seq, lease.token) for lease in leases if lease is not None]
        outcomes = await self._guard.ask_store(lambda: self._store.settle(self._name, done, now_ms=now_ms))
        self._stats.messages[MISSED] += sum(outcome in TOOK_EFFECT for outcome in outcomes)
        self._stats.messages[SCHEDULED] += outcomes.count(CommandOutcome.RECURRED)
