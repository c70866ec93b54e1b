"""The messages of a timeline: body, due time, and optionally a key and a natural id."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from tidemill.model.timeline_errors import BadDueTime, BadRecurrence

Due = datetime | float
"""A point in time: a datetime (without a zone it is local time, as everywhere in Python) or seconds since 1970."""

MS_PER_SECOND = 1_000
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""


MissedPolicyName = Literal["skip", "once", "all"]


@dataclass(frozen=True, slots=True)
class RecurrenceRule:
    """When a message is due again: at the times of a cron expression in a time zone, or after an interval.

    `cron` is minute, hour, day of month, month and day of week: `0 9 * * 1-5`. `zone` is its time zone. `every` is an
    interval: a timedelta or seconds. `missed` says what happens to occurrences whose time passed before they could be
    delivered: `skip` them, deliver `once` for all of them, or `all`. The last occurrence is due at `until` at the
    latest, or is number `count`. In a listed message `count` is the number that is left.
    """

    cron: str | None = None
    every: timedelta | float | None = None
    zone: str | None = None
    missed: MissedPolicyName = "once"
    until: Due | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message to deliver later.

    `body` is the content. `due` is the delivery time; the message is never delivered before: a datetime (without a zone
    it is local time) or seconds since 1970 (`time.time() + 5`). A time in the past means now. `id` is a natural id:
    scheduling the same id twice gives one message. Without it, an id is generated. `key` is passed to the consumer with
    the body. With a `recurrence` the message is due again after each completion. It needs no `due` then: that is the
    time before which it does not begin.
    """

    body: bytes
    due: Due | None = None
    id: str | None = None
    key: bytes | None = None
    recurrence: RecurrenceRule | None = None


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


def every_ms(every: timedelta | float) -> int:
    """Return an interval in milliseconds."""
    if isinstance(every, timedelta):
        return every // MILLISECOND
    if not isinstance(every, int | float):
        raise TypeError(f"every={every!r} is not an interval; pass a timedelta, or seconds")
    if not math.isfinite(every) or abs(every) > MS_MAX:
        raise BadRecurrence(f"every={every!r} s is not an interval")
    return round(every * MS_PER_SECOND)


def from_ms(ms: int) -> datetime:
    """Convert milliseconds to a datetime in UTC."""
    return EPOCH + MILLISECOND * min(ms, MS_MAX)
