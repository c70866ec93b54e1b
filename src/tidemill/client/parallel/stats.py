"""What a parallel consumer tells about itself: a snapshot for programs, metrics for Prometheus."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


@dataclass(frozen=True, slots=True)
class Stats:
    """A parallel consumer at one moment."""

    waiting: int
    in_flight: int
    received: int
    completed: int
    beyond_gap: int
    skipped: int
    failures: int
    retries: int
    dead_letters: int
    dropped: int
    handler_s: float
    commits: int
    committed: dict[str, int]
    contiguous: dict[str, int]
    assigned: tuple[str, ...]


_GAUGES = {
    "waiting": "Records that wait for a worker.",
    "in_flight": "Records that are being handled.",
    "beyond_gap": "Records that are complete beyond a gap.",
}
_COUNTERS = {
    "received": "Records received.",
    "completed": "Records complete.",
    "skipped": "Records that an earlier life had completed.",
    "failures": "Handlers that failed.",
    "retries": "Records tried again.",
    "dead_letters": "Records written to the dead-letter topic.",
    "dropped": "Results that came after their partition was lost.",
    "commits": "Commits.",
    "handler_s": "Seconds spent in handlers.",
}
_OFFSETS = {
    "contiguous": "First offset that is not complete.",
    "committed": "Offset that was committed.",
}


class StatsCollector:
    """Turns a snapshot into metrics whenever they are scraped, so that counting costs nothing in between."""

    def __init__(self, stats: Callable[[], Stats], group: str) -> None:
        self._stats, self._group = stats, group

    def collect(self) -> Iterator[Any]:
        """The metrics, as prometheus-client asks for them."""
        stats = self._stats()
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"tidemill_parallel_{name}", text, labels=["group"])
            gauge.add_metric([self._group], getattr(stats, name))
            yield gauge
        for name, text in _COUNTERS.items():
            metric = name.replace("handler_s", "handler_seconds")
            counter = CounterMetricFamily(f"tidemill_parallel_{metric}", text, labels=["group"])
            counter.add_metric([self._group], getattr(stats, name))
            yield counter
        for name, text in _OFFSETS.items():
            offsets = GaugeMetricFamily(f"tidemill_parallel_{name}_offset", text, labels=["group", "partition"])
            for place, offset in getattr(stats, name).items():
                offsets.add_metric([self._group, place], offset)
            yield offsets
