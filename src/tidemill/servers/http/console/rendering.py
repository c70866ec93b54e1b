"""Renders templates, with escaping always on and the filters that all pages share."""

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from tidemill.servers.http.console import charts, quantities
from tidemill.servers.http.console.static import static_path


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
    made.filters |= {
        "size": quantities.size_text,
        "number": quantities.number_text,
        "short": quantities.short_text,
        "rate": quantities.rate_text,
        "size_rate": quantities.size_rate_text,
        "duration": quantities.duration_text,
        "share": quantities.share_text,
        "time": quantities.time_text,
        "segment": segment,
    }
    made.globals |= {
        "with_query": with_query,
        "static": static_path,
        "line_chart": charts.line_chart,
        "bar_chart": charts.bar_chart,
        "sparkline": charts.sparkline,
        "meter": charts.meter,
    }
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    """The document of a template."""
    return _environment().get_template(template).render(values)
