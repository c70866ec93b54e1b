"""The headers that say when a record is delivered: our own, and those of other systems that a topic accepts.

A record waits when it has a delivery time, a delay or a recurrence. The names of other systems are translated to ours
first, and a record that has both follows ours. All values are text; a wrong one is refused, never ignored.
"""

import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from tidemill.model.timeline_errors import BadDueTime, BadRecurrence, ClockInDoubt
from tidemill.timelines.core.recurrence import (
    UTC_NAME,
    Occurrence,
    Recurrence,
    first_occurrence,
    missed_policy,
)

DELIVER_AT = "tidemill-deliver-at"
DELAY_MS = "tidemill-delay-ms"
CRON = "tidemill-cron"
EVERY_MS = "tidemill-every-ms"
ZONE = "tidemill-zone"
MISSED = "tidemill-missed"
UNTIL = "tidemill-until"
COUNT = "tidemill-count"
SCHEDULE_ID = "tidemill-schedule-id"
CANCEL = "tidemill-cancel"
MOVE_TO = "tidemill-move-to"
SPECIAL = frozenset({DELIVER_AT, DELAY_MS, CRON, EVERY_MS, CANCEL, MOVE_TO})
"""A record with one of these is not stored now."""

NO_ALIAS = "none"
NATS_SCHEDULE = "Nats-Schedule"
NATS_ZONE = "Nats-Schedule-Time-Zone"
ALIASES = {
    "__STARTDELIVERTIME": DELIVER_AT,
    "__kafka_delay_timestamp": DELIVER_AT,
    "x-delay": DELAY_MS,
}
"""Headers of RocketMQ, of the discussion of KIP-1277, and of RabbitMQ whose values mean the same as ours."""
AT, DELAY, SCHEDULE = "AT", "DELAY", "SCHEDULE"
"""Headers of schedulers next to Kafka, which read a topic of waiting records and write to `DESTINATION_TOPIC`."""
DESTINATION_TOPIC = "DESTINATION_TOPIC"
TEXT_ALIASES = frozenset({NATS_SCHEDULE, AT, DELAY, SCHEDULE})
"""Headers of other systems whose values have forms of their own."""

DUE_MS_MAX = 253_402_300_799_999
DIGITS_MAX = 18
TEXT_BYTES_MAX = 300
"""The longest value of a header that is text."""
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(h|ms|m|s)")
_UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

Headers = dict[str, bytes | None]


class DeliveryTime(NamedTuple):
    """When a record is due, and the recurrence that is left from then on; empty for a record that is due once."""

    due_ms: int
    rule: str = ""


class WrongHeader(Exception):
    """A header whose value cannot be used."""


def accepted_aliases(listed: Iterable[str]) -> frozenset[str]:
    """The headers of other systems in the setting of a topic."""
    return frozenset(listed) - {NO_ALIAS}


def is_special(names: Iterable[str], aliases: Collection[str]) -> bool:
    """Whether a record with these headers waits, cancels or moves."""
    return any(name in SPECIAL or name in aliases for name in names)


def own_headers(headers: Iterable[tuple[str, bytes | None]], aliases: Collection[str], topic: str) -> Headers:
    """The headers by name, with those of other systems that the topic accepts under our names."""
    own = dict(headers)
    if not aliases or not SPECIAL.isdisjoint(own):
        return own
    for name in aliases:
        if name not in own:
            continue
        if name == NATS_SCHEDULE:
            own |= _of_nats(own)
        elif name in TEXT_ALIASES:
            own |= _of_scheduler(own, name, topic)
        else:
            own[ALIASES[name]] = own[name]
    return own


