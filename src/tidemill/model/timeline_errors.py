"""What can be wrong with a call on a timeline: the same classes in the broker and in the client.

A door sends the name of the class; `by_name` gives the client the class back, so that `except StaleToken` works on
both ends of the wire. `retriable` says whether the same call may succeed later.
"""

from typing import ClassVar

from tidemill.model.errors import TidemillError


class TimelineError(TidemillError):
    """Something went wrong on a timeline."""

    retriable: ClassVar[bool] = False


class UnknownTimeline(TimelineError):
    """There is no timeline of that name."""


class TimelineExists(TimelineError):
    """There is a timeline of that name with other settings."""


class TimelineCreating(TimelineError):
    """The timeline is being created; try again in a moment."""

    retriable = True


class TimelineDeleting(TimelineError):
    """The timeline is being deleted; its name is free again when that is finished."""

    retriable = True


class InvalidTimelineName(TimelineError):
    """A timeline's name has 1 to 249 letters, digits, dots, hyphens and underscores."""


class InvalidTimelineSetting(TimelineError):
    """The setting is unknown, or its value is out of range."""


class InvalidDue(TimelineError):
    """A due time lies between 1970 and the end of the year 9999."""


class InvalidMessageId(TimelineError):
    """The message's id is empty, too long or holds characters that cannot be shown."""


class BodyTooLarge(TimelineError):
    """The message's body or key is larger than the limit."""


class TooManyMessages(TimelineError):
    """The call holds more messages or operations than the limit."""


class UnknownMessage(TimelineError):
    """There is no message of that id: it was completed, cancelled or never there."""


class StaleToken(TimelineError):
    """The lease has ended; another consumer may hold the message now."""


class LeaseHeld(TimelineError):
    """A consumer holds the message under a live lease; nobody else may change it."""


class NotOwner(TimelineError):
    """Another producer group created the message."""


class InvalidLease(TimelineError):
    """The length of the lease is out of range."""


class UnknownSession(TimelineError):
    """The session is not known here; shake hands again."""

    retriable = True


class InvalidHandshake(TimelineError):
    """The handshake's id, rack, lease or limit is out of range."""


class TooManySessions(TimelineError):
    """The broker holds as many sessions as it may; try again later."""

    retriable = True


class ConsumerReplaced(TimelineError):
    """Another consumer with the same id has taken this one's place."""


class Degraded(TimelineError):
    """The broker is degraded and refuses what could do harm; try again later."""

    retriable = True


class StoreUnavailable(TimelineError):
    """The timeline's store does not answer."""

    retriable = True


class Unreachable(TimelineError):
    """The broker cannot be reached."""

    retriable = True


def by_name(name: str) -> type[TidemillError]:
    """The class of that name; `TimelineError` for one this version does not know."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, TimelineError) else TimelineError
