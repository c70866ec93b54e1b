"""Throttles producers whose requests mostly fail by their own fault, such as a denied topic or an invalid record.

A failing producer costs the broker as much as one that succeeds, and often it retries without a pause. Only its failed
requests are delayed, so the throttling ends with the first request that succeeds. A producer is known from its first
failure until its share of failures is low again, so producers without failures cost nothing.
"""

from collections import OrderedDict

from tidemill.model import timeline_errors
from tidemill.model.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTimestamp,
    InvalidTopic,
    MessageTooLarge,
    RecordListTooLarge,
    TidemillError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnsupportedCompressionType,
)

FAILING_REQUESTS_MIN = 20
"""The share of failures is not known before so many requests."""
REMEMBERED_REQUESTS_MAX = 64
"""Above this count both numbers are halved, so that recent requests weigh more."""
FAILING_PRODUCERS_MAX = 1000
FORGOTTEN_AFTER_S = 60.0
DELAY_S = 1.0
CLIENT_ID_CHARS_MAX = 256
OWN_ERRORS: tuple[type[TidemillError], ...] = (
    CorruptMessage,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTimestamp,
    InvalidTopic,
    MessageTooLarge,
    RecordListTooLarge,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnsupportedCompressionType,
    timeline_errors.BadDueTime,
    timeline_errors.BadHandshake,
    timeline_errors.BadMessageId,
    timeline_errors.BadTimelineName,
    timeline_errors.BatchTooLarge,
    timeline_errors.BodyTooLarge,
    timeline_errors.UnknownSession,
    timeline_errors.UnknownTimeline,
)
"""Errors of the client itself. A missing topic is not one: this broker may not know a new topic yet."""
_PERCENT = 100
_NEVER = 100

ProducerKey = tuple[str, str]


class ProducerOutcomes:
    """The recent requests of one producer."""

    __slots__ = ("failed", "last_s", "total", "waits_until_s")

    def __init__(self) -> None:
        self.failed = 0
        self.total = 0
        self.last_s = 0.0
        self.waits_until_s = 0.0


class FailingProducers:
    """The producers that have failed. A producer is a user and a client id."""

    def __init__(self, percentage: int) -> None:
        self._percentage = percentage
        self._known: OrderedDict[ProducerKey, ProducerOutcomes] = OrderedDict()
        self.throttled = 0
        """How many responses were delayed."""

    @property
    def is_watching(self) -> bool:
        """Whether the outcome of a request that succeeds has to be reported."""
        return bool(self._known)

    def record(self, user: str, client_id: str, now_s: float, *, has_failed: bool) -> float:
        """Count a request; the seconds for which the producer must wait."""
        if self._percentage >= _NEVER:
            return 0.0
        key = (user, client_id[:CLIENT_ID_CHARS_MAX])
        outcomes = self._known.get(key)
        if outcomes is None:
            if not has_failed:
                self._forget(now_s)
                return 0.0
            outcomes = self._known[key] = ProducerOutcomes()
            if len(self._known) > FAILING_PRODUCERS_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        outcomes.last_s = now_s
        outcomes.total += 1
        outcomes.failed += has_failed
        if outcomes.total > REMEMBERED_REQUESTS_MAX:
            outcomes.total //= 2
            outcomes.failed //= 2
        if not outcomes.failed:
            del self._known[key]
        self._forget(now_s)
        if not has_failed or not self._is_failing(outcomes):
            return 0.0
        self.throttled += 1
        outcomes.waits_until_s = now_s + DELAY_S
        return DELAY_S

    def delay(self, user: str, client_id: str, now_s: float) -> float:
        """The seconds for which the producer must wait still; for servers that cannot delay a whole connection."""
        outcomes = self._known.get((user, client_id[:CLIENT_ID_CHARS_MAX]))
        return 0.0 if outcomes is None else max(0.0, outcomes.waits_until_s - now_s)

    def _is_failing(self, outcomes: ProducerOutcomes) -> bool:
        if outcomes.total < FAILING_REQUESTS_MIN:
            return False
        return outcomes.failed * _PERCENT > outcomes.total * self._percentage

    def _forget(self, now_s: float) -> None:
        """The producers are in the order of their last request."""
        while self._known and now_s - next(iter(self._known.values())).last_s > FORGOTTEN_AFTER_S:
            self._known.popitem(last=False)
