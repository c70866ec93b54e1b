"""The statistics of a broker's timelines, for metrics, the console and the benchmarks.

A histogram has fixed bounds, so counting costs one bisection and its size never grows. Prometheus reads it as it is.
There is one number per timeline and operation.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

LATENESS_BOUNDS_MS = (1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0, 60_000.0)


@dataclass(slots=True)
class Histogram:
    """Counts between fixed bounds; the last one is everything beyond."""

    bounds: tuple[float, ...] = LATENESS_BOUNDS_MS
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    count: int = 0
    largest: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count one value."""
        self.add_all([value])

    def add_all(self, values: Sequence[float]) -> None:
        """Count some values."""
        counts, bounds = self.counts, self.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.total += sum(values)
        self.count += len(values)
        self.largest = max(self.largest, *values, 0.0)


@dataclass(slots=True)
class TimelineStats:
    """The statistics of one timeline since the broker started."""

    messages: Counter[str] = field(default_factory=Counter)
    """By operation: scheduled, cancelled, moved, leased, extended, released, completed, dead."""
    errors: Counter[str] = field(default_factory=Counter)
    """Rejected operations, by the class of the error."""
    leased_bytes: int = 0
    lateness: Histogram = field(default_factory=Histogram)
    """First deliveries only: how long after its due time a message was pushed, in milliseconds."""
    wakeup: Histogram = field(default_factory=Histogram)
    """How late the dispatcher's own timer fired, in milliseconds."""

    def leased(self, count: int, size_bytes: int, late_ms: Sequence[float]) -> None:
        """Count pushed leases, the bytes of their bodies, and the lateness of the first deliveries among them."""
        self.messages["leased"] += count
        self.leased_bytes += size_bytes
        if late_ms:
            self.lateness.add_all(late_ms)
