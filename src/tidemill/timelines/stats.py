"""The statistics of a broker's timelines, for metrics, the console and the benchmarks.

There is one number per timeline and operation. Durations are counted in seconds, the unit of the metrics.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill.model.metrics import Histogram

DELAY_BOUNDS_S = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0),
)


def _delays() -> Histogram:
    return Histogram(DELAY_BOUNDS_S)


@dataclass(slots=True)
class TimelineStats:
    """The statistics of one timeline since the broker started."""

    messages: Counter[str] = field(default_factory=Counter)
    """By operation: scheduled, cancelled, moved, leased, extended, released, completed, dead, retried."""
    errors: Counter[str] = field(default_factory=Counter)
    """Rejected operations, by the class of the error."""
    leased_bytes: int = 0
    lateness: Histogram = field(default_factory=_delays)
    """First deliveries only: how long after its due time a message was pushed."""
    wakeup: Histogram = field(default_factory=_delays)
    """How late the dispatcher's own timer fired."""

    def leased(self, count: int, size_bytes: int, late_ms: Sequence[float]) -> None:
        """Count pushed leases, the bytes of their bodies, and the lateness of the first deliveries among them."""
        self.messages["leased"] += count
        self.leased_bytes += size_bytes
        self.lateness.add_all([each / 1_000 for each in late_ms])
