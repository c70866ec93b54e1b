"""Recurring messages: the rule, and when the next occurrence is due.

A recurring message is one message that is due again and again. When an occurrence is completed, the store gives the
same message its next due time, in the transaction of the completion. So there is exactly one next occurrence whenever
the process dies, and the id of the message stays the id of its schedule.

Times of a cron expression are computed from the time of the last occurrence and the time of its completion, both of
which are arguments. The rules of time zones are data: tables that Python reads once for each zone. Brokers with
different tables may disagree, so replicas do not compute: the journal has the due time that the leader computed.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tidemill.timelines.core.errors import BadRecurrence, StoreCorrupt
from tidemill.timelines.core.message import DUE_MS_MAX, check_due

CRON_CHARS_MAX = 200
ZONE_CHARS_MAX = 100
EVERY_MS_MIN = 1_000
EVERY_MS_MAX = 10 * 366 * 86_400_000
COUNT_MAX = 1_000_000_000
MISSED_AFTER_MS = 60_000
"""An occurrence that is not delivered until so long after its time was missed."""
MISSED_MAX = 100
"""With the policy `all`, the newest missed occurrences that are delivered; earlier ones are skipped."""
ZONES_CACHED = 256
UTC_NAME = "UTC"

_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class MissedPolicy(Enum):
    """What happens to occurrences whose time has passed before they could be delivered."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Recurrence(NamedTuple):
    """When a message is due again: at the times of a cron expression in a zone, or after a fixed interval."""

    cron: str = ""
    zone: str = UTC_NAME
    every_ms: int = 0
    missed: MissedPolicy = MissedPolicy.ONCE
    start_ms: int = 0
    """Occurrences of an interval are counted from here."""
    until_ms: int = 0
    """No occurrence is due after this time; 0: without end."""
    left: int = 0
    """The number of occurrences, with the one that is scheduled now; 0: without end."""

    def to_text(self) -> str:
        """The recurrence as the stores keep it: the fields that differ from their defaults."""
        values = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        if "missed" in values:
            values["missed"] = self.missed.value
        return json.dumps(values, separators=(",", ":"))


class Occurrence(NamedTuple):
    """The time of an occurrence, and the recurrence that is left from it on."""

    due_ms: int
    recurrence: Recurrence


def recurrence_from(text: str) -> Recurrence:
    """The recurrence of `to_text`."""
    try:
        values = json.loads(text)
        return Recurrence(**{**values, "missed": MissedPolicy(values.get("missed", MissedPolicy.ONCE.value))})
    except (ValueError, TypeError, AttributeError):
        raise StoreCorrupt("the recurrence of a message cannot be read; run the newest version") from None


def missed_policy(name: str) -> MissedPolicy:
    """The policy of this name; an empty one is the default."""
    try:
        return MissedPolicy(name or MissedPolicy.ONCE.value)
    except ValueError:
        known = ", ".join(one.value for one in MissedPolicy)
        raise BadRecurrence(f"missed occurrences: {name[:40]!a} is not one of {known}") from None


def first_occurrence(recurrence: Recurrence, not_before_ms: int, now_ms: int) -> Occurrence:
    """Check a recurrence as a producer sends it, and compute its first occurrence.

    It is due after now and not before `not_before_ms` (0: not given). An interval begins there, or else one interval
    from now.
    """
    _check(recurrence)
    check_due(not_before_ms)
    started = recurrence._replace(cron=_SHORTHANDS.get(recurrence.cron.lower(), recurrence.cron))
    if recurrence.every_ms:
        started = started._replace(start_ms=not_before_ms or now_ms)
    due_ms = next(_times(started, max(now_ms, not_before_ms - 1)), None)
    if due_ms is None:
        raise BadRecurrence(f"{described(recurrence)} has no occurrence in the next 50 years; check day and month")
    if recurrence.until_ms and due_ms > recurrence.until_ms:
        raise BadRecurrence(f"{described(recurrence)} has no occurrence until its end; choose a later end")
    return Occurrence(due_ms, started)


def next_occurrence(recurrence: Recurrence, scheduled_ms: int, now_ms: int) -> Occurrence | None:
    """The occurrence after the one of `scheduled_ms`, which is over at `now_ms`; None after the last one."""
    if recurrence.left == 1:
        return None
    due_ms = _next_ms(recurrence, scheduled_ms, now_ms)
    if due_ms is None or due_ms > DUE_MS_MAX or (recurrence.until_ms and due_ms > recurrence.until_ms):
        return None
    return Occurrence(due_ms, recurrence._replace(left=max(0, recurrence.left - 1)))


def was_missed(recurrence: Recurrence, scheduled_ms: int, now_ms: int) -> bool:
    """Whether an occurrence that nothing has delivered yet is passed over for the next one of its policy."""
    if recurrence.missed is MissedPolicy.ALL or now_ms - scheduled_ms <= MISSED_AFTER_MS:
        return False
    if recurrence.missed is MissedPolicy.SKIP:
        return True
    later_ms = next(_times(recurrence, scheduled_ms), None)
    return later_ms is not None and later_ms <= now_ms and not 0 < recurrence.until_ms < later_ms


