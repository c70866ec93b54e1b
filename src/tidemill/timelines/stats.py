"""The statistics of a broker's timelines, for metrics, the console and the benchmarks.

There is one number per timeline and operation. Durations are counted in seconds, the unit of the metrics. Names of
operations are those of what was done: an error of `completed` is a completion that was rejected.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidemill.model.message_ids import drawn_ms
from tidemill.model.metrics import Histogram
from tidemill.model.timeline_errors import TimelineError
from tidemill.timelines.core.lease import LeaseGrant
from tidemill.timelines.core.message import TimedMessage

DELAY_BOUNDS_S = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0),
)
ATTEMPT_BOUNDS = (1, 2, 3, 5, 10, 25, 100)
PAST_DUE_MS = 1_000
"""A message that is due so long before it is scheduled says nothing about how late this broker delivers."""
PAST_DUE_MAX = 10_000
"""The most such messages of one timeline that are remembered until their delivery."""
NAMED_MAX = 1_000
"""The most timelines that are counted by name; further ones are counted together."""
OTHER_TIMELINES = "(other)"

SCHEDULED, DUPLICATE, COMPLETED, RELEASED = "scheduled", "duplicate", "completed", "released"
CANCELLED, MOVED, DEAD, RETRIED, MISSED = "cancelled", "moved", "dead", "retried", "missed"
MESSAGE_OPERATIONS = (SCHEDULED, DUPLICATE, COMPLETED, RELEASED, CANCELLED, MOVED, DEAD, RETRIED, MISSED)
"""What happens to messages. A duplicate has the id of a message that exists, and changed nothing.
A retried one was returned from a dead-letter timeline. A missed one is an occurrence of a recurring message that was
passed over.
"""
LEASED, EXTENDED, EXPIRED = LEASE_OPERATIONS = ("leased", "extended", "expired")
"""What happens to leases. One expires when its end comes before a consumer settles it."""
CREATED, ALTERED, DELETED = COMMANDS = ("created", "altered", "deleted")
"""What happens to timelines."""
CHANGED = "Changed"
"""The reason of a lease that failed because the message was changed meanwhile: by its producer, or another broker."""
CONSUMER_LEFT = "ConsumerLeft"
"""The reason of a lease that was returned because its consumer left before it was sent."""


def _delays() -> Histogram:
    return Histogram(DELAY_BOUNDS_S)


def _attempts() -> Histogram:
    return Histogram(ATTEMPT_BOUNDS)


@dataclass(slots=True)
class TimelineStats:
    """The statistics of one timeline since the broker started."""

    messages: Counter[str] = field(default_factory=Counter)
    """By operation: scheduled, duplicate, completed, released, cancelled, moved, dead, retried, missed."""
    leases: Counter[str] = field(default_factory=Counter)
    """By operation: leased, extended, expired."""
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rejected operations, by operation and class of the error."""
    leased_bytes: int = 0
    stops: int = 0
    """How often its pushes were stopped because most consumers failed."""
    attempts: Histogram = field(default_factory=_attempts)
    """The number of the attempt that each lease was."""
    past_due: int = 0
    """Messages that were scheduled or moved to a time more than `PAST_DUE_MS` ago."""
    lateness: Histogram = field(default_factory=_delays)
    """First deliveries only: how long after its due time a message was pushed. Without the `past_due` ones."""
    wakeup: Histogram = field(default_factory=_delays)
    """How late the dispatcher's own timer fired."""
    _past_due_ids: dict[str, None] = field(default_factory=dict)

    def scheduled(self, entries: Iterable[tuple[str, int]], now_ms: int) -> None:
        """Notice which of the messages, given by id and due time, were due long ago when they were stored."""
        for message_id, due_ms in entries:
            if due_ms >= now_ms - PAST_DUE_MS:
                continue
            self.past_due += 1
            if len(self._past_due_ids) >= PAST_DUE_MAX:
                del self._past_due_ids[next(iter(self._past_due_ids))]
            self._past_due_ids[message_id] = None

    def delivered(self, pushed: Sequence[tuple[TimedMessage, LeaseGrant]], now_ms: float) -> None:
        """Count leases that are pushed now. This runs for every message, so it counts batches where it can."""
        self.leases[LEASED] += len(pushed)
        self.leased_bytes += sum([message.size for message, _ in pushed])
        for attempts, count in Counter([lease.attempts for _, lease in pushed]).items():
            self.attempts.add_equal(attempts, count)
        for message, lease in pushed:
            late_ms = now_ms - message.scheduled_ms
            if lease.attempts <= 1 and (late_ms <= PAST_DUE_MS or not self._was_past_due(message, now_ms)):
                self.lateness.add(late_ms / 1_000 if late_ms > 0 else 0.0)

    def _was_past_due(self, message: TimedMessage, now_ms: float) -> bool:
        """Whether a message was due long before it was stored.

        Another broker may have stored it. An id that was drawn by a broker tells when.
        """
        if message.id in self._past_due_ids:
            del self._past_due_ids[message.id]
            return True
        return message.scheduled_ms + PAST_DUE_MS < drawn_ms(message.id) <= now_ms

    def failed(self, operation: str, reason: str, count: int = 1) -> None:
        """Count operations that were rejected."""
        if count:
            self.errors[operation, reason] += count

    @contextmanager
    def failures(self, operation: str, count: int) -> Iterator[None]:
        """Count all of a batch as rejected when the block ends with an error."""
        try:
            yield
        except TimelineError as error:
            self.failed(operation, type(error).__name__, count)
            raise


class TimelineCounts:
    """The statistics of all timelines of a broker."""

    def __init__(self) -> None:
        self.commands: Counter[str] = Counter()
        """By operation: created, altered, deleted. Not by timeline: clients give the names of failed ones."""
        self.command_errors: Counter[tuple[str, str]] = Counter()
        self._by_name: dict[str, TimelineStats] = {}

    def of(self, name: str) -> TimelineStats:
        """The statistics of a timeline that exists."""
        found = self._by_name.get(name)
        if found is None:
            label = name if len(self._by_name) < NAMED_MAX else OTHER_TIMELINES
            found = self._by_name.setdefault(label, TimelineStats())
        return found

    def label_of(self, name: str) -> str:
        """The name under which a timeline that exists is counted."""
        return name if self.of(name) is self.get(name) else OTHER_TIMELINES

    def get(self, name: str) -> TimelineStats | None:
        """The statistics of a timeline, if it is counted by name and something was counted."""
        return self._by_name.get(name)

    def forget(self, name: str) -> None:
        """Drop the statistics of a deleted timeline."""
        self._by_name.pop(name, None)

    def names(self) -> list[str]:
        """The timelines with statistics, in order; `OTHER_TIMELINES` stands for those without a name here."""
        return sorted(self._by_name)

    @contextmanager
    def command(self, operation: str) -> Iterator[None]:
        """Count a command that a client gave, and its error if it has one."""
        self.commands[operation] += 1
        try:
            yield
        except TimelineError as error:
            self.command_errors[operation, type(error).__name__] += 1
            raise
