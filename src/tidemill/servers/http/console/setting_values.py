"""Values of settings for people: durations and sizes next to the numbers that the settings have."""

from tidemill.model.topic_settings import INT64_MAX
from tidemill.servers.http.console.quantities import duration_text, size_text


def readable_value(name: str, value: str | None) -> str:
    """The value of a setting with a unit; empty where the value is readable as it is."""
    if value == str(INT64_MAX):
        return "unlimited"
    if value is None or not name.endswith((".ms", ".bytes")):
        return ""
    if value == "-1":
        return "unlimited"
    if not (value.isascii() and value.isdigit()):
        return ""
    return duration_text(int(value) / 1000) if name.endswith(".ms") else size_text(int(value))
