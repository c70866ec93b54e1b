"""A message on a timeline: where it stands, what it carries, and the three states it can be in.

The state is never stored. It follows from the position on the timeline (`due_ms`), the holder and the time of asking:

    due_ms <= now                 available   (a holder left over here is one whose lease ran out)
    due_ms >  now, no holder      waiting
    due_ms >  now, a holder       leased      (due_ms is the end of the lease)

so that nothing has to run for a message to fall due or for a lease to end. `seq` is the store's own number of a
message, given once and never again; `version` grows with each change. Together they name one state of one message,
also when a message of the same natural id was completed and scheduled anew in the meantime.
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
FIND_BYTES_MAX = 32 * 1024 * 1024  # of bodies in one answer; a first larger one comes alone
HISTOGRAM_BARS_MAX = 10_000


class MessageStatus(Enum):
    """The state of a message at a given time."""

    WAITING = "waiting"
    AVAILABLE = "available"
    LEASED = "leased"


class NewMessage(NamedTuple):
    """A message to be scheduled. The id and the bucket are drawn by the caller, unless the producer gave an id."""

    id: str
    due_ms: int
    body: bytes
    bucket: int
    key: bytes | None = None
    group: str = ""


class Scheduled(NamedTuple):
    """The answer for one scheduled message; for a duplicate, the place of the message that was there before."""

    id: str
    seq: int
    version: int
    due_ms: int
    duplicate: bool
    scheduled_ms: int  # the due time that the producer asked for last; `due_ms` is the end of a lease where one is live


class TimedMessage(NamedTuple):
    """A message as the store keeps it. `body` is None unless it was asked for; `size` is its length in bytes."""

    seq: int
    id: str
    due_ms: int  # the position on the timeline; while leased, the end of the lease
    scheduled_ms: int  # the due time that the producer asked for last; lateness is measured from here
    bucket: int
    group: str
    holder: str | None
    token: int  # the version at which the last lease was taken; 0 before the first
    version: int
    attempts: int  # leases taken so far
    size: int
    key: bytes | None
    body: bytes | None = None


class TimelinePosition(NamedTuple):
    """A point in the order of a timeline; `find` goes on after it."""

    due_ms: int
    seq: int


class Selection(NamedTuple):
    """Which messages `find` and `tally` look at: due times in [start_ms, end_ms), and what else is given."""

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
    """Refuse a due time that no calendar has. A past one is fine: it is delivered now."""
    if not 0 <= due_ms <= DUE_MS_MAX:
        raise BadDueTime(f"due time {due_ms} ms is not between 1970 and the year 9999")


def check_id(message_id: str) -> None:
    """Refuse an id that could not be typed, printed or stored by each of the stores."""
    if not message_id or len(message_id) > ID_CHARS_MAX or not message_id.isprintable():
        shown = ascii(message_id[:40])
        raise BadMessageId(f"message id {shown} must have 1 to {ID_CHARS_MAX} printable characters")


def check_group(group: str) -> None:
    """Refuse a producer group that could not be stored."""
    if len(group) > GROUP_CHARS_MAX or not group.isprintable():
        raise BadMessageId(f"a producer group must have at most {GROUP_CHARS_MAX} printable characters")


def check_find(selection: Selection, limit: int) -> None:
    """Refuse a listing without an end."""
    if limit > FIND_LIMIT_MAX or len(selection.ids or ()) > BATCH_MESSAGES_MAX:
        raise BatchTooLarge(f"at most {FIND_LIMIT_MAX} messages can be listed at a time")


def resumed(selection: Selection, after: TimelinePosition | None) -> Selection:
    """The selection from the place on: stores look up the first due time, and need not walk what was listed before."""
    if after is None or after.due_ms <= selection.start_ms:
        return selection
    return selection._replace(start_ms=after.due_ms)


def bar_width_ms(selection: Selection, bars: int) -> int:
    """The width of one bar of a histogram over the selection's range; the last bar may reach beyond the end."""
    if not 1 <= bars <= HISTOGRAM_BARS_MAX:
        raise BatchTooLarge(f"a histogram has 1 to {HISTOGRAM_BARS_MAX} bars, not {bars}")
    return max(1, -(-(selection.end_ms - selection.start_ms) // bars))


def bar_ranges(selection: Selection, now_ms: int, bars: int) -> list[tuple[int, int]]:
    """The due times [from, to) of each bar that messages of the selection can have, as far as their state goes by time.

    The ranges of bars that can have none are empty.
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
    """Whether the message is one of the selection."""
    if not selection.start_ms <= message.due_ms < selection.end_ms:
        return False
    if selection.status is not None and status_of(message.due_ms, message.holder, now_ms) is not selection.status:
        return False
    if selection.buckets is not None and not any(low <= message.bucket <= high for low, high in selection.buckets):
        return False
    return selection.ids is None or message.id in selection.ids


def within_bytes(messages: Iterable[TimedMessage]) -> Iterator[TimedMessage]:
    """The messages as far as their bodies fit into one answer; the first in any case."""
    total = 0
    for message in messages:
        total += message.size
        if total > FIND_BYTES_MAX and total > message.size:
            return
        yield message


def check_new(messages: Sequence[NewMessage], body_bytes_max: int) -> None:
    """Refuse the whole batch when one of its messages cannot be kept, before anything is written."""
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
