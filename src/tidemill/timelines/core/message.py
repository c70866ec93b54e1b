"""A message on a timeline: its position, its content, and its three possible states.

The state is never stored. It follows from the position on the timeline (`due_ms`), the holder and the current time:

    due_ms <= now                 available   (a holder that is still set had a lease that ended)
    due_ms >  now, no holder      waiting
    due_ms >  now, a holder       leased      (due_ms is the end of the lease)

So no task has to run when a message becomes due or a lease ends. `seq` is the store's own number of a message and is
never reused; `version` grows with each change. Together they identify one state of one message, also when a message of
the same natural id was completed and scheduled again in the meantime.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from tidemill.timelines.core.errors import BadDueTime, BadMessageId, BatchTooLarge, BodyTooLarge

DUE_MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last instant that every date library can show
ID_CHARS_MAX = 200
GROUP_CHARS_MAX = 200
KEY_BYTES_MAX = 64 * 1024
BATCH_MESSAGES_MAX = 10_000
BATCH_BYTES_MAX = 128 * 1024 * 1024
FIND_LIMIT_MAX = 10_000
FIND_BYTES_MAX = 32 * 1024 * 1024  # of bodies in one result; a larger first body is returned alone
HISTOGRAM_BARS_MAX = 10_000
COUNT_MAX = 2**62  # no limit: more messages than any store has


class MessageStatus(Enum):
    """The state of a message at a given time."""

    WAITING = "waiting"
    AVAILABLE = "available"
    LEASED = "leased"


class NewMessage(NamedTuple):
    """A message to be scheduled. The caller draws the id (unless the producer gave one) and the bucket."""

    id: str
    due_ms: int
    body: bytes
    bucket: int
    key: bytes | None = None
    group: str = ""
    recurrence: str = ""  # as `core.recurrence` writes it; empty: the message is due once


class Scheduled(NamedTuple):
    """The result for one scheduled message; for a duplicate, the position of the existing message."""

    id: str
    seq: int
    version: int
    due_ms: int
    duplicate: bool
    scheduled_ms: int  # the due time that the producer last asked for; under a live lease `due_ms` is its end


class TimedMessage(NamedTuple):
    """A message as the store keeps it. `body` is None unless it was asked for; `size` is its length in bytes."""

    seq: int
    id: str
    due_ms: int  # the position on the timeline; while leased, the end of the lease
    scheduled_ms: int  # the due time that the producer last asked for; lateness is measured from it
    bucket: int
    group: str
    holder: str | None
    token: int  # the version at which the last lease was taken; 0 before the first
    version: int
    attempts: int  # leases taken so far
    size: int
    key: bytes | None
    body: bytes | None = None
    recurrence: str = ""  # when it is due again after its completion; empty: never


class TimelinePosition(NamedTuple):
    """A point in the order of a timeline; `find` continues after it."""

    due_ms: int
    seq: int


class DueSpan(NamedTuple):
    """The due times of the first and of the last message of a timeline."""

    first_ms: int
    last_ms: int


class Selection(NamedTuple):
    """The messages that `find` and `tally` cover: due times in [start_ms, end_ms), and the other given conditions."""

    start_ms: int = 0
    end_ms: int = DUE_MS_MAX + 1
    status: MessageStatus | None = None
    buckets: tuple[tuple[int, int], ...] | None = None  # inclusive ranges; None for all
    ids: tuple[str, ...] | None = None


EVERYTHING = Selection()


def status_of(due_ms: int, holder: str | None, now_ms: int) -> MessageStatus:
    """The state that follows from position, holder and time."""
    if due_ms <= now_ms:
        return MessageStatus.AVAILABLE
    return MessageStatus.WAITING if holder is None else MessageStatus.LEASED


def check_due(due_ms: int) -> None:
    """Reject a due time outside of the calendar. A past one is valid: it is delivered now."""
    if not 0 <= due_ms <= DUE_MS_MAX:
        raise BadDueTime(f"due time {due_ms} ms is not between 1970 and the year 9999")


def check_id(message_id: str) -> None:
    """Reject an id that could not be typed, printed or stored by each of the stores."""
    if not message_id or len(message_id) > ID_CHARS_MAX or not message_id.isprintable():
        shown = ascii(message_id[:40])
        raise BadMessageId(f"message id {shown} must have 1 to {ID_CHARS_MAX} printable characters")


def check_group(group: str) -> None:
    """Reject a producer group that could not be stored."""
    if len(group) > GROUP_CHARS_MAX or not group.isprintable():
        raise BadMessageId(f"a producer group must have at most {GROUP_CHARS_MAX} printable characters")


def check_find(selection: Selection, limit: int) -> None:
    """Reject a listing without a bound."""
    if limit > FIND_LIMIT_MAX or len(selection.ids or ()) > BATCH_MESSAGES_MAX:
        raise BatchTooLarge(f"at most {FIND_LIMIT_MAX} messages can be listed at a time")


def resumed(selection: Selection, after: TimelinePosition | None) -> Selection:
    """The selection from this position on, so that stores need not read what was listed before."""
    if after is None or after.due_ms <= selection.start_ms:
        return selection
    return selection._replace(start_ms=after.due_ms)


def bar_width_ms(selection: Selection, bars: int) -> int:
    """The width of one bar of a histogram over the selection's range; the last bar may reach beyond the end."""
    if not 1 <= bars <= HISTOGRAM_BARS_MAX:
        raise BatchTooLarge(f"a histogram has 1 to {HISTOGRAM_BARS_MAX} bars, not {bars}")
    return max(1, -(-(selection.end_ms - selection.start_ms) // bars))


def bar_ranges(selection: Selection, now_ms: int, bars: int) -> list[tuple[int, int]]:
    """The due times [from, to) of each bar, limited to those that messages of the selected status can have.

    The range of a bar without such due times is empty.
    """
    width_ms = bar_width_ms(selection, bars)
    low, high = selection.start_ms, selection.end_ms
    if selection.status is MessageStatus.AVAILABLE:
        high = min(high, now_ms + 1)
    elif selection.status is not None:
        low = max(low, now_ms + 1)
    starts = [selection.start_ms + index * width_ms for index in range(bars)]
    return [(max(low, start), min(high, start + width_ms)) for start in starts]


def selected(message: TimedMessage, selection: Selection, now_ms: int) -> bool:
    """Whether the message is in the selection."""
    if not selection.start_ms <= message.due_ms < selection.end_ms:
        return False
    if selection.status is not None and status_of(message.due_ms, message.holder, now_ms) is not selection.status:
        return False
    if selection.buckets is not None and not any(low <= message.bucket <= high for low, high in selection.buckets):
        return False
    return selection.ids is None or message.id in selection.ids


def within_bytes(messages: Iterable[TimedMessage]) -> Iterator[TimedMessage]:
    """The messages whose bodies fit into one result; at least the first."""
    total = 0
    for message in messages:
        total += message.size
        if total > FIND_BYTES_MAX and total > message.size:
            return
        yield message


def first_bodies(messages: Iterable[TimedMessage], bytes_max: int) -> Iterator[TimedMessage]:
    """The messages, from the first one on with the bodies that fit; the first has its body in any case."""
    total = 0
    for place, message in enumerate(messages):
        total += message.size
        yield message if total <= bytes_max or place == 0 else message._replace(body=None)


def check_new(messages: Sequence[NewMessage], body_bytes_max: int) -> None:
    """Reject the whole batch when one of its messages is invalid, before anything is written."""
    if len(messages) > BATCH_MESSAGES_MAX:
        raise BatchTooLarge(f"{len(messages)} messages in one batch; at most {BATCH_MESSAGES_MAX}")
    if sum(len(message.body) for message in messages) > BATCH_BYTES_MAX:
        raise BatchTooLarge(f"the bodies of one batch have more than {BATCH_BYTES_MAX} bytes")
    for message in messages:
        check_id(message.id)
        check_group(message.group)
        check_due(message.due_ms)
        if len(message.body) > body_bytes_max:
            raise BodyTooLarge(f"message {message.id!r}: {len(message.body)} bytes; at most {body_bytes_max}")
        if message.key is not None and len(message.key) > KEY_BYTES_MAX:
            raise BodyTooLarge(f"message {message.id!r}: the key has more than {KEY_BYTES_MAX} bytes")
