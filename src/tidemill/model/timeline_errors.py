"""The errors of timelines: the same classes in the broker and in the client.

A server sends the name of the class and the client raises that class again, so that `except StaleLease` works on both
ends. `code` is the nearest Kafka error, for records that arrive through the Kafka server. `retriable` means that the
same call may succeed later. After an error nothing was changed.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tidemill.model.errors import TidemillError


class TimelineError(TidemillError, code=42):
    """The timeline rejected the request."""

    failures: "Mapping[str, TimelineError]" = MappingProxyType({})
    """In calls with several messages: the error of each rejected message, by id."""


class UnknownTimeline(TimelineError, code=3):
    """The timeline does not exist; create it first."""


class TimelineExists(TimelineError, code=36):
    """The timeline exists with other settings; alter it instead."""


class TimelineNotReady(TimelineError, code=5, retriable=True):
    """The timeline is still being created; retry."""


class TimelineDeleting(TimelineError, code=3, retriable=True):
    """The timeline is being deleted; retry when that is finished."""


class BadTimelineName(TimelineError, code=17):
    """The name is not a valid timeline name."""


class BadSetting(TimelineError, code=40):
    """A setting of the timeline has an invalid value."""


class BadMessageId(TimelineError):
    """The message id is empty, too long or has unprintable characters."""


class BadDueTime(TimelineError, code=32):
    """The due time is negative or beyond the year 9999."""


class BadRecurrence(TimelineError):
    """The recurrence cannot be scheduled: its cron expression, zone, interval or end is invalid."""


class BadLease(TimelineError):
    """The lease is too short, too long or has no holder."""


class BodyTooLarge(TimelineError, code=10):
    """The body is larger than the timeline's limit."""


class BatchTooLarge(TimelineError, code=10):
    """The batch has more entries than one request may carry."""


class UnknownMessage(TimelineError):
    """The message does not exist: it was completed, cancelled or never scheduled."""


class StaleLease(TimelineError):
    """The lease has ended: it expired, was released, or belongs to another consumer now."""


class LeaseIsLive(TimelineError, retriable=True):
    """A consumer holds the message; it can be changed when the lease ends."""


class NotOwner(TimelineError, code=29):
    """The message belongs to another producer group."""


class UnknownSession(TimelineError, retriable=True):
    """The session is unknown to this broker; send the handshake again."""


class BadHandshake(TimelineError):
    """The id, the rack or a limit in the handshake is out of range."""


class TimelineLoginFailed(TimelineError, code=58):
    """The broker has refused the login; check user, password and token."""


class TimelineAuthorizationFailed(TimelineError, code=29):
    """The user may not do this with the timeline; grant the right with: tidemill acl grant"""


class ConsumerReplaced(TimelineError):
    """Another consumer with the same id has replaced this one."""


class ProducerThrottled(TimelineError, code=89, retriable=True):
    """Most requests of this producer fail, so it has to wait; correct them, and try again later."""


class ClockInDoubt(TimelineError, code=56, retriable=True):
    """The broker's clock is in doubt, and the request needs the time of day; run: tidemill cluster clock"""


class StoreUnavailable(TimelineError, code=56, retriable=True):
    """The timeline store does not respond at the moment; retry."""


class StoreCorrupt(TimelineError, code=56):
    """The timeline store is damaged and must be restored before it can be used."""


class StoreTooNew(TimelineError, code=35):
    """The timeline store was written by a newer version of Tidemill; upgrade this one."""


class Unreachable(TimelineError, code=7, retriable=True):
    """The broker cannot be reached."""


def by_name(name: str) -> type[TimelineError]:
    """Return the class of that name, or `TimelineError` if this version does not have it."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, TimelineError) else TimelineError
