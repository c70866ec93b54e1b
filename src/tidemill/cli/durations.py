"""Parses times and durations: `5s`, `2h30m`, `2026-12-24T18:00:00Z`, epoch milliseconds."""

import re
import time
from datetime import UTC, datetime

from tidemill.cli.errors import WrongUse

TEXT_CHARS_MAX = 40
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def duration_ms(text: str) -> int:
    """Parse `90s`, `1h30m` or `250ms` into milliseconds."""
    compact = text.replace(" ", "")
    parts = _PART.findall(compact)
    if len(compact) > TEXT_CHARS_MAX or not parts or "".join(number + unit for number, unit in parts) != compact:
        raise WrongUse(f"{text[:TEXT_CHARS_MAX]!r} is not a duration; write for example 250ms, 5s, 1h30m, 2d")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def moment_ms(text: str, *, now_ms: int | None = None) -> int:
    """Parse a time into epoch milliseconds: ISO 8601 (UTC by default), milliseconds, `now`, or a duration ago."""
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if text == "now":
        return now
    if text.isdecimal() and len(text) <= TEXT_CHARS_MAX:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        try:
            return now - duration_ms(text.removesuffix("ago").strip())
        except WrongUse:
            wrong = f"{text[:TEXT_CHARS_MAX]!r} is not a time; write for example 2026-12-24T18:00:00Z, or 15m ago"
            raise WrongUse(wrong) from None
