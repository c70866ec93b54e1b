"""Renders templates, with escaping always on and the filters that all pages share."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from tidemill.servers.http.console.static import static_path

KILO = 1024
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(size: float | None) -> str:
    """A size such as `3.4 MiB`."""
    if size is None:
        return "unknown"
    value = float(size)
    for unit in UNITS[:-1]:
        if value < KILO:
            return f"{value:.0f} {unit}" if unit == UNITS[0] else f"{value:.1f} {unit}"
        value /= KILO
    return f"{value:.1f} {UNITS[-1]}"


def number_text(value: float | None) -> str:
    """A number with separators; `unknown` for None."""
    return "unknown" if value is None else f"{value:,}"


def time_text(time_ms: int | None) -> str:
    """A time in UTC, to the second; `-` for None."""
    if time_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a time that a client has made up
        return f"{time_ms} ms"


def segment(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")


def with_query(query: Mapping[str, Any], **changes: Any) -> str:
    """The query of this page with some fields changed; None removes a field."""
    fields = {name: value for name, value in {**query, **changes}.items() if value is not None}
    return f"?{urlencode(fields)}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("tidemill.servers.http.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"size": size_text, "number": number_text, "time": time_text, "segment": segment}
    made.globals |= {"with_query": with_query, "static": static_path}
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    """The document of a template."""
    return _environment().get_template(template).render(values)