def described(recurrence: Recurrence) -> str:
    """The rule in a few words, for people."""
    if recurrence.cron:
        return f"cron {recurrence.cron[:CRON_CHARS_MAX]!a} in {recurrence.zone[:ZONE_CHARS_MAX]}"
    return f"every {recurrence.every_ms} ms"


def _check(recurrence: Recurrence) -> None:
    if bool(recurrence.cron) == bool(recurrence.every_ms):
        raise BadRecurrence("a recurrence has either a cron expression or an interval")
    if recurrence.every_ms and not EVERY_MS_MIN <= recurrence.every_ms <= EVERY_MS_MAX:
        raise BadRecurrence(f"an interval is {EVERY_MS_MIN} to {EVERY_MS_MAX} ms, not {recurrence.every_ms} ms")
    if recurrence.every_ms and recurrence.zone != UTC_NAME:
        raise BadRecurrence("an interval has no time zone: it is the same duration everywhere; use a cron expression")
    if not 0 <= recurrence.left <= COUNT_MAX:
        raise BadRecurrence(f"the number of occurrences is 1 to {COUNT_MAX}, not {recurrence.left}")
    if not 0 <= recurrence.until_ms <= DUE_MS_MAX:
        raise BadRecurrence(f"the end {recurrence.until_ms} ms is not between 1970 and the year 9999")
    _zone(recurrence.zone)
    if recurrence.cron:
        _check_cron(recurrence.cron)


def _check_cron(cron: str) -> None:
    if len(cron) > CRON_CHARS_MAX or not cron.isascii() or not cron.isprintable():
        raise BadRecurrence(f"a cron expression has at most {CRON_CHARS_MAX} characters of ASCII")
    try:
        CronSim(_SHORTHANDS.get(cron.lower(), cron), datetime.fromtimestamp(0, UTC))
    except (CronSimError, ValueError, AssertionError) as error:
        raise BadRecurrence(
            f"cron expression {cron!r}: {str(error) or 'it cannot be read'};"
            " write minute hour day-of-month month day-of-week, for example '0 9 * * 1-5'"
        ) from None


@lru_cache(maxsize=ZONES_CACHED)
def _zone(name: str) -> tzinfo:
    if name == UTC_NAME:
        return UTC
    try:
        if len(name) <= ZONE_CHARS_MAX and _ZONE.fullmatch(name):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # a directory of zones is an OSError
        pass
    raise BadRecurrence(f"time zone {name[:ZONE_CHARS_MAX]!a} is unknown; use a name such as Europe/Berlin or UTC")


def _next_ms(recurrence: Recurrence, scheduled_ms: int, now_ms: int) -> int | None:
    over_ms = min(now_ms, recurrence.until_ms or now_ms)
    match recurrence.missed:
        case MissedPolicy.SKIP:
            return next(_times(recurrence, max(scheduled_ms, now_ms)), None)
        case MissedPolicy.ONCE:
            newest_ms = next(_times_before(recurrence, scheduled_ms, over_ms), None)
            return newest_ms or next(_times(recurrence, max(scheduled_ms, now_ms)), None)
        case MissedPolicy.ALL:
            missed = list(islice(_times_before(recurrence, scheduled_ms, over_ms), MISSED_MAX))
            return missed[-1] if missed else next(_times(recurrence, scheduled_ms), None)


def _times(recurrence: Recurrence, after_ms: int) -> Iterator[int]:
    """The times after this one, the first one first."""
    if recurrence.every_ms:
        steps = (after_ms - recurrence.start_ms) // recurrence.every_ms + 1
        due_ms = recurrence.start_ms + max(0 if after_ms < recurrence.start_ms else 1, steps) * recurrence.every_ms
        while due_ms <= DUE_MS_MAX:
            yield due_ms
            due_ms += recurrence.every_ms
        return
    yield from (due_ms for due_ms in _cron_times(recurrence, after_ms, reverse=False) if due_ms > after_ms)


def _times_before(recurrence: Recurrence, after_ms: int, until_ms: int) -> Iterator[int]:
    """The times after the first and up to the second one, the last one first."""
    if until_ms <= after_ms:
        return
    if recurrence.every_ms:
        due_ms = until_ms - (until_ms - recurrence.start_ms) % recurrence.every_ms
        while due_ms > max(after_ms, recurrence.start_ms):
            yield due_ms
            due_ms -= recurrence.every_ms
        return
    for due_ms in _cron_times(recurrence, until_ms + 1, reverse=True):
        if due_ms <= after_ms:
            return
        if due_ms <= until_ms:
            yield due_ms


def _cron_times(recurrence: Recurrence, from_ms: int, *, reverse: bool) -> Iterator[int]:
    """The times of a cron expression, from about this one on: in a repeated hour they may begin on the other side."""
    start = datetime.fromtimestamp(from_ms // 1_000, UTC).replace(microsecond=from_ms % 1_000 * 1_000)
    try:
        for time in CronSim(recurrence.cron, start.astimezone(_zone(recurrence.zone)), reverse=reverse):
            yield int(time.timestamp()) * 1_000
    except (OverflowError, ValueError):  # beyond the year 9999, or before the year 1
        return
