"""Renders templates, with escaping always on and the filters that all pages share."""

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tidemill.servers.http.console import charts, quantities
from tidemill.servers.http.console.static import static_path
from tidemill.servers.http.core.visible_text import visible_parts


def segment(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")


def with_query(query: Mapping[str, Any], **changes: Any) -> str:
    """The query of this page with some fields changed; None removes a field."""
    fields = {name: value for name, value in {**query, **changes}.items() if value is not None}
    return f"?{urlencode(fields)}"


def visible(text: str) -> Markup:
    """A text of a user, with the names of characters that are not seen or that change how others are seen."""
    return Markup("").join(
        Markup('<b class="hidden-char">{}</b>').format(part.text) if part.is_name else part.text
        for part in visible_parts(text)
    )


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
        "exact_time": quantities.exact_time_text,
        "segment": segment,
        "visible": visible,
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
