"""Which of its two formats `/metrics` sends, from what a scraper accepts."""

from enum import Enum


class MetricsFormat(Enum):
    """A format. The value is its content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_OPENMETRICS_RANGE, _OPENMETRICS_VERSION = "application/openmetrics-text", "1.0.0"
_PROMETHEUS_RANGES = ("text/plain", "text/*", "*/*")


def metrics_format(accept: str) -> MetricsFormat:
    """The format that an Accept header prefers. OpenMetrics only for a scraper that names it with our version."""
    openmetrics = prometheus = 0.0
    for entry in accept.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        values = dict(part.split("=", 1) for part in parameters if "=" in part)
        if name == _OPENMETRICS_RANGE and values.get("version", _OPENMETRICS_VERSION) == _OPENMETRICS_VERSION:
            openmetrics = max(openmetrics, _quality(values.get("q", "1")))
        elif name in _PROMETHEUS_RANGES:
            prometheus = max(prometheus, _quality(values.get("q", "1")))
    is_preferred = openmetrics > 0 and openmetrics >= prometheus
    return MetricsFormat.OPENMETRICS if is_preferred else MetricsFormat.PROMETHEUS


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
