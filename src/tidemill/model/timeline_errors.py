"""What can go wrong with a timeline: the same classes in the broker and in the client.

A door sends the name of the class and the client raises that class again, so that `except StaleLease` works on both
ends of the wire. `code` is the nearest Kafka error, for records that come through the Kafka door; `retriable` says
whether the same call may succeed later. An error means that nothing was changed.
"""

from collections.abc import Mapping
from types import MappingProxyType

from tidemill.model.errors import TidemillError


class TimelineError(TidemillError):
    """A timeline refused the request."""

    code = 42
    failures: "Mapping[str, TimelineError]" = MappingProxyType({})
    """Where a call speaks of several messages: what became of each that was refused, by id."""


class UnknownTimeline(TimelineError):
    """There is no timeline of this name; create it first."""

    code = 3


class TimelineExists(TimelineError):
    """A timeline of this name exists already with other settings; alter it instead."""

    code = 36


class TimelineNotReady(TimelineError):
    """The timeline is still being created; try again in a moment."""

    code = 5
    retriable = True


class TimelineDeleting(TimelineError):
    """The timeline is being deleted; its name is free again when that is finished."""

    code = 3
    retriable = True


class BadTimelineName(TimelineError):
    """The name is not one a timeline can have."""

    code = 17


class BadSetting(TimelineError):
    """A setting of the timeline has a value that it cannot have."""

    code = 40


class BadMessageId(TimelineError):
    """The message id is empty, too long or has unprintable characters."""


class BadDueTime(TimelineError):
    """The due time is negative or beyond the year 9999."""

    code = 32


class BadLease(TimelineError):
    """The lease is too short, too long or has no holder."""


class BodyTooLarge(TimelineError):
    """The body is larger than the timeline's limit."""

    code = 10


class BatchTooLarge(TimelineError):
    """The batch has more entries than one request may carry."""

    code = 10


class UnknownMessage(TimelineError):
    """There is no such message: it was completed, cancelled or never scheduled."""


class StaleLease(TimelineError):
    """The lease has ended: it ran out, was given back, or belongs to another consumer now."""


class LeaseIsLive(TimelineError):
    """A consumer holds the message; it can be changed when the lease ends."""

    retriable = True


class NotOwner(TimelineError):
    """The message belongs to another producer group."""

    code = 29


class UnknownSession(TimelineError):
    """The session is not known here; shake hands again."""

    retriable = True


class BadHandshake(TimelineError):
    """The id, the rack or a limit in the handshake is out of range."""


class ConsumerReplaced(TimelineError):
    """Another consumer with the same id has taken the place of this one."""


class StoreUnavailable(TimelineError):
    """The timeline store does not answer at the moment."""

    code = 56
    retriable = True


class StoreCorrupt(TimelineError):
    """The timeline store is damaged and must be restored before it can be used."""

    code = 56


class StoreTooNew(TimelineError):
    """The timeline store was written by a newer version of Tidemill."""

    code = 35


class Unreachable(TimelineError):
    """The broker cannot be reached."""

    code = 7
    retriable = True


def by_name(name: str) -> type[TimelineError]:
    """The class of that name; `TimelineError` for one that this version does not know."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, TimelineError) else TimelineError
