"""What a parallel consumer tells about itself: a snapshot for programs, metrics for Prometheus."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


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
    """Turns snapshots into metrics whenever they are scraped, so that counting costs nothing in between.

    All consumers of a registry share one: a metric may be named only once there. A consumer with the group of an
    earlier one takes its place.
    """

    def __init__(self) -> None:
        self._sources: dict[str, Callable[[], Stats]] = {}

    def add(self, group: str, stats: Callable[[], Stats]) -> None:
        """Tell of one more consumer."""
        self._sources = {**self._sources, group: stats}

    def collect(self) -> Iterator[Any]:
        """The metrics, as prometheus-client asks for them."""
        found = {group: stats() for group, stats in self._sources.items()}
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"tidemill_parallel_{name}", text, labels=["group"])
            for group, stats in found.items():
                gauge.add_metric([group], getattr(stats, name))
            yield gauge
        for name, text in _COUNTERS.items():
            metric = name.replace("handler_s", "handler_seconds")
            counter = CounterMetricFamily(f"tidemill_parallel_{metric}", text, labels=["group"])
            for group, stats in found.items():
                counter.add_metric([group], getattr(stats, name))
            yield counter
        for name, text in _OFFSETS.items():
            offsets = GaugeMetricFamily(f"tidemill_parallel_{name}_offset", text, labels=["group", "partition"])
            for group, stats in found.items():
                for place, offset in getattr(stats, name).items():
                    offsets.add_metric([group, place], offset)
            yield offsets


_COLLECTORS: "WeakKeyDictionary[CollectorRegistry, StatsCollector]" = WeakKeyDictionary()
_COLLECTORS_LOCK = threading.Lock()


def collector_of(registry: "CollectorRegistry") -> StatsCollector:
    """The registry's collector; registered when it is asked for first."""
    with _COLLECTORS_LOCK:
        found = _COLLECTORS.get(registry)
        if found is None:
            found = _COLLECTORS[registry] = StatsCollector()
            registry.register(found)
        return found
