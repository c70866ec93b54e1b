"""Values of settings for people: durations and sizes next to the numbers that the settings have."""

from tidemill.model.topic_settings import INT32_MAX, INT64_MAX
from tidemill.servers.http.console.quantities import duration_text, size_text

UNLIMITED = frozenset({-1, INT64_MAX})


def readable_value(name: str, value: str | None) -> str:
    """The value of a setting with a unit; empty where the value is readable as it is."""
    if value is None or not name.endswith((".ms", ".bytes")):
        return ""
    try:
        number = int(value)
    except ValueError:
        return ""
    if number in UNLIMITED:
        return "unlimited"
    if number < 0:
        return ""
    if name.endswith(".ms"):
        return duration_text(number / 1000)
    return "unlimited" if number == INT32_MAX else size_text(number)
