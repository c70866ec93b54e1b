"""Expressions and panels that several dashboards need."""

from tidemill.cli.monitoring.grafana import SCOPE, Panel, PanelQuery, Thresholds

RATE = "[$__rate_interval]"
ANY, SOME = Thresholds(critical=1), Thresholds(warning=1)
"""Panels that are red, or yellow, when there is anything to count."""
_SMALL = 4


def rate_of(by: str, counter: str, scope: str) -> str:
    """The rate of a counter, summed by labels."""
    return f"sum by ({by}) (rate({counter}{{{scope}}}{RATE}))"


def sum_of(by: str, gauge: str, scope: str) -> str:
    """A gauge, summed by labels."""
    return f"sum by ({by}) ({gauge}{{{scope}}})"


def max_of(by: str, gauge: str, scope: str) -> str:
    """The largest value of a gauge, by labels."""
    return f"max by ({by}) ({gauge}{{{scope}}})"


def min_of(gauge: str) -> str:
    """The smallest value of a gauge of each broker that is chosen."""
    return f"min by (instance) ({gauge}{{{SCOPE}}})"


def quantile_of(share: str, by: str, histogram: str, scope: str) -> str:
    """The value that this share of a histogram is below."""
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({histogram}_bucket{{{scope}}}{RATE})))"


def graph(title: str, description: str, expr: str, legend: str, unit: str = "short") -> Panel:
    """A panel with one query over time."""
    return Panel(title, description, (PanelQuery(expr, legend),), unit)


def number(title: str, description: str, expr: str, thresholds: Thresholds, unit: str = "short") -> Panel:
    """A panel with one number."""
    return Panel(title, description, (PanelQuery(expr, title),), unit, "stat", _SMALL, 4, thresholds)
