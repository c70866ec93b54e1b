"""The metric type that all parts of a broker report: a name, a help text, a value and labels."""

from typing import NamedTuple


class Gauge(NamedTuple):
    """A value that is read when metrics are scraped."""

    name: str
    doc: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()