def delivery_time(headers: Headers, now_ms: int | None) -> DeliveryTime:
    """When the record is due. `now_ms` is None while the clock is in doubt and nothing can be counted from it."""
    recurs = CRON in headers or EVERY_MS in headers
    if DELIVER_AT in headers:
        due_ms = number_of(headers, DELIVER_AT)
    elif DELAY_MS in headers:
        delay_ms = number_of(headers, DELAY_MS)
        due_ms = _counted(now_ms, DELAY_MS) + delay_ms
    else:
        due_ms = 0
    if due_ms > DUE_MS_MAX:
        raise WrongHeader("the delivery time is beyond the year 9999")
    if not recurs:
        return DeliveryTime(due_ms)
    try:
        first = _first(headers, due_ms, _counted(now_ms, CRON if CRON in headers else EVERY_MS))
    except (BadRecurrence, BadDueTime) as error:
        raise WrongHeader(str(error)) from None
    return DeliveryTime(first.due_ms, first.recurrence.to_text())


def number_of(headers: Headers, name: str) -> int:
    """The value of a header in milliseconds, or a count."""
    value = headers[name]
    if value is None or not value.isdigit() or len(value) > DIGITS_MAX:
        raise WrongHeader(f"the header {name} is not a number{'' if name == COUNT else ' of milliseconds'}")
    return int(value)


def _first(headers: Headers, not_before_ms: int, now_ms: int) -> Occurrence:
    recurrence = Recurrence(
        cron=_text(headers, CRON),
        zone=_text(headers, ZONE) or UTC_NAME,
        every_ms=number_of(headers, EVERY_MS) if EVERY_MS in headers else 0,
        missed=missed_policy(_text(headers, MISSED)),
        until_ms=number_of(headers, UNTIL) if UNTIL in headers else 0,
        left=number_of(headers, COUNT) if COUNT in headers else 0,
    )
    return first_occurrence(recurrence, not_before_ms, now_ms)


def _counted(now_ms: int | None, name: str) -> int:
    if now_ms is None:
        raise ClockInDoubt(f"the broker's clock is in doubt: no {name} can be counted from it; try again")
    return now_ms


def _text(headers: Headers, name: str) -> str:
    value = headers.get(name, b"")
    if value is None or len(value) > TEXT_BYTES_MAX:
        raise WrongHeader(f"the header {name} has no text, or more than {TEXT_BYTES_MAX} bytes")
    return value.decode("utf-8", "replace")


def _of_nats(headers: Headers) -> Headers:
    """A schedule of NATS: `@at` a time, `@every` duration, a name such as `@daily`, or a cron expression."""
    text = _text(headers, NATS_SCHEDULE)
    kind, _, value = text.partition(" ")
    if kind == "@at":
        return {DELIVER_AT: b"%d" % _instant_ms(value, f"{NATS_SCHEDULE} has no time like @at")}
    if kind == "@every":
        return {EVERY_MS: b"%d" % _duration_ms(value, f"{NATS_SCHEDULE} has no duration like @every")}
    zone = {ZONE: headers[NATS_ZONE]} if NATS_ZONE in headers else {}
    return {CRON: text.encode(), **zone}


def _of_scheduler(headers: Headers, name: str, topic: str) -> Headers:
    """A delay, a time or a cron expression. The record waits in its destination, so it cannot name another topic."""
    destination = _text(headers, DESTINATION_TOPIC) or topic
    if destination != topic:
        raise WrongHeader(f"the header {DESTINATION_TOPIC} names {destination!r}; send the record to that topic")
    text = _text(headers, name)
    if name == SCHEDULE:
        return {CRON: text.encode()}
    if text.isascii() and text.isdigit():
        return {DELIVER_AT if name == AT else DELAY_MS: text.encode()}
    if name == AT:
        return {DELIVER_AT: b"%d" % _instant_ms(text, f"{AT} has no time like 1800000000000 or")}
    return {DELAY_MS: b"%d" % _duration_ms(text, f"{DELAY} has no delay like 5000 or")}


def _instant_ms(text: str, problem: str) -> int:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None or instant.year < 1970:
        raise WrongHeader(f"the header {problem} 2026-12-24T18:00:00Z")
    return max(0, round(instant.astimezone(UTC).timestamp() * 1_000))


def _duration_ms(text: str, problem: str) -> int:
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise WrongHeader(f"the header {problem} 1h30m")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))
