"""What goes onto a timeline: a message with its body, its due time, and perhaps a key and a natural id."""

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
    """One message for later.

    `body` is what it carries. `due` is when it is delivered, and never before: a datetime (without a zone it is local
    time) or seconds since 1970 (`time.time() + 5`); a time that has passed means now. `id` is a natural id: two
    schedules with the same one are one message; without it one is drawn. `key` goes with the body, for the consumer.
    """

    body: bytes
    due: Due
    id: str | None = None
    key: bytes | None = None


class ScheduledId(str):
    """The id of a scheduled message, which also knows what is kept under it."""

    __slots__ = ("due", "exists_already")

    due: datetime
    """When the message is due: for one that was there before, its own due time and not the one just asked for."""
    exists_already: bool
    """A message of this id was there: it was kept, and nothing changed."""

    @classmethod
    def of(cls, message_id: str, at_ms: int, *, exists_already: bool) -> "ScheduledId":
        """The id with what the broker said of it."""
        scheduled = cls(message_id)
        scheduled.due = from_ms(at_ms)
        scheduled.exists_already = exists_already
        return scheduled


def due_ms(due: Due) -> int:
    """The due time in milliseconds, rounded up: a message is never early."""
    if isinstance(due, datetime):
        try:
            return -((EPOCH - due.astimezone(UTC)) // MILLISECOND)
        except (OverflowError, ValueError, OSError) as error:
            raise BadDueTime(f"{due!r} is not a due time: {error}") from error
    if not isinstance(due, int | float):
        raise TypeError(f"{due!r} is not a due time: give a datetime, or seconds since 1970")
    if not math.isfinite(due) or abs(due) > MS_MAX:
        raise BadDueTime(f"due time {due!r} s is not between 1970 and the year 9999")
    return math.ceil(round(due * MS_PER_SECOND, 3))


def from_ms(ms: int) -> datetime:
    """Milliseconds as a datetime in UTC."""
    return EPOCH + MILLISECOND * min(ms, MS_MAX)
