"""Expressions and panels that several dashboards need."""

from tidemill.cli.monitoring.grafana import Panel, PanelQuery, Thresholds

RATE = "[$__rate_interval]"
ANY, SOME = Thresholds(critical=1), Thresholds(warning=1)
"""Panels that are red, or yellow, when there is anything to count."""
_SMALL = 4


def rate_of(by: str, counter: str, scope: str) -> str:
    """The rate of a counter, summed by labels."""
    return f"sum by ({by}) (rate({counter}{{{scope}}}{RATE}))"


def quantile_of(share: str, by: str, histogram: str, scope: str) -> str:
    """The value that this share of a histogram is below."""
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({histogram}_bucket{{{scope}}}{RATE})))"


def number(title: str, description: str, expr: str, thresholds: Thresholds, unit: str = "short") -> Panel:
    """A panel with one number."""
    return Panel(title, description, (PanelQuery(expr, title),), unit, "stat", _SMALL, 4, thresholds)
