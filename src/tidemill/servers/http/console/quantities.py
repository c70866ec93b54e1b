"""Numbers, sizes, rates and times as text for people."""

from datetime import UTC, datetime

KILO = 1024
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SHORT = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_DURATIONS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_MINUTE_S = 60.0
NO_TIME_MS = -1
"""What Kafka's clients give a record that has no time."""


def size_text(size: float | None) -> str:
    """A size such as `3.4 MiB`."""
    if size is None:
        return "unknown"
    value = float(size)
    for unit in UNITS[:-1]:
        if abs(value) < KILO:
            return f"{value:.0f} {unit}" if unit == UNITS[0] else f"{value:.1f} {unit}"
        value /= KILO
    return f"{value:.1f} {UNITS[-1]}"


def number_text(value: float | None) -> str:
    """A number with separators; `unknown` for None."""
    return "unknown" if value is None else f"{value:,}"


def short_text(value: float | None) -> str:
    """A number of at most three digits and a letter, such as `12.3k`."""
    if value is None:
        return "unknown"
    for size, letter in _SHORT:
        if abs(value) >= size:
            return f"{_three_digits(value / size)}{letter}"
    return _three_digits(value)


def rate_text(value: float | None) -> str:
    """A number per second."""
    return "unknown" if value is None else f"{short_text(value)}/s"


def size_rate_text(value: float | None) -> str:
    """A size per second."""
    return "unknown" if value is None else f"{size_text(value)}/s"


def duration_text(seconds: float | None) -> str:
    """A duration with one unit, such as `1.5 ms` or `3 min`."""
    if seconds is None:
        return "unknown"
    if abs(seconds) < 1:
        return "0 s" if seconds == 0 else f"{_three_digits(seconds * 1000)} ms"
    if abs(seconds) < _MINUTE_S:
        return f"{_three_digits(seconds)} s"
    size, unit = next((size, unit) for size, unit in _DURATIONS if abs(seconds) >= size)
    # With one decimal while it counts: 36 hours are 1.5 days, not 2.
    return f"{_three_digits(round(seconds / size, 1))} {unit}"


def share_text(share: float | None) -> str:
    """A share as percent."""
    return "unknown" if share is None else f"{_three_digits(share * 100)} %"


def time_text(time_ms: int | None) -> str:
    """A time in UTC, to the second; `-` for None."""
    if time_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a time that a client has made up
        return f"{time_ms} ms"


def exact_time_text(time_ms: int) -> str:
    """A time in UTC, to the millisecond; `none` for a record without a time."""
    if time_ms == NO_TIME_MS:
        return "none"
    text = time_text(time_ms)
    return text if text.endswith("ms") else f"{text}.{time_ms % 1000:03d}"


def time_input(time_ms: int) -> str:
    """A time as a field for times has it; empty if no field can have it."""
    text = time_text(time_ms)
    return "" if text.endswith("ms") else f"{text.replace(' ', 'T')}.{time_ms % 1000:03d}"


def _three_digits(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


TEXTS = {
    "count": short_text,
    "rate": rate_text,
    "bytes": size_text,
    "byte_rate": size_rate_text,
    "seconds": duration_text,
    "share": share_text,
}
"""How the values of a chart are shown, by the name of their unit."""
