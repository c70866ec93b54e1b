"""What can go wrong with a timeline: the same classes in the broker and in the client.

A door sends the name of the class and the client raises that class again, so that `except StaleLease` works on both
ends of the wire. `code` is the nearest Kafka error, for records that come through the Kafka door; `retriable` says
whether the same call may succeed later. An error means that nothing was changed.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tidemill.model.errors import TidemillError


class TimelineError(TidemillError, code=42):
    """A timeline refused the request."""

    failures: "Mapping[str, TimelineError]" = MappingProxyType({})
    """Where a call speaks of several messages: what became of each that was refused, by id."""


class UnknownTimeline(TimelineError, code=3):
    """There is no timeline of this name; create it first."""


class TimelineExists(TimelineError, code=36):
    """A timeline of this name exists already with other settings; alter it instead."""


class TimelineNotReady(TimelineError, code=5, retriable=True):
    """The timeline is still being created; try again in a moment."""


class TimelineDeleting(TimelineError, code=3, retriable=True):
    """The timeline is being deleted; its name is free again when that is finished."""


class BadTimelineName(TimelineError, code=17):
    """The name is not one a timeline can have."""


class BadSetting(TimelineError, code=40):
    """A setting of the timeline has a value that it cannot have."""


class BadMessageId(TimelineError):
    """The message id is empty, too long or has unprintable characters."""


class BadDueTime(TimelineError, code=32):
    """The due time is negative or beyond the year 9999."""


class BadLease(TimelineError):
    """The lease is too short, too long or has no holder."""


class BodyTooLarge(TimelineError, code=10):
    """The body is larger than the timeline's limit."""


class BatchTooLarge(TimelineError, code=10):
    """The batch has more entries than one request may carry."""


class UnknownMessage(TimelineError):
    """There is no such message: it was completed, cancelled or never scheduled."""


class StaleLease(TimelineError):
    """The lease has ended: it ran out, was given back, or belongs to another consumer now."""


class LeaseIsLive(TimelineError, retriable=True):
    """A consumer holds the message; it can be changed when the lease ends."""


class NotOwner(TimelineError, code=29):
    """The message belongs to another producer group."""


class UnknownSession(TimelineError, retriable=True):
    """The session is not known here; shake hands again."""


class BadHandshake(TimelineError):
    """The id, the rack or a limit in the handshake is out of range."""


class ConsumerReplaced(TimelineError):
    """Another consumer with the same id has taken the place of this one."""


class ClockInDoubt(TimelineError, code=56, retriable=True):
    """The broker's clock is in doubt, and the request needs the time of day; tidemill cluster clock says why."""


class StoreUnavailable(TimelineError, code=56, retriable=True):
    """The timeline store does not answer at the moment."""


class StoreCorrupt(TimelineError, code=56):
    """The timeline store is damaged and must be restored before it can be used."""


class StoreTooNew(TimelineError, code=35):
    """The timeline store was written by a newer version of Tidemill."""


class Unreachable(TimelineError, code=7, retriable=True):
    """The broker cannot be reached."""


def by_name(name: str) -> type[TimelineError]:
    """The class of that name; `TimelineError` for one that this version does not know."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, TimelineError) else TimelineError
