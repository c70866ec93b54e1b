"""The messages of a timeline: body, due time, and optionally a key and a natural id."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidemill.model.timeline_errors import BadDueTime

Due = datetime | float
"""A point in time: a datetime (without a zone it is local time, as everywhere in Python) or seconds since 1970."""

MS_PER_SECOND = 1_000
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message to deliver later.

    `body` is the content. `due` is the delivery time; the message is never delivered before: a datetime (without a zone
    it is local time) or seconds since 1970 (`time.time() + 5`). A time in the past means now. `id` is a natural id:
    scheduling the same id twice gives one message. Without it, an id is generated. `key` is passed to the consumer with
    the body.
    """

    body: bytes
    due: Due
    id: str | None = None
    key: bytes | None = None


class ScheduledId(str):
    """The id of a scheduled message, with the state of the stored message."""

    __slots__ = ("due", "exists_already")

    due: datetime
    """When the message is due: for an existing message, the stored due time and not the one just requested."""
    exists_already: bool
    """Whether a message with this id existed: it was kept unchanged."""

    @classmethod
    def of(cls, message_id: str, at_ms: int, *, exists_already: bool) -> "ScheduledId":
        """Return the id with the broker's answer."""
        scheduled = cls(message_id)
        scheduled.due = from_ms(at_ms)
        scheduled.exists_already = exists_already
        return scheduled


def due_ms(due: Due) -> int:
    """Return the due time in milliseconds, rounded up: a message is never early."""
    if isinstance(due, datetime):
        try:
            return -((EPOCH - due.astimezone(UTC)) // MILLISECOND)
        except (OverflowError, ValueError, OSError) as error:
            raise BadDueTime(f"{due!r} is not a due time: {error}") from error
    if not isinstance(due, int | float):
        raise TypeError(f"{due!r} is not a due time; pass a datetime, or seconds since 1970")
    if not math.isfinite(due) or abs(due) > MS_MAX:
        raise BadDueTime(f"due time {due!r} s is not between 1970 and the year 9999")
    return math.ceil(round(due * MS_PER_SECOND, 3))


def from_ms(ms: int) -> datetime:
    """Convert milliseconds to a datetime in UTC."""
    return EPOCH + MILLISECOND * min(ms, MS_MAX)
