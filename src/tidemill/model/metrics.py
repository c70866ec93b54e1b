"""The metric types that all parts of a broker report: a gauge, a counter and a histogram, each with its labels.

A part of the broker counts in plain attributes. It makes these values only when metrics are scraped.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]
SECONDS_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds for durations of requests, of the disk and of the event loop."""


@dataclass(slots=True)
class Histogram:
    """Counts between fixed bounds; the last one is everything beyond. Counting costs one bisection."""

    bounds: tuple[float, ...] = SECONDS_BOUNDS
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    largest: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        if value > self.largest:  # noqa: PLR1730 -- a third of the cost of max(), for every request
            self.largest = value

    def add_all(self, values: list[float]) -> None:
        """Count many values, which are sorted for that: it costs less than to look for the bounds of each."""
        values.sort()
        start = 0
        for index, bound in enumerate(self.bounds):
            end = bisect_right(values, bound, start)
            self.counts[index] += end - start
            start = end
        self.counts[-1] += len(values) - start
        self.total += sum(values)
        self.largest = max(self.largest, values[-1])

    def add_equal(self, value: float, count: int) -> None:
        """Count a value so many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count
        self.largest = max(self.largest, value)


class NetworkTraffic:
    """What is exchanged with partners of one kind: bytes, and the time that a round trip takes."""

    __slots__ = ("bytes_in", "bytes_out", "latency")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.latency = Histogram()


class Gauge(NamedTuple):
    """A value that can fall again."""

    name: str
    doc: str
    value: float
    labels: Labels = ()


class CounterReading(NamedTuple):
    """A count since the broker started. The name has no `_total`; Prometheus text adds it."""

    name: str
    doc: str
    value: float
    labels: Labels = ()


class HistogramReading(NamedTuple):
    """The counts of a histogram since the broker started, in base units."""

    name: str
    doc: str
    histogram: Histogram
    labels: Labels = ()


MetricReading = Gauge | CounterReading | HistogramReading
